"""aiomysql's connection as this service uses it: one login, rows as the server sent them, let go of at once.

What the driver leaves open is closed here:

- Where TLS is asked for, nothing but the greeting is exchanged without it.
- The server does not choose how the password is sent: only what is in `PLUGINS` is answered, none of which sends it in
  clear text but within TLS or a unix socket.
- A server sends `MOST_BYTES` in an observation at the most, before the login as well as after it.
- A connection that is given up is gone at once, whatever its peer does.
"""

import asyncio
import contextlib
import getpass
import os
from collections.abc import Coroutine, Sequence
from typing import Any, Self

from pymysql.constants import CLIENT
from pymysql.protocol import MysqlPacket

from app.database.faults import PlainTextError, RefusedPluginError, TooManyBytesError
from app.database.login import Login
from app.node_state import Cell

# aiomysql asks for the user's name as it is imported, which ends in an OSError (Python 3.13 on) where the user id has
# no passwd entry, as in a container with a random one.
try:
    getpass.getuser()
except (KeyError, OSError):
    os.environ["LOGNAME"] = "unknown"
    import aiomysql

    del os.environ["LOGNAME"]
else:
    import aiomysql

PLUGINS = ("mysql_native_password", "caching_sha2_password", "sha256_password")
"""The authentication plugins that are answered. Those that ask for nothing, such as unix_socket, go without saying."""

MOST_BYTES = 64 * 1024
"""What a server may send over one connection in one observation. Login and answers take some 3 KiB."""

_QUIT_SECONDS = 0.5
_QUIT = b"\x01\x00\x00\x00\x01"  # a packet of one byte, COM_QUIT


class Connection(aiomysql.Connection):  # type: ignore[misc]
    """One connection to a server, from `to` until `quit` or `close`."""

    _reader: asyncio.StreamReader | None
    _writer: asyncio.StreamWriter | None
    _logging_in = False
    _bytes_left = MOST_BYTES

    @classmethod
    async def to(cls, login: Login, addresses: Sequence[str] = ()) -> Self:
        """Connect to the login's socket, or to the first of its host's addresses that can be connected to, and log in.

        Raises whatever the driver lets through. TLS is verified by the name of the host.
        """
        connection = cls.unopened(login)
        await connection.open(addresses)
        return connection

    @classmethod
    def unopened(cls, login: Login) -> Self:
        """Return a connection that is yet to be opened, which keeps what the server says of itself meanwhile."""
        return cls(
            host=login.host,
            port=login.port,
            unix_socket=login.socket,
            user=login.username,
            # The driver sends latin-1, the mysql client what the terminal sends: UTF-8 nearly everywhere.
            password=login.password.encode("utf-8", "surrogateescape").decode("latin-1"),
            ssl=login.tls,
            # Both keep values as the bytes the server sent; parse_node_state copes with any.
            use_unicode=False,
            conv={},
            # The default would send a SET AUTOCOMMIT=0.
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

    def begin_observation(self) -> None:
        """Let the server send `MOST_BYTES` again."""
        self._bytes_left = MOST_BYTES

    async def rows(self, statement: str) -> list[tuple[Cell, ...]]:
        """Run a statement; give its rows, none where it has no result."""
        cursor = await self.cursor()
        await cursor.execute(statement)
        return list(await cursor.fetchall() or ())

    async def quit(self) -> None:
        """Say goodbye to the server, so that it does not log and count an aborted client; raises nothing."""
        writer = self._writer
        if writer is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_QUIT_SECONDS):
                    writer.write(_QUIT)
                    writer.close()
                    await writer.wait_closed()
        self.close()

    def close(self) -> None:
        """Give the connection up; the driver does so as well, on a fault or a cancellation."""
        writer, self._writer, self._reader = self._writer, None, None
        if writer is not None:
            # A plain close waits until the peer has ended TLS as well, up to 30 s where it never does.
            writer.transport.abort()

    async def _open(self, addresses: Sequence[str]) -> None:
        # In place of the driver's own way to connect, which leaves a connection that failed to a plain close, and has
        # a timeout that on Python 3.11 may swallow our deadline (python/cpython#86296).
        if self._unix_socket:
            self._reader, self._writer = await asyncio.open_unix_connection(self._unix_socket)
            self._secure = True
        else:
            self._reader, self._writer = await _connect_to_first(addresses, self._port)
            self._set_keep_alive()
        self._next_seq_id = 0
        await self._get_server_information()
        await self._request_authentication()

    async def _request_authentication(self) -> None:
        # aiomysql goes on in plain text, password included, if the greeting does not offer TLS.
        if self._ssl_context is not None and not self.server_capabilities & CLIENT.SSL:
            raise PlainTextError
        # The greeting names the server's default, which need not be the account's. One that is none of ours is answered
        # as the oldest clients would; a server that insists on it then asks for it by a switch.
        if self._server_auth_plugin not in PLUGINS:
            self._client_auth_plugin = PLUGINS[0]
        self._logging_in = True
        await super()._request_authentication()
        self._logging_in = False

    def _read_bytes(self, num_bytes: int) -> Coroutine[Any, Any, bytes]:
        # All that the driver reads comes through here. What it has not asked for yet, asyncio holds to 128 KiB.
        self._bytes_left -= num_bytes
        if self._bytes_left < 0:
            raise TooManyBytesError
        return super()._read_bytes(num_bytes)  # type: ignore[no-any-return]

    def _read_packet(self, packet_type: type[MysqlPacket] = MysqlPacket) -> Coroutine[Any, Any, MysqlPacket]:
        return self._read_login_packet() if self._logging_in else super()._read_packet(packet_type)

    async def _read_login_packet(self) -> MysqlPacket:
        packet: MysqlPacket = await super()._read_packet()
        if packet.is_auth_switch_request():
            data: bytes = packet.get_all_data()  # type: ignore[no-untyped-call]
            name, end, _ = data[1:].partition(b"\0")
            # Without a name the driver would answer as to servers before 5.5, by a hash that anybody can undo.
            if not end or not self.server_capabilities & CLIENT.PLUGIN_AUTH:
                name = b"mysql_old_password"
            if name.decode("latin-1") not in PLUGINS:
                raise RefusedPluginError(name)
        return packet


async def _connect_to_first(addresses: Sequence[str], port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    *others, last = addresses
    for address in others:
        with contextlib.suppress(OSError):
            return await asyncio.open_connection(address, port)
    return await asyncio.open_connection(last, port)
