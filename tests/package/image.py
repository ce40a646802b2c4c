"""Builds the container image from the Dockerfile without a registry, and runs it as a container runtime would.

Needs root, namespaces, buildah and debootstrap. The base image is a small Debian made here instead of the one from a
registry. This machine's pip downloads the wheels, because it knows the package index.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.block import Block
from harness.process import Process, with_system_path
from harness.waiting import wait_for

ROOT = Path(__file__).parents[2]

_CACHE = ROOT / "build" / "image"
_RELEASE, _PYTHON_VERSION = "trixie", "3.13"
_BASE, _IMAGE = "localhost/debian", "localhost/clustercheckd"
# Debian's own image for containers leaves these out too.
_NOT_IN_SLIM = ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale")
_LINUX_WHEELS = ("manylinux_2_34_x86_64", "manylinux_2_28_x86_64", "manylinux2014_x86_64")
_BASE_SECONDS = 900
_BUILD_SECONDS = 900
_START_SECONDS = 10.0
_NAMESPACES = ("--mount", "--pid", "--ipc", "--uts", "--propagation", "private")
# A read-only root, no capabilities and no way to gain any: Kubernetes' "restricted" profile, and more.
_RUN = """
set -e
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
touch "$root/dev/null" && mount --bind /dev/null "$root/dev/null"
mount -o remount,bind,ro "$root"
exec chroot "$root" setpriv --reuid "$uid" --regid 0 --clear-groups --no-new-privs \
    --inh-caps=-all --bounding-set=-all -- "$@"
"""


class NoImageError(Exception):
    """Images cannot be built or run here. The message says why."""


def require_what_it_takes() -> None:
    """Raise `NoImageError` if no image can be built or run here."""
    if os.geteuid() != 0:
        message = "building an image needs root"
        raise NoImageError(message)
    for command in ("buildah", "debootstrap", "unshare"):
        if shutil.which(command, path=with_system_path(os.environ)["PATH"]) is None:
            message = f"{command} is not installed (apt-get install buildah debootstrap)"
            raise NoImageError(message)
    done = subprocess.run(["unshare", *_NAMESPACES, "--fork", "true"], capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"cannot create namespaces to run an image in: {' '.join(done.stderr.split())}"
        raise NoImageError(message)


class Image(Block):
    """The image, built when the `with` block begins and removed when it ends. The base and the wheels are cached."""

    def __init__(self, version: str) -> None:
        self._version = version
        self._store = Path(tempfile.mkdtemp(prefix="clustercheckd-image-"))
        self._working: list[str] = []

    def close(self) -> None:
        """Remove everything but the caches."""
        for container in self._working:
            self._buildah("umount", container)
        shutil.rmtree(self._store, ignore_errors=True)

    @property
    def configuration(self) -> dict[str, Any]:
        """The image's configuration, as in the OCI image specification."""
        document = json.loads(self._buildah("inspect", "--type", "image", _IMAGE))
        configuration: dict[str, Any] = document["OCIv1"]["config"]
        return configuration

    def files(self, image: str = _IMAGE) -> Path:
        """Return the root directory of a new container of an image."""
        container = self._buildah("from", "--pull-never", image)
        self._working.append(container)
        return Path(self._buildah("mount", container))

    def base_files(self) -> Path:
        """Return the root directory of a new container of the base image."""
        return self.files(_BASE)

    def run(self, directory: Path, environ: Mapping[str, str], uid: int, *arguments: str) -> "Container":
        """Start the image's entrypoint with these arguments, as a user id without a name, on this host's network."""
        configuration = self.configuration
        built_in = dict(variable.split("=", 1) for variable in configuration["Env"])
        command = [*configuration["Entrypoint"], *arguments]
        return Container(self.files(), command, directory, {**built_in, **environ}, uid)

    def _start(self) -> None:
        require_what_it_takes()
        self._import_base(_base_archive())
        wheels = _wheels()
        self._buildah(
            *("bud", "--isolation", "chroot", "--pull-never", "--format", "oci", "--tag", _IMAGE),
            *("--build-arg", f"BASE={_BASE}", "--build-arg", f"VERSION={self._version}"),
            *("--build-arg", "PIP_FIND_LINKS=/wheels", "--build-arg", "PIP_NO_INDEX=1"),
            *("--volume", f"{wheels}:/wheels:ro", str(ROOT)),
        )

    def _import_base(self, archive: Path) -> None:
        container = self._buildah("from", "scratch")
        self._buildah("add", container, str(archive), "/")
        self._buildah("commit", "--rm", container, _BASE)

    def _buildah(self, *arguments: str) -> str:
        """Run buildah with its own store, and return the last line it prints, or everything for `inspect`."""
        store = ("--root", str(self._store / "root"), "--runroot", str(self._store / "run"), "--storage-driver", "vfs")
        done = _run(["buildah", *store, *arguments], seconds=_BUILD_SECONDS)
        return done if arguments[0] == "inspect" else done.strip().rpartition("\n")[2]


class Container:
    """The image's program as process 1 of its own namespace, on a read-only root, without capabilities."""

    def __init__(
        self, root: Path, command: Sequence[str], directory: Path, environ: Mapping[str, str], uid: int
    ) -> None:
        self.log = directory / f"container-{uid}.log"
        # --kill-child: if unshare dies, the kernel kills process 1, and with it the whole namespace.
        wrapper = ["unshare", *_NAMESPACES, "--fork", "--kill-child", "sh", "-c", _RUN, "sh"]
        inside = ["env", "-i", *(f"{name}={value}" for name, value in environ.items()), *command]
        outside = {**with_system_path({}), "root": str(root), "uid": str(uid)}
        self._process = Process("the container", [*wrapper, *inside], self.log, environ=outside)

    def wait_for_exit(self, seconds: float) -> int:
        """Wait until the program has ended, and return its exit status."""
        wait_for("the container to end", lambda: self._process.exit_code is not None, seconds=seconds)
        code = self._process.exit_code
        assert code is not None
        return code

    def check(self) -> bool:
        """Return True. Raises `ProcessEndedError` if the program has ended."""
        return self._process.check()

    @property
    def pid(self) -> int:
        """The process id of the program outside its namespace."""

        def child() -> int | None:
            self._process.check()
            children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
            return int(children[0]) if children else None

        return wait_for("the container's process", child, seconds=_START_SECONDS)

    def status(self, field: str) -> str:
        """Return a field of /proc/PID/status, see proc(5)."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith(f"{field}:"))

    def kill(self) -> None:
        """Kill the program if it still runs."""
        self._process.kill()


def size_bytes(root: Path) -> int:
    """Return the total size of the files below a directory, counting hard links once."""
    return int(_run(["du", "--summarize", "--bytes", "--one-file-system", str(root)]).split()[0])


def _base_archive() -> Path:
    """Return the archive of the base image. The first call makes it, which takes a minute or two."""
    archive = _CACHE / f"{_RELEASE}.tar"
    if archive.exists():
        return archive
    _CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_CACHE) as directory:
        root = Path(directory) / "root"
        _run(["debootstrap", "--variant=minbase", _RELEASE, str(root)], seconds=_BASE_SECONDS)
        for name in _NOT_IN_SLIM:
            shutil.rmtree(root / name)
            (root / name).mkdir()
        made = Path(directory) / "base.tar"
        _run(["tar", "--create", "--numeric-owner", "--file", str(made), "--directory", str(root), "."])
        made.rename(archive)
    return archive


def _wheels() -> Path:
    """Download the locked versions of the wheels that the image installs."""
    directory = _CACHE / "wheels"
    _run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
            *("--require-hashes", "--only-binary", ":all:", "--implementation", "cp"),
            *("--python-version", _PYTHON_VERSION),
            *(word for platform in _LINUX_WHEELS for word in ("--platform", platform)),
            *("--requirement", str(ROOT / "requirements" / "image.txt"), "--dest", str(directory)),
        ],
        seconds=_BASE_SECONDS,
    )
    return directory


def _run(command: Sequence[str], *, seconds: float = 300) -> str:
    done = subprocess.run(
        command, env=with_system_path(os.environ), capture_output=True, text=True, timeout=seconds, check=False
    )
    if done.returncode:
        message = f"{' '.join(command[:6])} ...: {done.stderr[-2000:]}"
        raise RuntimeError(message)
    return done.stdout
