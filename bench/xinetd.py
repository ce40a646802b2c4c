"""xinetd with a minimal shell check, which clustercheckd replaces. It does not touch the system's own xinetd."""

import getpass
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from bench import load
from bench.machine import cpu_seconds_of_children, has_children
from harness.galera import ACCOUNT, PASSWORD, Node
from harness.ports import LOOPBACK
from harness.process import Process, with_system_path
from harness.waiting import wait_for

SHELL_CHECK = Path(__file__).with_name("shell_check.sh")

_UNPACKED = Path(__file__).parents[1] / "build" / "xinetd"
_START_SECONDS = 20.0

# With the default cps and limits, xinetd would disable the service after 50 connections in a second.
_CONFIGURATION = """\
defaults
{{
    log_type = FILE /dev/null
}}
service clustercheck
{{
    type = UNLISTED
    socket_type = stream
    protocol = tcp
    bind = {host}
    port = {port}
    wait = no
    user = {user}
    server = {server}
    server_args = {option_file}
    flags = REUSE
    cps = 100000 1
    instances = UNLIMITED
    per_source = UNLIMITED
}}
"""
_OPTION_FILE = '[client]\nsocket="{socket}"\nuser="{user}"\npassword="{password}"\n'


class MissingError(Exception):
    """The benchmark cannot get something that it needs. The message is one line."""


class ShellCheck:
    """xinetd running the shell check for a node."""

    def __init__(self, node: Node, directory: Path, port: int, tell: Callable[[str], None]) -> None:
        self.port = port
        program = _xinetd(tell)
        option_file = directory / "shell_check.cnf"
        option_file.touch(mode=0o600)
        option_file.write_text(_OPTION_FILE.format(socket=node.socket, user=ACCOUNT, password=PASSWORD))
        configuration = directory / "xinetd.conf"
        configuration.write_text(
            _CONFIGURATION.format(
                host=LOOPBACK,
                port=port,
                user=getpass.getuser(),
                server=SHELL_CHECK,
                option_file=option_file,
            ),
        )
        command = [program, "-dontfork", "-stayalive", "-f", str(configuration), "-pidfile", str(directory / "pid")]
        self.process = Process("xinetd", command, directory / "xinetd.log")
        wait_for("the shell check to answer", lambda: self.process.check() and self._answers(), seconds=_START_SECONDS)

    def cpu_seconds(self) -> float:
        """Return the CPU time of xinetd and all its descendants, after those have ended."""
        wait_for("the end of the shell checks", lambda: not has_children(self.process))
        return self.process.cpu_seconds + cpu_seconds_of_children(self.process)

    def _answers(self) -> bool:
        try:
            return load.ask(self.port).startswith(b"HTTP/1.1 200 ")
        except OSError:
            return False


def _xinetd(tell: Callable[[str], None]) -> str:
    unpacked = _UNPACKED / "usr/sbin/xinetd"
    program = shutil.which("xinetd", path=with_system_path({})["PATH"])
    if program is None and not unpacked.exists():
        tell(f"xinetd is not installed: unpacking the distribution's package into {_UNPACKED}, without installing it")
        _unpack()
    return program or str(unpacked)


def _unpack() -> None:
    _UNPACKED.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(["apt-get", "download", "-qq", "xinetd"], cwd=_UNPACKED, check=True, capture_output=True)
        package = next(_UNPACKED.glob("xinetd_*.deb"))
        subprocess.run(["dpkg", "-x", package.name, "."], cwd=_UNPACKED, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError, StopIteration):
        message = "cannot download xinetd from the distribution: install it, or choose other rows with --only"
        raise MissingError(message) from None
