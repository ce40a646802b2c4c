"""A mock MySQL server, for what no real one here shows: PXC's variables, and broken peers."""

import contextlib
import itertools
import re
import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from app.verdict.node_state import STATUS_VARIABLES, SYSTEM_VARIABLES
from harness.certificates import Certificate
from harness.ports import LOOPBACK
from tests.real_rows import SYNCED

Value = str | bytes
"""A variable's value."""

SYNCED_STATUS: Mapping[str, str] = {
    name: value for name, value in SYNCED.items() if name.lower() in STATUS_VARIABLES
}
SYNCED_VARIABLES: Mapping[str, str] = {
    name.lower(): value
    for name, value in SYNCED.items()
    if name.lower() in SYSTEM_VARIABLES
}

OK = b"\x00\x00\x00\x02\x00\x00\x00"
EOF = b"\xfe\x00\x00\x02\x00"
COM_QUIT = 1
READ_IN_SYNC = "SELECT 1"
_SELECTED: Mapping[Value, str] = {"ON": "1", "OFF": "0"}
CAPABILITIES = (
    0x0008_A20D  # 4.1 protocol, secure connection, plugin authentication, no TLS
)
TLS_CAPABILITIES = CAPABILITIES | 0x800


def error(number: int, text: str = "message of the server") -> bytes:
    """Make an error packet."""
    return b"\xff" + struct.pack("<H", number) + b"#HY000" + text.encode()


def packet(number: int, payload: bytes) -> bytes:
    """Put the header before a payload: its length, and the packet's number in the exchange."""
    return struct.pack("<I", len(payload))[:3] + bytes([number]) + payload


def greeting(
    plugin: str = "mysql_native_password", capabilities: int = CAPABILITIES
) -> bytes:
    """Make the first packet of the server."""
    return (
        b"\x0a8.0.36-fake\0"
        + struct.pack("<I", 1)
        + b"saltsalt\0"
        + struct.pack("<HBHHB", capabilities & 0xFFFF, 45, 2, capabilities >> 16, 21)
        + bytes(10)
        + b"saltsaltsalt\0"
        + plugin.encode()
        + b"\0"
    )


def auth_switch(plugin: str) -> bytes:
    """Make the packet that asks for another authentication plugin."""
    return b"\xfe" + plugin.encode() + b"\0" + b"s" * 20 + b"\0"


def table(columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> bytes:
    """Make the packets of a result, numbered from 1 as those of every answer to a statement."""
    definition = b"\0\x0c" + struct.pack("<HIBHB", 45, 1024, 253, 0, 0) + b"\0\0"
    payloads = [
        bytes([len(columns)]),
        *(b"\x03def\0\0\0" + _string(column) + definition for column in columns),
        EOF,
        *(b"".join(map(_string, row)) for row in rows),
        EOF,
    ]
    return b"".join(
        packet(number % 256, payload) for number, payload in enumerate(payloads, 1)
    )


def shown(values: Mapping[str, Value]) -> bytes:
    """Make the answer to a SHOW: names and values."""
    return table(("Variable_name", "Value"), values.items())


def selected(statement: str, variables: Mapping[str, Value]) -> bytes:
    """Make the answer to a SELECT of system variables: a row, or error 1193."""
    names = re.findall(r"@@global\.(\w+)", statement)
    if unknown := [name for name in names if name not in variables]:
        return packet(1, error(1193, f"Unknown system variable '{unknown[0]}'"))
    return table(
        names, [[_SELECTED.get(variables[name], variables[name]) for name in names]]
    )


def answer_to(
    statement: str, status: Mapping[str, Value], variables: Mapping[str, Value]
) -> bytes:
    """Make a node's answer to a statement. As PXC, it refuses each SELECT while it is not ready."""
    if statement.startswith("SHOW STATUS"):
        return shown(status)
    if statement.startswith("SHOW GLOBAL VARIABLES"):
        return shown(variables)
    if not statement.startswith("SELECT"):
        return packet(1, OK)
    is_ready = status.get("wsrep_ready", "ON") == "ON"
    if not is_ready or variables.get("wsrep_reject_queries", "NONE") != "NONE":
        return packet(1, error(1047))
    if statement == READ_IN_SYNC:
        return table(["1"], [["1"]])
    return selected(statement, variables)


def _string(value: Value) -> bytes:
    encoded = value if isinstance(value, bytes) else value.encode()
    return bytes([len(encoded)]) + encoded


def server_context(certificate: Certificate) -> ssl.SSLContext:
    """Make a TLS server with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.cert, certificate.key)
    return context


class Peer:
    """One connection, as the server sees it."""

    def __init__(self, connection: socket.socket, statements: list[str]) -> None:
        self.connection = connection
        self._statements = statements
        self._sequence = 0

    def send(self, payload: bytes) -> None:
        """Send one packet."""
        self.connection.sendall(packet(self._sequence, payload))
        self._sequence = (self._sequence + 1) % 256

    def receive(self) -> bytes:
        """Read one packet; empty at the end of the connection."""
        header = self._exactly(4)
        if not header:
            return b""
        self._sequence = (header[3] + 1) % 256
        return self._exactly(int.from_bytes(header[:3], "little"))

    def greet(
        self, plugin: str = "mysql_native_password", capabilities: int = CAPABILITIES
    ) -> None:
        """Send the handshake."""
        self.send(greeting(plugin, capabilities))

    def start_tls(self, context: ssl.SSLContext) -> None:
        """Greet, offer TLS, and go on within it."""
        self.greet(capabilities=TLS_CAPABILITIES)
        self.receive()
        self.connection = context.wrap_socket(self.connection, server_side=True)

    def log_in(self) -> None:
        """Greet and let anybody in."""
        self.greet()
        self.receive()
        self.send(OK)

    def answer_queries(
        self,
        status: Mapping[str, Value] = SYNCED_STATUS,
        variables: Mapping[str, Value] = SYNCED_VARIABLES,
        *,
        statements: int | None = None,
        answers: Mapping[str, bytes] = MappingProxyType({}),
        hangs_at: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Answer what the poller sends, until it goes or has sent so many statements.

        answers: by the beginnings of statements, where they differ from those of a healthy node;
        after an empty one, the server goes. hangs_at: whether to answer nothing from this statement
        on.
        """
        for _ in itertools.count() if statements is None else range(statements):
            command = self.receive()
            if not command or command[0] == COM_QUIT:
                break
            statement = command[1:].decode()
            self._statements.append(statement)
            if hangs_at(statement):
                self.hang()
                break
            given = [answers[start] for start in answers if statement.startswith(start)]
            answer = (given or [answer_to(statement, status, variables)])[0]
            if not answer:
                break
            self.connection.sendall(answer)

    def poll_once(self, statements: int = 3) -> None:
        """Let the client in, and answer the three statements of its first poll, or fewer."""
        self.log_in()
        self.answer_queries(statements=statements)

    def hang(self) -> None:
        """Keep the connection and say nothing until the peer goes."""
        while self.connection.recv(65536):
            pass

    def _exactly(self, count: int) -> bytes:
        received = b""
        while len(received) < count:
            chunk = self.connection.recv(count - len(received))
            if not chunk:
                return b""
            received += chunk
        return received


Behaviour = Callable[[Peer], None]
Address = tuple[str, int] | str


class FakeMySQL(socketserver.ThreadingTCPServer):
    """Runs a behaviour for each connection, and keeps the statements answered.

    The behaviour may be replaced meanwhile. address: a host, and 0 for a free port; or the path of
    a unix socket.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, behaviour: Behaviour, address: Address = (LOOPBACK, 0)) -> None:
        self.behaviour = behaviour
        self.connections = 0
        self.statements: list[str] = []
        self.sockets: set[socket.socket] = set()
        self.address_family = (
            socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        )
        super().__init__(address, _Handler)  # type: ignore[arg-type]
        if self.address_family == socket.AF_INET:
            # The second of two answers would wait for the client to acknowledge the first.
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.server_address[1])

    @property
    def open(self) -> int:
        """How many connections are open."""
        return len(self.sockets)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Accept connections, which wait until then."""
        thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.02}
        )
        thread.start()
        try:
            yield
        finally:
            self.shutdown()
            thread.join()

    def drop_connections(self) -> None:
        """Hang up on everybody, as a KILL of each session does."""
        for connection in list(self.sockets):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def hang_all(self) -> None:
        """Answer nobody any more, those connected included."""
        self.behaviour = Peer.hang
        self.drop_connections()


class _Handler(socketserver.BaseRequestHandler):
    server: FakeMySQL

    def handle(self) -> None:
        peer = Peer(self.request, self.server.statements)
        self.server.sockets.add(self.request)
        self.server.connections += 1
        # The poller hangs up on its deadline, whatever the behaviour is about to say.
        with contextlib.suppress(OSError):
            try:
                self.server.behaviour(peer)
            finally:
                self.server.sockets.discard(self.request)
                # TLS is a socket of its own.
                peer.connection.close()


@contextmanager
def fake_mysql(
    behaviour: Behaviour, address: Address = (LOOPBACK, 0)
) -> Iterator[FakeMySQL]:
    """Serve a behaviour."""
    with FakeMySQL(behaviour, address) as server, server.serving():
        yield server


def galera(
    status: Mapping[str, Value] | None = None,
    variables: Mapping[str, Value] | None = None,
    **differing: Any,  # noqa: ANN401 (those of answer_queries)
) -> Behaviour:
    """Behave like a Synced node, but for the values and answers given."""

    def behaviour(peer: Peer) -> None:
        peer.log_in()
        values = (
            {**SYNCED_STATUS, **(status or {})},
            {**SYNCED_VARIABLES, **(variables or {})},
        )
        peer.answer_queries(*values, **differing)

    return behaviour


def says(data: bytes) -> Behaviour:
    """Send bytes in place of a greeting, and hang."""

    def behaviour(peer: Peer) -> None:
        peer.connection.sendall(data)
        peer.hang()

    return behaviour


def waits_for(event: threading.Event, then: Behaviour) -> Behaviour:
    """Say nothing until an event has happened."""

    def behaviour(peer: Peer) -> None:
        event.wait(20)
        then(peer)

    return behaviour


def reset(connection: socket.socket) -> None:
    """Close with a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def greets_then(*payloads: bytes) -> Behaviour:
    """Greet, answer the login and what follows with one packet each, and hang."""

    def behaviour(peer: Peer) -> None:
        peer.greet()
        for payload in payloads:
            peer.receive()
            peer.send(payload)
        peer.hang()

    return behaviour
