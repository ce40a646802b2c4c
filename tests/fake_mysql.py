"""A hand-written MySQL server, for what no real one here can be brought to show: PXC's variables, and broken peers."""

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

from harness.certificates import Certificate

Value = str | bytes
"""A variable's value."""

SYNCED_STATUS = {
    "wsrep_local_state": "4",
    "wsrep_local_state_comment": "Synced",
    "wsrep_cluster_status": "Primary",
    "wsrep_ready": "ON",
    "wsrep_connected": "ON",
    "wsrep_cluster_size": "3",
    "wsrep_local_index": "0",
    "wsrep_local_recv_queue": "0",
    "Threads_connected": "5",
}
SYNCED_VARIABLES = {
    "wsrep_on": "ON",
    "wsrep_provider": "/usr/lib/galera4/libgalera_smm.so",
    "wsrep_desync": "OFF",
    "wsrep_reject_queries": "NONE",
    "read_only": "OFF",
    "skip_networking": "OFF",
    "max_connections": "151",
}

OK = b"\x00\x00\x00\x02\x00\x00\x00"
EOF = b"\xfe\x00\x00\x02\x00"
_COM_QUIT = 1
_SELECTED: Mapping[Value, str] = {"ON": "1", "OFF": "0"}
_ESTABLISHED = 1  # tcp(7), the first byte of TCP_INFO
CAPABILITIES = 0x0008_A20D  # 4.1 protocol, secure connection, plugin authentication, no TLS
TLS_CAPABILITIES = CAPABILITIES | 0x800


def error(number: int, text: str = "message of the server") -> bytes:
    """Make an error packet."""
    return b"\xff" + struct.pack("<H", number) + b"#HY000" + text.encode()


def packet(number: int, payload: bytes) -> bytes:
    """Put the header before a payload: its length, and the packet's number in the exchange."""
    return struct.pack("<I", len(payload))[:3] + bytes([number]) + payload


def auth_switch(plugin: str) -> bytes:
    """Make the packet that asks for another authentication plugin."""
    return b"\xfe" + plugin.encode() + b"\0" + b"s" * 20 + b"\0"


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

    def __init__(self, connection: socket.socket, statements: list[str] | None = None) -> None:
        self.connection = connection
        self._statements = [] if statements is None else statements
        self._sequence = 0
        self._held: bytearray | None = None

    def send(self, payload: bytes) -> None:
        """Send one packet."""
        data = packet(self._sequence, payload)
        if self._held is None:
            self.connection.sendall(data)
        else:
            self._held += data
        self._sequence = (self._sequence + 1) % 256

    @contextmanager
    def in_one_piece(self) -> Iterator[None]:
        """Hold what is sent, and send it in one piece: the other side then has all of it when it has any of it."""
        self._held = bytearray()
        yield
        held, self._held = self._held, None
        self.connection.sendall(held)

    def cut(self, count: int) -> None:
        """Drop the last bytes of what is held."""
        if self._held is not None:
            del self._held[-count:]

    def receive(self) -> bytes:
        """Read one packet; empty at the end of the connection."""
        header = self._exactly(4)
        if not header:
            return b""
        self._sequence = (header[3] + 1) % 256
        return self._exactly(int.from_bytes(header[:3], "little"))

    def number_from(self, number: int) -> None:
        """Set the number of the next packet."""
        self._sequence = number

    def greet(self, plugin: str = "mysql_native_password", capabilities: int = CAPABILITIES) -> None:
        """Send the handshake."""
        self.send(
            b"\x0a8.0.36-fake\0"
            + struct.pack("<I", 1)
            + b"saltsalt\0"
            + struct.pack("<HBHHB", capabilities & 0xFFFF, 45, 2, capabilities >> 16, 21)
            + bytes(10)
            + b"saltsaltsalt\0"
            + plugin.encode()
            + b"\0",
        )

    def start_tls(self, context: ssl.SSLContext, plugin: str = "mysql_native_password") -> None:
        """Greet, offer TLS, and go on within it."""
        self.greet(plugin, TLS_CAPABILITIES)
        self.receive()
        self.connection = context.wrap_socket(self.connection, server_side=True)

    def log_in(self) -> None:
        """Greet and let anybody in."""
        self.greet()
        self.receive()
        self.send(OK)

    def begin_session(self) -> None:
        """Let anybody in, and accept the two settings of a session."""
        self.log_in()
        for _ in range(2):
            self.receive()
            self.send(OK)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Value]]) -> None:
        """Send a result."""
        self.send(bytes([len(columns)]))
        for column in columns:
            self.send(
                b"\x03def\0\0\0" + _string(column) + b"\0\x0c" + struct.pack("<HIBHB", 45, 1024, 253, 0, 0) + b"\0\0",
            )
        self.send(EOF)
        for row in rows:
            self.send(b"".join(map(_string, row)))
        self.send(EOF)

    def rows(self, rows: Mapping[str, Value]) -> None:
        """Send what a SHOW answers: names and values."""
        self.table(("Variable_name", "Value"), rows.items())

    def selected(self, statement: bytes, variables: Mapping[str, Value]) -> None:
        """Send what a SELECT of system variables answers: a row in which ON is 1 and OFF is 0, or error 1193."""
        names = [name.decode() for name in re.findall(rb"@@global\.(\w+)", statement)]
        if unknown := [name for name in names if name not in variables]:
            self.send(error(1193, f"Unknown system variable '{unknown[0]}'"))
        else:
            self.table(names, [[_SELECTED.get(variables[name], variables[name]) for name in names]])

    def answer_queries(
        self,
        status: Mapping[str, Value],
        variables: Mapping[str, Value],
        refuses_select: Callable[[], bool] = lambda: False,
        *,
        statements: int | None = None,
    ) -> None:
        """Answer what the poller sends, until it goes or has sent so many statements.

        refuses_select: whether to refuse its SELECT, as PXC does on a node that is not ready.
        """
        for _ in itertools.count() if statements is None else range(statements):
            command = self.receive()
            if not command or command[0] == _COM_QUIT:
                break
            statement = command[1:]
            self._statements.append(statement.decode())
            if statement.startswith(b"SHOW STATUS"):
                self.rows(status)
            elif statement.startswith(b"SHOW GLOBAL VARIABLES"):
                self.rows(variables)
            elif not statement.startswith(b"SELECT"):
                self.send(OK)
            elif refuses_select():
                self.send(error(1047, "WSREP has not yet prepared node for application use"))
            else:
                self.selected(statement, variables)

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


class FakeMySQL(socketserver.ThreadingTCPServer):
    """Runs a behaviour for each connection, which may be replaced while it runs; keeps the statements answered."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, behaviour: Behaviour, port: int = 0) -> None:
        self.behaviour = behaviour
        self.connections = 0
        self.statements: list[str] = []
        self.most_open_connections = 0
        self._sockets: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.server_address[1])

    def drop_connections(self) -> None:
        """Hang up on everybody, as a KILL of each session does."""
        for connection in list(self._sockets):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def hang_all(self) -> None:
        """Answer nobody any more, those connected included."""
        self.behaviour = Peer.hang
        self.drop_connections()

    @contextmanager
    def counting(self, connection: socket.socket) -> Iterator[None]:
        """Count a connection for as long as it is handled."""
        self._sockets.add(connection)
        self.connections += 1
        # One that the client has hung up on is none of its connections, though it is still handled here.
        still_open = sum(map(_is_established, list(self._sockets)))
        self.most_open_connections = max(self.most_open_connections, still_open)
        try:
            yield
        finally:
            self._sockets.discard(connection)


def _is_established(connection: socket.socket) -> bool:
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO) == _ESTABLISHED
    except OSError:
        # TLS has taken its descriptor.
        return False


class _Handler(socketserver.BaseRequestHandler):
    server: FakeMySQL

    def handle(self) -> None:
        # A result is many small packets, each of which would wait for the client to acknowledge the one before.
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # The poller hangs up on its deadline, whatever the behaviour is about to say.
        peer = Peer(self.request, self.server.statements)
        with self.server.counting(self.request), contextlib.suppress(OSError):
            try:
                self.server.behaviour(peer)
            finally:
                # TLS is a socket of its own.
                peer.connection.close()


@contextmanager
def fake_mysql(behaviour: Behaviour) -> Iterator[FakeMySQL]:
    """Serve a behaviour on a free port."""
    with FakeMySQL(behaviour) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def galera(
    status: Mapping[str, Value] | None = None,
    variables: Mapping[str, Value] | None = None,
    refuses_select: Callable[[], bool] = lambda: False,
) -> Behaviour:
    """Behave like a Synced node, but for the values given."""

    def behaviour(peer: Peer) -> None:
        peer.log_in()
        values = ({**SYNCED_STATUS, **(status or {})}, {**SYNCED_VARIABLES, **(variables or {})})
        peer.answer_queries(*values, refuses_select)

    return behaviour


def says(*packets: bytes) -> Behaviour:
    """Send these packets, the first in place of the greeting, each further one after the client's turn."""

    def behaviour(peer: Peer) -> None:
        for number, packet in enumerate(packets):
            if number:
                peer.receive()
            peer.send(packet)
        peer.hang()

    return behaviour


def greets_then(*packets: bytes, plugin: str = "mysql_native_password") -> Behaviour:
    """Greet, and answer the login with these packets."""

    def behaviour(peer: Peer) -> None:
        peer.greet(plugin)
        for packet in packets:
            peer.receive()
            peer.send(packet)
        peer.hang()

    return behaviour


def sends_bytes(data: bytes, *, then_hangs: bool = False) -> Behaviour:
    """Send raw bytes, then close or hang."""

    def behaviour(peer: Peer) -> None:
        peer.connection.sendall(data)
        if then_hangs:
            peer.hang()

    return behaviour


def greets_and_is_silent(peer: Peer) -> None:
    """Greet, then never answer the login."""
    peer.greet()
    peer.hang()


def logs_in_and_is_silent(peer: Peer) -> None:
    """Let the client in, then answer nothing."""
    peer.log_in()
    peer.hang()
