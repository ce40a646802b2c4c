"""Mock nodes and clients, for hundreds of clients at once and faults on demand.

A mock node has two ports. The database port sends the node's name and keeps the session open. The
check port answers like clustercheckd beside a node in a given state. Clients read the name, so each
knows which node it is on. Each connection has a thread at both ends.
"""

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import responses

from harness.haproxy import Server
from harness.ports import LOOPBACK, Ports
from tests.fake_mysql import FakeMySQL, Peer, fake_mysql

_CLIENT_SECONDS = 10.0
_ARRIVAL_SECONDS = 0.02
_PLANNED = 404
"""What clustercheckd answers for a planned reason, with CLUSTERCHECK_DRAIN_STATUS=404."""

_STATES: dict[str, Callable[[str], int]] = {
    "synced": lambda _: 200,
    "donor": lambda target: 200 if "available_when_donor=1" in target else _PLANNED,
    "read-only": lambda target: 503 if "available_when_readonly=0" in target else 200,
    "lagging": lambda target: 503 if "max_recv_queue=" in target else _PLANNED,
    "disabled": lambda _: _PLANNED,
    "non-primary": lambda _: 503,
    "refusing": lambda _: 200,
    "killed": lambda _: 503,
}
"""The status that each state of a node answers to a check, by the question.

The first six are reasons of clustercheckd's. refusing: the database port is closed. killed: both
ports are.
"""


class MockNode:
    """One node, which is in one of the states of `_STATES`."""

    def __init__(self, ports: Ports, name: str) -> None:
        self.name = name
        self.state = "killed"
        self.holds_seconds = 0.0
        """How long it holds back the answer to a check."""
        self.checks: list[tuple[float, str]] = []
        """When HAProxy asked, and what."""
        self.server = Server(name, ports.free(), ports.free())
        self._listening: dict[str, ExitStack] = {}
        self._servers: list[FakeMySQL] = []

    def become(self, state: str) -> None:
        """Change the state.

        A port that opens is in the network namespace that this thread has entered.
        """
        self.state = state
        for kind, port, behaviour, closed_in in (
            ("clients", self.server.port, self._serve_client, {"refusing", "killed"}),
            ("checks", self.server.check_port, self._answer_check, {"killed"}),
        ):
            if state not in closed_in and kind not in self._listening:
                self._listening[kind] = exits = ExitStack()
                listening = fake_mysql(behaviour, (self.server.address, port))
                self._servers.append(exits.enter_context(listening))
            elif state in closed_in and kind in self._listening:
                self._listening.pop(kind).close()
        if state == "killed":
            for server in self._servers:
                server.drop_connections()

    def _serve_client(self, session: Peer) -> None:
        session.connection.sendall(self.name.encode())
        session.hang()

    def _answer_check(self, check: Peer) -> None:
        if request := check.connection.recv(4096).decode():
            question = request.split()[1]
            self.checks.append((time.monotonic(), question))
            time.sleep(self.holds_seconds)
            status = _STATES[self.state](question)
            headers = f"x-clustercheck-reason: {self.state}\r\ncontent-length: 0\r\n"
            check.connection.sendall(
                f"HTTP/1.1 {status} {responses[status]}\r\n{headers}\r\n".encode()
            )
            check.hang()


class Client(threading.Thread):
    """A client of HAProxy: when it asked, which node serves it since when, and its end."""

    def __init__(
        self, port: int, *, stays: bool, seconds: float = _CLIENT_SECONDS
    ) -> None:
        super().__init__(daemon=True)
        self.asked_at = time.monotonic()
        self.node: str | None = None
        self.served_at = self.ended_at = 0.0
        self.knows = threading.Event()
        """Set once it is served or turned away."""
        self._port = port
        self._stays = stays
        self._socket = socket.socket()
        self._socket.settimeout(seconds)
        self.start()

    @property
    def is_served(self) -> bool:
        """Whether it has a session."""
        return self.node is not None and not self.ended_at

    def run(self) -> None:
        """Connect, wait for the node's name, and hold the session if it stays."""
        with self._socket, suppress(OSError):
            self._socket.connect((LOOPBACK, self._port))
            if name := self._socket.recv(100).decode():
                self.node, self.served_at = name, time.monotonic()
                self.knows.set()
                if self._stays:
                    self._socket.settimeout(None)
                    _wait_for_end(self._socket)
        self.ended_at = time.monotonic()
        self.knows.set()

    def leave(self) -> None:
        """End the session."""
        _shut(self._socket)
        self.join()


class Clients:
    """Clients of one port of HAProxy."""

    def __init__(self, port: int) -> None:
        self._port = port

    def open(self, count: int = 1, *, seconds: float = _CLIENT_SECONDS) -> list[Client]:
        """Connect so many at the same moment, and hold their sessions.

        Each waits so long for a node.
        """
        clients = [
            Client(self._port, stays=True, seconds=seconds) for _ in range(count)
        ]
        for client in clients:
            client.knows.wait()
        return clients

    def landings(self, count: int = 1) -> Counter[str | None]:
        """Connect so many at the same moment, count where they land, and end their sessions."""
        clients = self.open(count)
        for client in clients:
            client.leave()
        return Counter(client.node for client in clients)

    def lands_on(self) -> str | None:
        """Name the node that one new client lands on; None where it lands on none."""
        (node,) = self.landings()
        return node

    @contextmanager
    def arriving(self) -> Iterator[list[Client]]:
        """Have one client after the other come and go while the block runs: those that came."""
        came: list[Client] = []
        ended = threading.Event()

        def arrive() -> None:
            while not ended.wait(_ARRIVAL_SECONDS):
                came.append(Client(self._port, stays=False))

        arrivals = threading.Thread(target=arrive)
        arrivals.start()
        try:
            yield came
        finally:
            ended.set()
            arrivals.join()
            for client in came:
                client.join()


def _shut(connection: socket.socket) -> None:
    """End what another thread waits for on a socket. That thread closes it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _wait_for_end(connection: socket.socket) -> None:
    while connection.recv(100):
        pass
