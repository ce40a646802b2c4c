"""clustercheckd as users run it: a process with settings in its environment, and its answers."""

import http.client
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from harness.galera import ACCOUNT, PASSWORD, Node
from harness.manager import Manager
from harness.network import RemoteHost
from harness.ports import LOOPBACK, Ports
from harness.process import Process, Successor
from harness.waiting import wait_for

PROGRAM = (sys.executable, "-m", "app")

_START_SECONDS = 20.0
_ANSWER_SECONDS = 20.0
_LIMIT_BYTES = 1 << 20

# What systemd does before it runs a service whose socket it has kept: it is descriptor 3, and the
# variables say so.
_HAND_DOWN = """
import os, sys
names = sys.argv[2].split(":")
for number, name in enumerate(names, 3):
    os.dup2(int(sys.argv[1]) if name == "listening" else os.open(os.devnull, 0), number)
os.environ.update(LISTEN_FDS=str(len(names)), LISTEN_FDNAMES=sys.argv[2])
os.environ.update(LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[3], sys.argv[3:])
"""


class Reply(NamedTuple):
    """An HTTP answer, with header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: str

    @property
    def reason(self) -> str:
        """The reason of clustercheckd's verdict; empty if the answer has none."""
        return self.headers.get("x-clustercheck-reason", "")


def get(
    port: int, target: str = "/", method: str = "GET", address: str = LOOPBACK
) -> Reply:
    """Send one HTTP request on a new connection, and return the answer. Raises OSError."""
    connection = http.client.HTTPConnection(address, port, timeout=_ANSWER_SECONDS)
    try:
        connection.request(method, target)
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Reply(response.status, headers, response.read().decode())
    finally:
        connection.close()


def wait_until_ready(
    process: Process, port: int, target: str, address: str = LOOPBACK
) -> None:
    """Wait until a process answers 200 to a request."""

    def is_ready() -> bool:
        process.check()
        try:
            return get(port, target, address=address).status == http.client.OK
        except OSError:
            return False

    wait_for(f"{process.name} to answer", is_ready, seconds=_START_SECONDS)


class Service:
    """One clustercheckd process on a port of the loopback address, or of a remote host."""

    def __init__(
        self,
        directory: Path,
        port: int,
        environ: Mapping[str, str],
        *,
        name: str = "clustercheckd",
        command: Sequence[str] = PROGRAM,
        pass_fds: Sequence[int] = (),
        host: RemoteHost | None = None,
    ) -> None:
        self._process: Process
        self.manager = Manager()
        self._followed = 0
        self.port = port
        self.address = host.address if host else LOOPBACK
        self.name = name
        self.log = directory / f"{name}-{port}.log"
        self._command = command
        self._pass_fds = pass_fds
        self._within = host.within if host else ()
        self._environ = {
            **without_settings(os.environ),
            "CLUSTERCHECK_HOST": self.address,
            "CLUSTERCHECK_PORT": str(port),
            "CLUSTERCHECK_DISABLED_FILE": str(directory / f"{name}-{port}.disabled"),
            "NOTIFY_SOCKET": self.manager.address,
            **environ,
        }
        self.disabled_file = Path(self._environ["CLUSTERCHECK_DISABLED_FILE"])
        self.restart()

    @property
    def process(self) -> Process:
        """The main process: the one that was started, or its latest successor."""
        for pid in self.manager.values("MAINPID")[self._followed :]:
            self._followed += 1
            # It ends soon.
            old = self._process
            wait_for("the old process to go", lambda: old.exit_code is not None)  # noqa: B023
            self._process = Successor(int(pid), self._process)
        return self._process

    def restart(self) -> None:
        """Start the service, again after a stop."""
        self._process = Process(
            self.name,
            self._command,
            self.log,
            environ=self._environ,
            pass_fds=self._pass_fds,
            within=self._within,
        )

    def wait_until_up(self) -> None:
        """Wait for the first answer."""
        wait_until_ready(self.process, self.port, "/livez", self.address)

    def get(self, target: str = "/", *, method: str = "GET") -> Reply:
        """Send one request on a new connection, and return the answer."""
        return get(self.port, target, method, self.address)

    def wait_for_verdict(
        self, status: int, reason: str, *, target: str = "/", seconds: float = 30.0
    ) -> Reply:
        """Send requests until the answer has this status and reason, and return it."""

        def reached() -> Reply | None:
            reply = self.get(target)
            seen.append(f"{reply.status} {reply.reason}")
            return reply if (reply.status, reply.reason) == (status, reason) else None

        seen: list[str] = []
        try:
            return wait_for(
                f"{self.name} to answer {status} {reason}", reached, seconds=seconds
            )
        except AssertionError as fault:
            fault.add_note(f"last answers: {seen[-5:]}")
            raise

    def status(self) -> dict[str, Any]:
        """Return the document of /status."""
        document: dict[str, Any] = json.loads(self.get("/status").body)
        return document

    def wait_for_log(self, text: str) -> None:
        """Wait until the log has a text."""
        wait_for(f"the log to have {text!r}", lambda: text in self.log.read_text())

    def connect(self) -> socket.socket:
        """Connect, and say nothing."""
        return socket.create_connection(
            (self.address, self.port), timeout=_ANSWER_SECONDS
        )

    def send(self, request: bytes, *, half_close: bool = False) -> bytes:
        """Send raw bytes and read until the server closes."""
        with self.connect() as connection:
            connection.sendall(request)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
            return read_to_end(connection)

    def command(self, name: str) -> None:
        """Run another of clustercheckd's commands with the same settings."""
        subprocess.run(
            [*PROGRAM, name],
            env=self._environ,
            check=True,
            capture_output=True,
            timeout=_START_SECONDS,
        )

    def stop(self) -> int:
        """Stop the service as systemd does, and return the exit status."""
        return self.process.stop()


def handing_down(held: socket.socket, names: str = "listening") -> tuple[str, ...]:
    """Return the command that runs another with a socket that it hands down.

    names: of all descriptors, with colons between them.
    """
    return (sys.executable, "-IS", "-c", _HAND_DOWN, str(held.fileno()), names)


@contextmanager
def service_beside(
    node: Node,
    directory: Path,
    ports: Ports,
    held: socket.socket | None = None,
    command: Sequence[str] = PROGRAM,
    /,
    **environ: str,
) -> Iterator[Service]:
    """Run clustercheckd for a node while the block runs, with more settings if given.

    It answers when the block begins.

    It connects over the node's socket, with the account that has only USAGE. Its files are in
    directory. held: the socket that a shell hands down to it, and to the next when it has ended.
    command: what runs.
    """
    if held:
        again = ("sh", "-c", 'while :; do "$@"; done', "sh")
        command = (*again, *handing_down(held), *command)
    settings = {
        "MYSQL_SOCKET": str(node.socket),
        "MYSQL_USERNAME": ACCOUNT,
        "MYSQL_PASSWORD": PASSWORD,
        **environ,
    }
    service = Service(
        directory,
        held.getsockname()[1] if held else ports.free(),
        settings,
        name=f"clustercheckd-{node.name}",
        command=command,
        pass_fds=[held.fileno()] if held else (),
        host=node.host,
    )
    try:
        service.wait_until_up()
        yield service
    finally:
        service.process.kill()


def without_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return environ without the variables that configure clustercheckd."""
    prefixes = ("MYSQL_", "CLUSTERCHECK_", "AVAILABLE_WHEN_", "MAX_", "MIN_")
    others = ("DEFAULTS_EXTRA_FILE", "ERR_FILE", "LISTEN_FDS", "LISTEN_PID")
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(prefixes) and name not in others
    }


def read_to_end(connection: socket.socket) -> bytes:
    """Read until the peer closes the connection. Raises AssertionError above 1 MiB."""
    received = b""
    while chunk := connection.recv(65536):
        received += chunk
        if len(received) > _LIMIT_BYTES:
            raise AssertionError("the server sends without end")
    return received
