"""contrib/kubernetes against the schemas of Kubernetes: a field that does not exist is an error."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.manifests import ROOT

FOLDER = ROOT / "contrib" / "kubernetes"
ENVIRONMENT = ROOT / "build" / "kubernetes-venv"
LOCK = ROOT / "requirements" / "kubernetes.txt"
# Native sidecars are there from the first on; the second is the newest that there are schemas of.
VERSIONS = ("1.29", "1.37")
SECONDS = 300


@pytest.fixture(scope="session")
def validator() -> Path:
    """Install the schemas, the first time and when their lock has changed; give the program."""
    stamp, digest = ENVIRONMENT / "installed", hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != digest:
        install = ["install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--only-binary", ":all:"]
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)],
            [str(ENVIRONMENT / "bin" / "pip"), *install, "-r", str(LOCK)],
        ):
            subprocess.run(command, check=True, timeout=SECONDS)
        stamp.write_text(digest)
    return ENVIRONMENT / "bin" / "kubernetes-validate"


def problems(validator: Path, version: str, *files: Path) -> str:
    """Validate files; empty where nothing is wrong."""
    command = [str(validator), "--strict", "--kubernetes-version", version, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_valid(validator: Path, version: str) -> None:
    files = [path for path in sorted(FOLDER.glob("*.yaml")) if path.name != "kustomization.yaml"]
    assert problems(validator, version, *files) == ""


def test_the_page_names_these_versions() -> None:
    assert f"Kubernetes {' and '.join(VERSIONS)}" in (ROOT / "docs" / "kubernetes.md").read_text()


def test_a_misspelt_field_is_found(validator: Path, tmp_path: Path) -> None:
    file = tmp_path / "statefulset.yaml"
    file.write_text((FOLDER / "statefulset.yaml").read_text().replace("timeoutSeconds", "timeoutSecond"))
    assert "timeoutSecond" in problems(validator, VERSIONS[0], file)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="KUSTOMIZE IS NOT TESTED: kubectl is not installed")
def test_what_kustomize_makes_of_it_is_valid(validator: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", FOLDER], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    made = tmp_path / "made.yaml"
    made.write_text(done.stdout)
    assert problems(validator, VERSIONS[-1], made) == ""
    assert "image: registry.example/clustercheckd:" in done.stdout
