"""Fixtures: the packages, built here, and systems to install them in."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from app import __version__
from harness.waiting import wait_for
from tests.package.machine import Machine, UnavailableError, require_namespaces
from tests.unit import pages

ROOT = Path(__file__).parents[2]
RELEASES = ("bookworm", "trixie")
NEXT_VERSION = "99.0.0"
_PYTHON = ROOT / "build" / "package-venv" / "bin" / "python"
_BUILD_SECONDS = 600


@dataclass(frozen=True)
class Packages:
    """One build: what it has put out."""

    directory: Path
    version: str = __version__

    @property
    def deb(self) -> Path:
        return self.directory / f"clustercheckd_{self.version}_amd64.deb"

    @property
    def rpm(self) -> Path:
        return self.directory / f"clustercheckd-{self.version}.x86_64.rpm"

    @property
    def bill_of_materials(self) -> Path:
        return self.directory / f"clustercheckd-{self.version}.cdx.json"

    @property
    def all(self) -> tuple[Path, ...]:
        return self.deb, self.rpm, self.bill_of_materials


def build(work: Path, output: Path) -> None:
    """Do what `make package` does."""
    command = [str(_PYTHON), "packaging/build.py", f"--work={work}", f"--output={output}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Packages, Packages]:
    """Build everything twice, in directories of different names."""
    directories = [tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("another-build")]
    with ThreadPoolExecutor() as executor:
        list(executor.map(lambda directory: build(directory / "work", directory), directories))
    first, second = directories
    return Packages(first), Packages(second)


@pytest.fixture(scope="session")
def packages(builds: tuple[Packages, Packages]) -> Packages:
    """Give the packages of this version."""
    return builds[0]


@pytest.fixture(scope="session")
def next_packages(packages: Packages) -> Packages:
    """Pack the same once more, quickly and under a higher version."""
    following = Packages(packages.directory, NEXT_VERSION)
    work = packages.directory / "work"
    (changes,) = json.loads((work / "changelog.json").read_text())
    (work / "changelog.json").write_text(json.dumps([{**changes, "semver": f"{NEXT_VERSION}-1"}]))
    recipe = (ROOT / "packaging" / "nfpm.yaml").read_text()
    (work / "next.yaml").write_text(recipe.replace("compression: xz", "compression: gzip"))
    environ = {**os.environ, "VERSION": NEXT_VERSION, "MAINTAINER": "Tests <tests@clustercheckd.invalid>"}
    for path in (following.deb, following.rpm):
        command = [str(_PYTHON.parent / "nfpm"), "package", "--config=next.yaml", f"--packager={path.suffix[1:]}"]
        subprocess.run([*command, f"--target={path}"], cwd=work, env=environ, check=True, capture_output=True)
    return following


@pytest.fixture(scope="session")
def tree(packages: Packages, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the deb."""
    directory = tmp_path_factory.mktemp("tree")
    subprocess.run(["dpkg-deb", "--extract", packages.deb, directory], check=True)
    return directory


@dataclass
class Installed:
    """A system with the package in it, and what was printed on the way."""

    machine: Machine
    after_install: list[str] = field(default_factory=list)
    printed: list[str] = field(default_factory=list)

    def ask(self, header: str = "-o /dev/null -w '%{http_code}'") -> str:
        """Ask for the verdict once; return the status."""
        return self.machine.run(f"curl -s -m 10 {header} http://localhost:9200/", check=False)

    @property
    def answer(self) -> str:
        """Status and reason of the verdict now."""
        head = self.ask("-D - -o /dev/null")
        reason = re.search("^x-clustercheck-reason: (.+)$", head, re.MULTILINE)
        return f"{head[9:12]} {reason[1] if reason else ''}"

    def wait_for(self, answer: str, seconds: float = 20) -> None:
        """Ask until status and reason are these."""
        wait_for(f"the answer {answer}", lambda: self.answer == answer, seconds=seconds)

    def property(self, name: str) -> str:
        """Return what systemd says of the service."""
        return self.machine.run(f"systemctl show --property {name} --value clustercheckd").strip()

    def copy(self, path: Path) -> None:
        """Put a file into root's home."""
        self.machine.path(f"/root/{path.name}").write_bytes(path.read_bytes())


@pytest.fixture(scope="module", params=RELEASES)
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """Boot a Debian with a Galera node in it, Synced."""
    try:
        require_namespaces()
    except UnavailableError as fault:
        pytest.skip(f"NOT TESTED: the packages were installed nowhere. {fault}")
    with Machine(request.param) as booted:
        wait_for_node(booted)
        yield booted


def wait_for_node(machine: Machine) -> None:
    """Wait until the system's Galera node is Synced."""
    state = "mariadb -BNe \"SHOW STATUS LIKE 'wsrep_local_state_comment'\""
    wait_for("the node to be Synced", lambda: "Synced" in machine.run(state, check=False), seconds=90)


def commands_of(page: str, heading: str, number: int = 0) -> list[str]:
    """Return the commands that a page of the documentation tells its readers to type in a block under a heading."""
    return [command.line for command in pages.commands_of(pages.blocks_under(page, heading, "console")[number])]


def block_of(page: str, heading: str, language: str, number: int = 0) -> str:
    """Return one of the blocks of a language under a heading, the first having the number 0."""
    return pages.blocks_under(page, heading, language)[number].text
