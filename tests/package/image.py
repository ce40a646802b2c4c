"""Builds the container image from the Dockerfile without a registry, and runs it.

Needs root, podman and debootstrap. The base image is a small Debian made here instead of the one
from a registry. This machine's pip downloads the wheels, because it knows the package index.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness.process import with_system_path
from tests.unit.manifests import ROOT

BASE, IMAGE = "localhost/debian", "localhost/clustercheckd"

_CACHE = ROOT / "build" / "image"
_RELEASE, _PYTHON_VERSION = "trixie", "3.13"
# Debian's own image for containers leaves these out too.
_NOT_IN_SLIM = (
    "var/cache/apt/archives",
    "var/lib/apt/lists",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
)
_LINUX_WHEELS = (
    "manylinux_2_34_x86_64",
    "manylinux_2_28_x86_64",
    "manylinux2014_x86_64",
)
_SECONDS = 900
# The runtime wants control groups of version 2 alone, and this host may have both.
_WITH_CGROUP2 = (
    "unshare",
    "--mount",
    "sh",
    "-c",
    'mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null; exec "$@"',
    "sh",
)
# Root may be unable to raise the limits here.
_LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")


class Podman:
    """podman, with a store of its own that has the image and its base."""

    def __init__(self, store: str) -> None:
        self._options = (
            f"--root={store}/root",
            f"--runroot={store}/run",
            "--storage-driver=vfs",
        )

    def __call__(self, *arguments: str) -> str:
        """Run a command of podman; return what it prints, without the last end of a line."""
        return _run(self.command(*arguments)).rstrip("\n")

    def command(self, *arguments: str) -> list[str]:
        """Return the command line for a command of podman."""
        return [*_WITH_CGROUP2, "podman", *self._options, *arguments]

    def run(self, uid: int, *arguments: str, **environ: str) -> list[str]:
        """Return the command line that runs the image as the pages say: it can write nowhere."""
        settings = [f"--env={name}={value}" for name, value in environ.items()]
        return self.command(
            "run",
            "--rm",
            "--cgroups=disabled",
            # It would tell of a process that is not the service.
            "--sdnotify=ignore",
            "--network=host",
            *_LIMITS,
            "--read-only",
            "--read-only-tmpfs=false",
            "--cap-drop=ALL",
            "--security-opt=no-new-privileges",
            f"--user={uid}",
            *settings,
            IMAGE,
            *arguments,
        )

    def files(self, image: str) -> Path:
        """Return the root directory of an image."""
        return Path(self("image", "mount", image))


@contextmanager
def image_of(version: str) -> Iterator[Podman]:
    """Build the image. The base and the wheels are kept for the next time."""
    with tempfile.TemporaryDirectory(prefix="clustercheckd-image-") as store:
        podman = Podman(store)
        podman("import", str(_base_archive()), BASE)
        podman(
            "build",
            "--isolation=chroot",
            *_LIMITS,
            "--pull=never",
            f"--tag={IMAGE}",
            f"--build-arg=BASE={BASE}",
            f"--build-arg=VERSION={version}",
            "--build-arg=PIP_FIND_LINKS=/wheels",
            "--build-arg=PIP_NO_INDEX=1",
            f"--volume={_wheels()}:/wheels:ro",
            str(ROOT),
        )
        try:
            yield podman
        finally:
            podman("rm", "--all", "--force", "--time", "0")
            podman("image", "umount", "--all")


def _base_archive() -> Path:
    """Return the archive of the base image.

    The first call makes it, which takes a minute or two.
    """
    archive = _CACHE / f"{_RELEASE}.tar"
    if archive.exists():
        return archive
    _CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_CACHE) as directory:
        root = Path(directory) / "root"
        _run(["debootstrap", "--variant=minbase", _RELEASE, str(root)])
        made = Path(directory) / "base.tar"
        _run(
            [
                "tar",
                "--create",
                "--numeric-owner",
                f"--file={made}",
                *(f"--exclude=./{name}/*" for name in _NOT_IN_SLIM),
                f"--directory={root}",
                ".",
            ]
        )
        made.rename(archive)
    return archive


def _wheels() -> Path:
    """Download the locked versions of the wheels that the image installs."""
    directory = _CACHE / "wheels"
    _run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--require-hashes",
            "--only-binary=:all:",
            "--implementation=cp",
            f"--python-version={_PYTHON_VERSION}",
            f"--dest={directory}",
            *(f"--platform={platform}" for platform in _LINUX_WHEELS),
            f"--requirement={ROOT}/requirements/service.txt",
        ]
    )
    return directory


def _run(command: Sequence[str]) -> str:
    environ = with_system_path(os.environ)
    return subprocess.check_output(command, env=environ, text=True, timeout=_SECONDS)
