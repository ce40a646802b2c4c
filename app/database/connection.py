"""aiomysql's connection, made safe against hostile servers and slow peers.

- If TLS is required, only the server's greeting is exchanged without it.
- Only the plugins in `PLUGINS` get the password, in clear text only within TLS or a unix socket.
- At most `MOST_BYTES` of an answer are read.
- No answer is taken for that to another statement.
"""

import asyncio
import contextlib
import importlib
import os
import socket
from collections.abc import Sequence
from typing import Self

from pymysql import _auth
from pymysql.constants import CLIENT
from pymysql.err import MySQLError
from pymysql.protocol import MysqlPacket

from app.database import faults
from app.database.resolver import Streams, connect_to_first
from app.database.rows import Rows
from app.deadline import deadline
from app.settings.database import SYSTEMD, Target

# aiomysql calls getpass.getuser: since Python 3.13, OSError for a user without a passwd entry.
try:
    import aiomysql
except OSError:
    os.environ["LOGNAME"] = "unknown"
    import aiomysql

PLUGINS = ("mysql_native_password", "caching_sha2_password", "sha256_password")
"""unix_socket needs no answer."""

MOST_BYTES = 64 * 1024
"""In a login, or in answer to statements sent together."""

_DECLINE_SECONDS = 0.4
"""PAM takes 2 s to refuse, and a poll has 0.8 s."""

_ACCEPT_QUEUE_SECONDS = 0.01
_QUIT_SECONDS = 0.5
_QUIT = b"\x01\x00\x00\x00\x01"  # a packet of one byte, COM_QUIT
_KEEPALIVE = {
    socket.TCP_KEEPIDLE: 10,  # seconds
    socket.TCP_KEEPINTVL: 5,  # seconds
    socket.TCP_KEEPCNT: 3,
    socket.TCP_USER_TIMEOUT: 25_000,  # milliseconds
}
"""A session notices in half a minute that its peer is lost (tcp(7))."""


def prepare_for(target: Target | None) -> None:
    """Import what a login there may need: over plain TCP, the password may have to be encrypted."""
    needs_none = target is not None and (target.socket or target.tls)
    if not (needs_none or hasattr(_auth, "serialization")):
        import cryptography.hazmat.backends.openssl.backend  # noqa: F401, PLC0415 (as above)

        importlib.reload(_auth)


class Connection(aiomysql.Connection):  # type: ignore[misc]
    """One connection, from `open` until `quit`.

    peer: the other end, and the account. is_elsewhere: whether the server is on another host.
    """

    peer: object = None
    is_elsewhere = False
    _socket: socket.socket | None = None
    _reader: asyncio.StreamReader | None
    _writer: asyncio.StreamWriter | None
    _logging_in = False
    _bytes_left = MOST_BYTES

    def __init__(self, target: Target, addresses: Sequence[str] = ()) -> None:
        prepare_for(target)
        super().__init__(
            host=target.host,
            port=target.port,
            unix_socket=target.socket,
            user=target.username,
            # The driver encodes it as latin-1, the mysql client as UTF-8.
            password=target.password.encode("utf-8", "surrogateescape").decode(
                "latin-1"
            ),
            ssl=target.tls,
            # Both keep values as bytes.
            use_unicode=False,
            conv={},
            program_name="clustercheckd",
        )
        self.target = target
        self._addresses = addresses

    async def open(self) -> Self:
        """Connect to the socket or the first address that accepts, and log in. Raises anything."""
        # The driver's `_connect` may swallow our deadline on Python 3.11 (python/cpython#86296).
        if self._unix_socket:
            self._reader, self._writer = await _open_unix_connection(self._unix_socket)
            self._secure = True
        else:
            self._reader, self._writer = await connect_to_first(
                self._addresses, self._port
            )
            connected = self._writer.get_extra_info("socket")
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE.items():
                connected.setsockopt(socket.IPPROTO_TCP, name, value)
            # The kernel connects to most addresses of its own from that address, and to no other. A
            # container's server may have to be elsewhere.
            ends = map(self._writer.get_extra_info, ("sockname", "peername"))
            # One whose peer has closed it has none.
            hosts = [end[0] for end in ends if end]
            is_here = len(set(hosts)) < 2 or _is_own(hosts[-1])  # noqa: PLR2004
            self.is_elsewhere = not is_here and SYSTEMD.is_dir()
        self.peer = self._writer.get_extra_info("peername"), self.target.username
        # The driver closes its own where it fails, and once TLS begins.
        self._socket = self._writer.get_extra_info("socket").dup()
        self._next_seq_id = 0
        await self._get_server_information()
        await self._request_authentication()
        return self

    async def answers(self, *statements: str) -> list[Rows | MySQLError]:
        """Send statements together; return the rows of each, or the server's error."""
        self._bytes_left = MOST_BYTES
        self._ensure_alive()
        await self._check_nothing_unread()
        # In one write, so that the server wakes once.
        self._write_bytes(b"".join(map(_query, statements)))
        return [await self._answer() for _ in statements]

    def close(self) -> None:
        """Use it no more. The driver calls this too. The server learns of it from `quit`."""
        writer, self._writer, self._reader = self._writer, None, None
        if writer is not None:
            # StreamWriter.close waits up to 30 s for the end of TLS.
            writer.transport.abort()

    async def quit(self) -> None:
        """Log out, and return once the server has ended the session: one that hangs keeps it.

        If this is cancelled, it is closed at once.
        """
        try:
            if self._writer is not None:
                # So that the server counts no aborted client. Over TLS, wait for its end.
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(_QUIT_SECONDS):
                        self._writer.write(_QUIT)
                        self._writer.close()
                        await self._writer.wait_closed()
                self.close()
            if self._socket is not None:
                await _end_of(self._socket)
        finally:
            self.close()
            if self._socket is not None:
                self._socket.close()

    async def _request_authentication(self) -> None:
        # aiomysql would send the password in plain text.
        if self._ssl_context is not None and not self.server_capabilities & CLIENT.SSL:
            raise faults.PlainTextError
        # The greeting names the server's default, which need not be the account's.
        if self._server_auth_plugin not in PLUGINS:
            self._client_auth_plugin = PLUGINS[0]
        self._logging_in = True
        await super()._request_authentication()
        self._logging_in = False

    async def _check_nothing_unread(self) -> None:
        try:
            async with asyncio.timeout(0):
                unread = await self._reader.read(1)  # type: ignore[union-attr]
        except TimeoutError:
            return
        raise faults.UnaskedBytesError if unread else ConnectionResetError

    async def _answer(self) -> Rows | MySQLError:
        # The packets of each answer are numbered from 1.
        self._next_seq_id = 1
        try:
            await self._read_query_result()
        except MySQLError as fault:
            if not faults.is_error_of_server(fault):
                raise
            return fault
        if self._result.has_next:
            raise faults.UnaskedBytesError
        return self._result.rows or ()

    async def _read_bytes(self, num_bytes: int) -> bytes:
        # The driver reads everything here.
        self._bytes_left -= num_bytes
        if self._bytes_left < 0:
            raise faults.UnaskedBytesError
        read: bytes = await super()._read_bytes(num_bytes)
        return read

    async def _read_packet(
        self, packet_type: type[MysqlPacket] = MysqlPacket
    ) -> MysqlPacket:
        packet: MysqlPacket = await super()._read_packet(packet_type)
        if self._logging_in and packet.is_auth_switch_request():
            packet = await self._request_for_our_plugin(packet)
        return packet

    async def _request_for_our_plugin(self, packet: MysqlPacket) -> MysqlPacket:
        """Decline other plugins; return the request for one of ours, or that none is needed.

        MariaDB's accounts may have several (IDENTIFIED VIA ... OR ...).
        """
        try:
            async with deadline(_DECLINE_SECONDS):
                while not packet.is_ok_packet():
                    if packet.is_auth_switch_request():
                        data: bytes = packet.get_all_data()  # type: ignore[no-untyped-call]
                        name, end, _ = data[1:].partition(b"\0")
                        # The driver would use the broken hash from before MySQL 4.1.
                        if not end or not self.server_capabilities & CLIENT.PLUGIN_AUTH:
                            name = b"mysql_old_password"
                        if name.decode("latin-1") in PLUGINS:
                            break
                    # Before the server goes on, parsec sends a salt, and PAM a question.
                    self.write_packet(b"")
                    packet = await super()._read_packet()
        except Exception:  # noqa: BLE001 (whatever the server does)
            raise faults.RefusedPluginError(name) from None
        return packet


def _is_own(address: str) -> bool:
    """Return whether it is an IPv4 address of this host.

    The kernel connects to 127.0.1.1, Debian's address for the host's name, from 127.0.0.1, and to a
    second address of a network from the first. In IPv6, it connects to each from itself.
    """
    if ":" in address:
        return False
    with contextlib.suppress(OSError), socket.socket(type=socket.SOCK_DGRAM) as unsent:
        unsent.bind((address, 0))
        # With ip_nonlocal_bind, only this fails. Nothing is sent.
        unsent.connect((address, 9))
        return True
    return False


async def _open_unix_connection(path: str) -> Streams:
    connecting = socket.socket(socket.AF_UNIX)
    try:
        connecting.setblocking(False)  # noqa: FBT003 (socket's own signature)
        while True:
            # asyncio takes a full accept queue for a connection that is being made.
            with contextlib.suppress(BlockingIOError):
                connecting.connect(path)
                return await asyncio.open_unix_connection(sock=connecting)
            await asyncio.sleep(_ACCEPT_QUEUE_SECONDS)
    except BaseException:
        connecting.close()
        raise


async def _end_of(connected: socket.socket) -> None:
    """Send nothing more, and read what the peer sends, but not without bound, until its end."""
    loop, received = asyncio.get_running_loop(), 0
    with contextlib.suppress(OSError):
        connected.setblocking(False)  # noqa: FBT003 (socket's own signature)
        connected.shutdown(socket.SHUT_WR)
        while received < MOST_BYTES and (data := await loop.sock_recv(connected, 4096)):
            received += len(data)


def _query(statement: str) -> bytes:
    payload = b"\x03" + statement.encode()  # COM_QUERY
    return len(payload).to_bytes(4, "little") + payload
