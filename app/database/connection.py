"""aiomysql's connection, made safe against hostile servers and slow peers.

It adds these guarantees to the driver's:

- If TLS is required, only the server's greeting is exchanged without it.
- The server cannot choose how the password is sent. clustercheckd answers only the plugins in `PLUGINS`, which send the
  password in clear text only within TLS or a unix socket.
- clustercheckd reads at most `MOST_BYTES` in a poll, before the login as well as after it.
- No answer is taken for the answer to another statement: before clustercheckd sends statements, nothing may be left
  unread, and each statement has one result.
- An answer that equals the last one to the same statement, byte for byte, is not parsed again: at rest that is most of
  the cost of a poll.
- `Connection.close` closes the connection at once, whatever the peer does.
"""

import asyncio
import contextlib
import getpass
import os
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

from pymysql.constants import CLIENT, COMMAND
from pymysql.protocol import MysqlPacket

from app.database.faults import PlainTextError, RefusedPluginError, TooManyBytesError, UnaskedBytesError
from app.database.login import Login
from app.database.resolver import connect_to_first
from app.node_state import Rows

# aiomysql calls getpass.getuser when it is imported. That raises OSError (KeyError before Python 3.13) if the user id
# has no passwd entry, as in a container with a random user id.
try:
    getpass.getuser()
except (KeyError, OSError):
    os.environ["LOGNAME"] = "unknown"
    import aiomysql

    del os.environ["LOGNAME"]
else:
    import aiomysql

PLUGINS = ("mysql_native_password", "caching_sha2_password", "sha256_password")
"""The supported authentication plugins. Plugins that need no answer, such as unix_socket, work without being listed."""

MOST_BYTES = 64 * 1024
"""How much a server may send over one connection in one poll. A login with its answers takes about 3 KiB."""

_CHUNK_BYTES = 16 * 1024
_MOST_STATEMENTS = 8
"""How many statements to remember. There are four, but the SELECT changes with the variables that the server has."""


_QUIT_SECONDS = 0.5
_QUIT = b"\x01\x00\x00\x00\x01"  # a packet of one byte, COM_QUIT


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer to a statement: the bytes received, and the rows that the driver made of them."""

    received: bytes
    rows: Rows


class Connection(aiomysql.Connection):  # type: ignore[misc]
    """One connection to a server, open from `to` until `quit` or `close`."""

    _reader: asyncio.StreamReader | None
    _writer: asyncio.StreamWriter | None
    _logging_in = False
    _bytes_left = MOST_BYTES
    _ahead = b""  # received, but not read by the driver yet

    def __init__(self, **options: object) -> None:
        super().__init__(**options)
        self._awaited: deque[str] = deque()
        self._received = bytearray()  # of the answer that the driver reads
        self._last_answers: dict[str, _Answer] = {}

    @classmethod
    async def to(cls, login: Login, addresses: Sequence[str] = ()) -> Self:
        """Connect to the login's socket, or to the first of its host's addresses that accepts, and log in.

        TLS verifies the name of the host. Raises any exception: the driver does not limit them to its own.
        """
        connection = cls.unopened(login)
        await connection.open(addresses)
        return connection

    @classmethod
    def unopened(cls, login: Login) -> Self:
        """Return a connection that `open` opens. After a failed login, it still has the server's greeting."""
        return cls(
            host=login.host,
            port=login.port,
            unix_socket=login.socket,
            user=login.username,
            # The driver encodes it as latin-1. The mysql client sends the terminal's bytes, nearly always UTF-8.
            password=login.password.encode("utf-8", "surrogateescape").decode("latin-1"),
            ssl=login.tls,
            # Both keep values as the bytes that the server sent; parse_node_state accepts any bytes.
            use_unicode=False,
            conv={},
            # The default would send SET AUTOCOMMIT=0.
            autocommit=None,
            program_name="clustercheckd",
        )

    async def open(self, addresses: Sequence[str] = ()) -> None:
        """Connect and log in, as `to` does."""
        try:
            await self._open(addresses)
        except BaseException:
            self.close()
            raise

    def begin_poll(self) -> None:
        """Begin a poll: allow the server another `MOST_BYTES`."""
        self._bytes_left = MOST_BYTES

    async def send(self, *statements: str) -> None:
        """Send statements without waiting for their answers: `next_rows` returns the rows of one after the other.

        Raises `UnaskedBytesError` if bytes of an earlier answer are left, or arrived since.
        """
        self._ensure_alive()
        if self._awaited or self._has_unread_bytes():
            raise UnaskedBytesError
        # In one write, so that the server wakes once.
        self._write_bytes(b"".join(map(_query, statements)))
        self._awaited.extend(statements)

    async def next_rows(self) -> Rows:
        """Return the rows of the next statement sent; none if it has no result."""
        statement = self._awaited.popleft()
        last = self._last_answers.get(statement)
        if last is not None and await self._receives(last.received):
            return last.rows
        # The packets of each answer are numbered from 1.
        self._next_seq_id = 1
        self._received.clear()
        await self._read_query_result()
        # A further result may arrive later, and would pass for the answer to the next statement.
        if self._result.has_next:
            raise UnaskedBytesError
        if len(self._last_answers) == _MOST_STATEMENTS:
            self._last_answers.clear()
        answer = _Answer(bytes(self._received), self._result.rows or ())
        self._last_answers[statement] = answer
        return answer.rows

    async def rows(self, statement: str) -> Rows:
        """Send a statement and return its rows; none if it has no result."""
        await self.send(statement)
        return await self.next_rows()

    async def quit(self) -> None:
        """Send COM_QUIT, so that the server does not log and count an aborted client, and close. Takes up to 0.5 s."""
        writer = self._writer
        if writer is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_QUIT_SECONDS):
                    writer.write(_QUIT)
                    writer.close()
                    await writer.wait_closed()
        self.close()

    def close(self) -> None:
        """Close the connection at once. The driver calls this too, on a fault or a cancellation."""
        writer, self._writer, self._reader = self._writer, None, None
        if writer is not None:
            # StreamWriter.close waits up to 30 s until the peer has ended TLS as well.
            writer.transport.abort()

    async def _open(self, addresses: Sequence[str]) -> None:
        # Replaces the driver's own `_connect`. That closes a failed connection without aborting it, and its timeout may
        # swallow our deadline on Python 3.11 (python/cpython#86296).
        if self._unix_socket:
            self._reader, self._writer = await asyncio.open_unix_connection(self._unix_socket)
            self._secure = True
        else:
            self._reader, self._writer = await connect_to_first(addresses, self._port)
            self._set_keep_alive()
        self._next_seq_id = 0
        await self._get_server_information()
        await self._request_authentication()

    async def _request_authentication(self) -> None:
        # If the greeting offers no TLS, aiomysql would continue in plain text and send the password.
        if self._ssl_context is not None and not self.server_capabilities & CLIENT.SSL:
            raise PlainTextError
        # The greeting names the server's default plugin, which need not be the account's. If we do not support it,
        # answer with the oldest plugin: a server that needs another one then sends a request to switch.
        if self._server_auth_plugin not in PLUGINS:
            self._client_auth_plugin = PLUGINS[0]
        self._logging_in = True
        await super()._request_authentication()
        self._logging_in = False

    def _has_unread_bytes(self) -> bool:
        """Return whether bytes, or the end of the connection, wait to be read."""
        if self._ahead:
            return True
        # StreamReader has no method for this. Its `read` returns at once if something waits, and pauses otherwise.
        reading = self._reader.read(1)  # type: ignore[union-attr]
        try:
            reading.send(None)
        except StopIteration:
            return True
        reading.close()
        return False

    async def _receives(self, answer: bytes) -> bool:
        """Wait for the next bytes, and return whether they are this answer. If not, leave them to the driver."""
        while len(self._ahead) < len(answer) and answer.startswith(self._ahead):
            try:
                received = await self._reader.read(_CHUNK_BYTES)  # type: ignore[union-attr]
            except asyncio.CancelledError:
                # As the driver does: the rest of the answer would pass for the answer to the next statement.
                self.close()
                raise
            if not received:
                return False
            self._ahead += received
        if not self._ahead.startswith(answer):
            return False
        self._charge(len(answer))
        self._ahead = self._ahead[len(answer) :]
        return True

    async def _read_bytes(self, num_bytes: int) -> bytes:
        # The driver reads everything through this method. asyncio buffers at most 128 KiB of what was not read yet.
        self._charge(num_bytes)
        read, self._ahead = self._ahead[:num_bytes], self._ahead[num_bytes:]
        if len(read) < num_bytes:
            read += await super()._read_bytes(num_bytes - len(read))
        self._received += read
        return read

    def _charge(self, count: int) -> None:
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise TooManyBytesError

    def _read_packet(self, packet_type: type[MysqlPacket] = MysqlPacket) -> Coroutine[Any, Any, MysqlPacket]:
        return self._read_login_packet() if self._logging_in else super()._read_packet(packet_type)

    async def _read_login_packet(self) -> MysqlPacket:
        packet: MysqlPacket = await super()._read_packet()
        if packet.is_auth_switch_request():
            data: bytes = packet.get_all_data()  # type: ignore[no-untyped-call]
            name, end, _ = data[1:].partition(b"\0")
            # Without a plugin name the driver would use the authentication from before MySQL 4.1, whose hash is broken.
            if not end or not self.server_capabilities & CLIENT.PLUGIN_AUTH:
                name = b"mysql_old_password"
            if name.decode("latin-1") not in PLUGINS:
                raise RefusedPluginError(name)
        return packet


@lru_cache(maxsize=_MOST_STATEMENTS)
def _query(statement: str) -> bytes:
    """Return a statement as a packet: its length in three bytes, its number 0, and COM_QUERY."""
    payload = bytes([COMMAND.COM_QUERY]) + statement.encode()
    return len(payload).to_bytes(3, "little") + b"\0" + payload
