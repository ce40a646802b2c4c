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
from harness.waiting import meanwhile
from tests.fake_mysql import Behaviour, FakeMySQL, Peer, fake_mysql

CROWD = 100
"""How many clients connect at the same moment, to find one that strays."""

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
        self._listening: dict[Behaviour, ExitStack] = {}
        self._servers: list[FakeMySQL] = []

    def become(self, state: str) -> None:
        """Change the state.

        A port that opens is in the network namespace that this thread has entered.
        """
        self.state = state
        for port, behaviour, closed_in in (
            (self.server.port, self._serve_client, {"refusing", "killed"}),
            (self.server.check_port, self._answer_check, {"killed"}),
        ):
            if state not in closed_in and behaviour not in self._listening:
                self._listening[behaviour] = exits = ExitStack()
                listening = fake_mysql(behaviour, (self.server.address, port))
                self._servers.append(exits.enter_context(listening))
            elif state in closed_in and behaviour in self._listening:
                self._listening.pop(behaviour).close()
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
            answer = (
                f"HTTP/1.1 {status} {responses[status]}\r\ncontent-length: 0\r\n"
                f"x-clustercheck-reason: {self.state}\r\n\r\n"
            )
            check.connection.sendall(answer.encode())
            check.hang()


class Client(threading.Thread):
    """A client of HAProxy: which node serves it, since when, and its end."""

    def __init__(self, port: int, *, stays: bool) -> None:
        super().__init__(daemon=True)
        self.node: str | None = None
        self.served_at = self.ended_at = 0.0
        self.knows = threading.Event()
        """Set once it is served or turned away."""
        self._port = port
        self._stays = stays
        self._socket = socket.socket()
        self._socket.settimeout(_CLIENT_SECONDS)
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
                self._socket.settimeout(None)
                while self._stays and self._socket.recv(100):
                    pass
        self.ended_at = time.monotonic()
        self.knows.set()

    def leave(self) -> None:
        """End the session. The client's own thread closes the socket."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self.join()


class Clients:
    """Clients of one port of HAProxy."""

    def __init__(self, port: int) -> None:
        self._port = port

    def connect(self) -> Client:
        """Connect one that stays, without waiting for a node."""
        return Client(self._port, stays=True)

    def open(self, count: int) -> list[Client]:
        """Connect so many at the same moment, and hold their sessions."""
        clients = [self.connect() for _ in range(count)]
        for client in clients:
            client.knows.wait()
        return clients

    def landings(self, count: int = CROWD) -> Counter[str | None]:
        """Connect so many at the same moment, count where they land, and end their sessions."""
        clients = self.open(count)
        for client in clients:
            client.leave()
        return Counter(client.node for client in clients)

    def lands_on(self, count: int = CROWD) -> set[str | None]:
        """Name the nodes that so many clients land on; None where some land on none."""
        return set(self.landings(count))

    @contextmanager
    def arriving(self) -> Iterator[list[Client]]:
        """Have one client after the other come and go while the block runs: those that came."""
        came: list[Client] = []

        def arrive(_: threading.Event) -> None:
            came.append(Client(self._port, stays=False))

        with meanwhile(arrive, _ARRIVAL_SECONDS):
            yield came
        for client in came:
            client.join()
