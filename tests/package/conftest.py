"""Fixtures: the packages, built here, and systems to install them in."""

import platform
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.process import output_of
from tests.package.machine import NAMESPACES, Machine, booted
from tests.unit import pages
from tests.unit.manifests import ROOT

NEXT_VERSION = "99.0.0"
# Those to install the packages in. Releases are built in the oldest.
GLIBC_OF = {"bookworm": (2, 36), "trixie": (2, 41)}
_PYTHON = ROOT / "build" / "package-venv" / "bin" / "python"


@dataclass(frozen=True)
class Packages:
    """One build: what it has put out."""

    directory: Path
    version: str

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


def build(*arguments: str) -> str:
    """Run Python where the packages are built; return what it prints."""
    return output_of(_PYTHON, *arguments, cwd=ROOT / "packaging")


def build_all(directory: Path) -> Packages:
    """Build both packages and the bill of materials, as `make package` does."""
    build("build.py", f"--work={directory}/work", f"--output={directory}")
    (deb,) = directory.glob("*.deb")
    return Packages(directory, deb.name.split("_")[1])


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> tuple[Packages, Packages]:
    """Build everything twice, in directories of different names."""
    directories = map(tmp_path_factory.mktemp, ("first", "another-build"))
    with ThreadPoolExecutor() as executor:
        first, second = executor.map(build_all, directories)
    return first, second


@pytest.fixture(scope="session")
def packages(builds: tuple[Packages, Packages]) -> Packages:
    """Give the packages of this version."""
    return builds[0]


@pytest.fixture(scope="session")
def next_packages(packages: Packages) -> Packages:
    """Pack the same once more, under a higher version."""
    for kind in ("deb", "rpm"):
        path = f"pathlib.Path({str(packages.directory)!r})"
        pack = f"build.pack({path} / 'work', {NEXT_VERSION!r}, {kind!r}, {path})"
        build("-c", f"import build, pathlib; {pack}")
    return Packages(packages.directory, NEXT_VERSION)


@pytest.fixture(scope="session")
def tree(packages: Packages, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the deb."""
    directory = tmp_path_factory.mktemp("tree")
    output_of("dpkg-deb", "--extract", packages.deb, directory)
    return directory


@pytest.fixture(scope="session")
def namespaces() -> None:
    """Skip a test that runs another system where this user may create no namespaces."""
    try:
        output_of("unshare", *NAMESPACES, "true")
    except AssertionError as fault:
        pytest.skip(
            f"NOT TESTED: {fault}; it needs root, in a container a privileged one"
        )


def skip_where_glibc_is_newer_than_of(release: str) -> None:
    """Skip a test of packages that are built for this machine's release and newer ones only."""
    here = tuple(int(part) for part in platform.libc_ver()[1].split("."))
    if here > GLIBC_OF[release]:
        pytest.skip(
            f"NOT TESTED: what is built here needs a newer glibc than that of {release}"
        )


@pytest.fixture(scope="module", params=GLIBC_OF)
def machine(request: pytest.FixtureRequest, namespaces: None) -> Iterator[Machine]:  # noqa: ARG001 (skips)
    """Boot a Debian with a Galera node in it, Synced."""
    skip_where_glibc_is_newer_than_of(request.param)
    if subprocess.call(["unshare", "--user", "true"]):
        pytest.skip(
            "NOT TESTED: the unit's sandbox takes a user namespace, which Linux refuses in a chroot"
        )
    with booted(request.param) as running:
        yield running


def commands_of(page: str, heading: str, number: int = 0) -> list[str]:
    """Return the commands that a page tells its readers to type in a block under a heading."""
    block = pages.blocks_under(page, heading, "console")[number]
    return [command.line for command in pages.commands_of(block)]
