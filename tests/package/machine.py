"""A small Debian system that boots with its own systemd as process 1, in its own namespaces.

Its only network is the loopback device, and it has a Galera node but no Python. Needs root, and a
kernel that lets root create namespaces and overlay mounts. Many containers do not allow that.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.process import Process, output_of
from harness.waiting import wait_for

SYSTEMS = Path("/var/tmp/clustercheckd-systems")  # noqa: S108 (kept from one run to the next; root's own)
"""The directory of the systems that machines boot from, one for each Debian release."""

NAMESPACES = ("--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup")

AVAILABLE = "200 synced"

_HERE = Path(__file__).parent
_MANAGED = "-managed"
_MAKE_SECONDS = 900
_BOOT_SECONDS = 60.0
_COMMAND_SECONDS = 600.0
_ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "TERM": "dumb",
}


def system(release: str) -> Path:
    """Return the directory of a Debian release. The first call makes it, which takes some minutes.

    One whose name ends in `-managed` is a copy with what managed.sh adds.

    Raises `subprocess.CalledProcessError` if it cannot be made.
    """
    recipe, source = _HERE / "system.sh", release
    if release.endswith(_MANAGED):
        recipe, source = (
            _HERE / "managed.sh",
            str(system(release.removesuffix(_MANAGED))),
        )
    directory, complete = SYSTEMS / release, SYSTEMS / f"{release}.complete"
    SYSTEMS.mkdir(mode=0o700, parents=True, exist_ok=True)
    stamp = hashlib.sha256(recipe.read_bytes()).hexdigest()
    with (SYSTEMS / f"{release}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists() or complete.read_text() != stamp:
            complete.unlink(missing_ok=True)
            subprocess.run(
                ["timeout", str(_MAKE_SECONDS), recipe, source, directory], check=True
            )
            complete.write_text(stamp)
    return directory


@contextmanager
def booted(release: str) -> Iterator["Machine"]:
    """Boot a system. Its changes survive a reboot, and are removed at the end."""
    base = system(release)
    # Not in /tmp, which is an overlay in many containers: the upper layer of an overlay must not be
    # one.
    with tempfile.TemporaryDirectory(dir=SYSTEMS, prefix=f"{release}-") as directory:
        machine = Machine(release, base, Path(directory))
        try:
            machine.wait_until_up()
            yield machine
        finally:
            machine.kill()


class Machine:
    """A booted system."""

    def __init__(self, release: str, base: Path, directory: Path) -> None:
        self.release = release
        self._base = base
        self._directory = directory
        for name in ("root", "written", "work"):
            (directory / name).mkdir()
        find = "findmnt --first-only --noheadings --output=TARGET --types=cgroup2"
        mount = output_of(*find.split()).strip()
        own = Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
        self._cgroup = Path(mount, own, f"clustercheckd-{os.getpid()}-{directory.name}")
        self._process = self._boot()

    def _boot(self) -> Process:
        self._cgroup.mkdir(exist_ok=True)
        # Enter a new control group before the namespaces are created, or systemd would see this
        # host's groups.
        enter = f'echo $$ > "{self._cgroup}/cgroup.procs" && exec "$@"'
        command = [
            "sh",
            "-c",
            enter,
            "sh",
            "unshare",
            *NAMESPACES,
            "--fork",
            "--kill-child",
            "--propagation=private",
            str(_HERE / "boot.sh"),
            str(self._base),
            str(self._directory),
        ]
        return Process(f"Debian {self.release}", command, self._directory / "boot.log")

    def wait_until_up(self) -> None:
        """Wait until the system has booted and its Galera node is Synced."""
        state = "mariadb -BNe \"SHOW STATUS LIKE 'wsrep_local_state_comment'\""

        def is_synced() -> bool:
            self._process.check()
            with contextlib.suppress(IndexError, subprocess.TimeoutExpired):
                return "Synced" in self.run(
                    f"systemctl is-system-running --wait; {state}", check=False
                )
            return False

        wait_for("the node to be Synced", is_synced, seconds=_BOOT_SECONDS + 90)

    def path(self, name: str) -> Path:
        """Return the path on this host of a file in the running system."""
        return Path(f"/proc/{self.init}/root") / name.lstrip("/")

    def connect(self, other: "Machine", address: str, other_address: str) -> None:
        """Connect two systems by a network of their own."""
        ends = ((self, "link0", address), (other, "link1", other_address))
        pair = f"ip link add link0 netns {self.init} type veth peer name link1 netns {other.init}"
        output_of(*pair.split())
        for machine, name, own in ends:
            for command in (f"address add {own}/24 dev {name}", f"link set {name} up"):
                enter = f"nsenter --target={machine.init} --net ip {command}"
                output_of(*enter.split())

    def copy(self, path: Path) -> None:
        """Put a file into root's home."""
        self.path(f"/root/{path.name}").write_bytes(path.read_bytes())

    def run(self, command: str, *, check: bool = True) -> str:
        """Run a command in a root shell of the system, and return its output, errors included.

        Raises `AssertionError` with the output if check is set and the command fails.
        """
        enter = ["nsenter", f"--target={self.init}", *NAMESPACES, "--"]
        done = subprocess.run(
            [*enter, "/bin/bash", "-c", f"cd /root && {command}"],
            env=_ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
        if check:
            assert done.returncode == 0, (
                f"{command!r} in Debian {self.release}: {done.returncode}\n{done.stdout}"
            )
        return done.stdout

    def succeeds(self, command: str) -> bool:
        """Return whether a command's exit status is 0."""
        return self.run(f"({command}) >/dev/null 2>&1 && echo yes || true").endswith(
            "yes\n"
        )

    @property
    def main_pid(self) -> str:
        """The number of the service's process; 0 if there is none."""
        return self.show("MainPID")

    def show(self, name: str) -> str:
        """Return what systemd says of the service."""
        return self.run(
            f"systemctl show --property {name} --value clustercheckd"
        ).strip()

    @property
    def answer(self) -> str:
        """Status and reason of the verdict now; empty if nobody answers."""
        head = self.run(
            "curl -s -m 10 -D - -o /dev/null http://localhost:9200/", check=False
        )
        reason = re.search("^x-clustercheck-reason: (.+)$", head, re.MULTILINE)
        return f"{head[9:12]} {reason[1] if reason else ''}".rstrip(" ")

    def wait_for(self, answer: str = AVAILABLE, seconds: float = 20) -> None:
        """Ask until status and reason are these."""
        wait_for(f"the answer {answer}", lambda: self.answer == answer, seconds=seconds)

    def restart(self, answer: str = AVAILABLE) -> None:
        """Restart the service, and ask until status and reason are these."""
        self.run("systemctl restart clustercheckd")
        self.wait_for(answer)

    def reboot(self) -> None:
        """Shut the system down cleanly, and boot it again."""
        self.run("systemctl poweroff --no-block")
        wait_for(
            "the system to be down",
            lambda: self._process.exit_code is not None,
            seconds=_BOOT_SECONDS,
        )
        self._process = self._boot()
        self.wait_until_up()

    def kill(self) -> None:
        """Kill all processes of the system."""
        self._process.kill()
        wait_for(
            "the last of its processes to be gone", self._is_gone, seconds=_BOOT_SECONDS
        )

    @property
    def init(self) -> int:
        """Return the process id, on this host, of the system's process 1."""
        pid = self._process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

    def _is_gone(self) -> bool:
        for directory, _, _ in os.walk(self._cgroup, topdown=False):
            with contextlib.suppress(OSError):
                Path(directory).rmdir()
        return not self._cgroup.exists()
