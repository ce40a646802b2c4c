"""A small Debian system that boots with its own systemd as process 1, in its own namespaces.

Its only network is the loopback device, and it has no Python. Needs root, and a kernel that lets root create namespaces
and overlay mounts. Many containers do not allow that.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from harness.block import Block
from harness.process import Process
from harness.waiting import wait_for

SYSTEMS = Path("/var/tmp/clustercheckd-systems")  # noqa: S108 (kept from one run to the next; root's own)
"""The directory of the systems that machines boot from, one for each Debian release."""

_HERE = Path(__file__).parent
_NAMESPACES = ("--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup")
_BOOT_SECONDS = 60.0
_COMMAND_SECONDS = 120.0


class UnavailableError(RuntimeError):
    """Machines cannot boot here. The message is one line that says why."""


def require_namespaces() -> None:
    """Raise `UnavailableError` if machines cannot boot here."""
    if os.geteuid() != 0:
        message = "booting a system needs root"
        raise UnavailableError(message)
    for command in ("unshare", "nsenter", "debootstrap", "pivot_root"):
        if shutil.which(command, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin") is None:
            message = f"{command} is not installed"
            raise UnavailableError(message)
    _cgroup()
    trial = "mount -t tmpfs tmpfs /mnt && mkdir /mnt/l /mnt/u /mnt/w /mnt/m && mount -t cgroup2 cgroup2 /mnt/l &&"
    trial += " umount /mnt/l && mount -t overlay overlay -o lowerdir=/mnt/l,upperdir=/mnt/u,workdir=/mnt/w /mnt/m"
    done = subprocess.run(
        ["unshare", *_NAMESPACES, "--fork", "--propagation", "private", "sh", "-c", trial],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        message = f"cannot create namespaces to boot a system in: {' '.join(done.stderr.split())}"
        raise UnavailableError(message)


def system(release: str) -> Path:
    """Return the directory of a Debian release. The first call makes it, which takes some minutes."""
    recipe = (_HERE / "system.sh").read_bytes()
    directory, log, complete = SYSTEMS / release, SYSTEMS / f"{release}.log", SYSTEMS / f"{release}.complete"
    SYSTEMS.mkdir(mode=0o700, parents=True, exist_ok=True)
    stamp = hashlib.sha256(recipe).hexdigest()
    with (SYSTEMS / f"{release}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists() or complete.read_text() != stamp:
            complete.unlink(missing_ok=True)
            with log.open("wb") as output:
                command = [str(_HERE / "system.sh"), release, str(directory)]
                done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
            if done.returncode:
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
                message = f"Debian {release} could not be made, see {log}:\n{tail}"
                raise RuntimeError(message)
            complete.write_text(stamp)
    return directory


class Machine(Block):
    """One booted system. Its changes survive a reboot, and are removed when the `with` block ends."""

    def __init__(self, release: str) -> None:
        self.release = release
        self._system = system(release)
        # Not in /tmp, which is an overlay in many containers: the upper layer of an overlay must not be one.
        self._written = tempfile.TemporaryDirectory(dir=SYSTEMS, prefix=f"{release}-")
        self._directory = Path(self._written.name)
        self._cgroup = _cgroup() / f"clustercheckd-{os.getpid()}-{release}"
        self._process: Process | None = None
        for name in ("root", "written", "work"):
            (self._directory / name).mkdir()

    def _start(self) -> None:
        """Boot. The system's services may still be starting when this returns."""
        self._cgroup.mkdir(exist_ok=True)
        # Enter a new control group before the namespaces are created, or systemd would see this host's groups.
        enter = f'echo $$ > "{self._cgroup}/cgroup.procs" && exec "$@"'
        boot = [str(_HERE / "boot.sh"), str(self._system), str(self._directory)]
        unshare = ["unshare", *_NAMESPACES, "--fork", "--kill-child", "--propagation", "private", *boot]
        self._process = Process(
            f"Debian {self.release}", ["sh", "-c", enter, "sh", *unshare], self._directory / "boot.log"
        )
        wait_for("systemd to have booted", self._is_up, seconds=_BOOT_SECONDS)

    def path(self, name: str) -> Path:
        """Return the path on this host of a file in the running system."""
        return Path(f"/proc/{self._init()}/root") / name.lstrip("/")

    def run(self, command: str, *, check: bool = True, seconds: float = _COMMAND_SECONDS) -> str:
        """Run a command in a root shell of the system, and return its output, with that on standard error.

        Raises `AssertionError` with the output if check is set and the command fails.
        """
        done = subprocess.run(
            [*self._enter(*_NAMESPACES), "/bin/bash", "-c", f"cd /root && {command}"],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8", "TERM": "dumb"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
        if check and done.returncode:
            message = f"{command!r} in Debian {self.release}: exit status {done.returncode}\n{done.stdout}"
            raise AssertionError(message)
        return done.stdout

    def succeeds(self, command: str) -> bool:
        """Return whether a command's exit status is 0."""
        return self.run(f"({command}) >/dev/null 2>&1 && echo yes || true").endswith("yes\n")

    def network_command(self, *command: str) -> list[str]:
        """Return the command line that runs a command of this host in the system's network."""
        return [*self._enter("--net"), *command]

    def reboot(self) -> None:
        """Shut the system down cleanly, and boot it again."""
        process = self._running
        self.run("systemctl poweroff --no-block")
        wait_for("the system to be down", lambda: process.exit_code is not None, seconds=_BOOT_SECONDS)
        self._start()

    def close(self) -> None:
        """Kill all processes of the system, and remove its changes."""
        if self._process is not None:
            self._process.kill()
        wait_for("the last of its processes to be gone", self._is_gone, seconds=_BOOT_SECONDS)
        self._written.cleanup()

    @property
    def _running(self) -> Process:
        if self._process is None:
            message = f"Debian {self.release} has not been booted"
            raise RuntimeError(message)
        self._process.check()
        return self._process

    def _init(self) -> int:
        """Return the process id, on this host, of the system's process 1."""
        pid = self._running.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def _enter(self, *namespaces: str) -> list[str]:
        return ["nsenter", f"--target={self._init()}", *namespaces, "--"]

    def _is_up(self) -> bool:
        with contextlib.suppress(IndexError, subprocess.TimeoutExpired):
            # `degraded` means that a unit has failed, but the system has booted.
            return self.run("systemctl is-system-running", check=False).strip() in {"running", "degraded"}
        return False

    def _is_gone(self) -> bool:
        for directory, _, _ in os.walk(self._cgroup, topdown=False):
            with contextlib.suppress(OSError):
                Path(directory).rmdir()
        return not self._cgroup.exists()


def _cgroup() -> Path:
    """Return the directory of this process' control group (version 2)."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            own = Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
            return Path(place) / own
    message = "control groups of version 2 are not mounted"
    raise UnavailableError(message)
