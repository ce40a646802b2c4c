"""The workflows, which only run elsewhere: what can be said of them here."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from app import __version__
from tests.package.conftest import ROOT, Packages

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_actionlint_has_nothing_to_say() -> None:
    own = ROOT / "build" / "tools" / "actionlint"
    actionlint = str(own) if own.exists() else shutil.which("actionlint")
    if actionlint is None:
        pytest.skip(
            "NOT TESTED: there is no actionlint here, and packaging/setup.sh could not install it without Go"
        )
    done = subprocess.run([actionlint, *WORKFLOWS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_they_call_the_targets_that_are_there(workflow: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    called = {
        word
        for line in workflow.read_text().splitlines()
        for word in line.partition("run: make ")[2].split()[:1]
    }
    assert called
    assert all(f"\n{target}: " in makefile for target in called)


def test_the_steps_of_a_release_that_need_no_forge_run(packages: Packages, tmp_path: Path) -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    steps = {
        step["name"]: step.get("run")
        for step in workflow["jobs"]["packages"]["steps"]
        if "name" in step
    }

    def status(step: str, directory: Path, tag: str) -> int:
        environ = {**os.environ, "GITHUB_REF_NAME": tag}
        return subprocess.run(
            ["sh", "-ec", steps[step]], cwd=directory, env=environ, check=False
        ).returncode

    assert status("The tag is the version", ROOT, f"v{__version__}") == 0
    assert status("The tag is the version", ROOT, "v99.0.0") == 1
    for path in packages.all:
        shutil.copy(path, tmp_path)
    assert status("Checksums", tmp_path, f"v{__version__}") == 0
    checked = subprocess.check_output(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=tmp_path, text=True
    )
    assert checked == "".join(
        f"{name}: OK\n" for name in sorted(path.name for path in packages.all)
    )


def test_the_version_stands_in_one_place_and_whatever_else_names_it_agrees() -> None:
    naming = re.compile(r"(?:clustercheckd[:_-]|newTag: |VERSION=|version = .?)(\d+\.\d+\.\d+)")
    tracked = subprocess.check_output(
        ["git", "ls-files", "--", ":!app", ":!requirements/"], cwd=ROOT, text=True
    )
    named = {
        (name, version)
        for name in tracked.split()
        for version in naming.findall((ROOT / name).read_text(errors="replace"))
    }
    # The images that the examples pull; everything else asks app/__init__.py.
    assert {version for _, version in named} <= {__version__}
    assert {name.partition("/")[0] for name, _ in named} <= {"contrib", "docs"}
