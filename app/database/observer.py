"""The only code that speaks MySQL: one connection, one observation at a time, every failure a value.

Two SHOW statements are all that is sent, because they are what a node that is not ready answers on every server:
MariaDB refuses BEGIN, COMMIT and prepared statements there, Percona XtraDB Cluster even a SELECT without a table
(error 1047). An account with USAGE only may run both.
"""

import asyncio
import contextlib
import getpass
import os
import re
import socket
import ssl
import time
from collections.abc import Callable
from typing import Protocol

from app.database.connection import Database, DatabaseSettingsError, Login
from app.node_state import (
    CAUSE_OF_SERVER_ERROR,
    STATUS_VARIABLES,
    SYSTEM_VARIABLES,
    Cause,
    Cell,
    NodeState,
    Unobserved,
    parse_node_state,
)

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
from pymysql.constants import CLIENT
from pymysql.err import MySQLError

# SHOW itself may wait for the applier (up to 30 s) or fail outside a primary component when the server's
# wsrep_sync_wait has the bit for it. It is sent as a statement of its own: aiomysql's init_command is followed by a
# COMMIT, which every node that is not ready refuses.
_NO_SYNC_WAIT = "SET SESSION wsrep_sync_wait=0"
_UNKNOWN_SYSTEM_VARIABLE = 1193  # the server has no wsrep at all; the SHOWs will tell
_SHOW_STATUS = f"SHOW STATUS WHERE Variable_name IN ({', '.join(map(repr, STATUS_VARIABLES))})"
_SHOW_VARIABLES = f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({', '.join(map(repr, SYSTEM_VARIABLES))})"

_CONNECT_FAILED = 2003  # CR_CONN_HOST_ERROR: aiomysql's wrapper around every OSError of a connect
_NO_AUTH_PLUGIN = 2059  # CR_AUTH_PLUGIN_CANNOT_LOAD
_REFUSALS = (Cause.ACCESS_DENIED, Cause.HOST_BLOCKED)
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 5.0
_QUIT_SECONDS = 0.5

_IN_WORDS = {
    Cause.TOO_MANY_CONNECTIONS: "the server has no connection left for user {user}",
    Cause.ACCESS_DENIED: "the server refused user {user}",
    Cause.HOST_BLOCKED: "the server does not let this host in",
    Cause.OFFLINE: "the server is in offline mode and lets only administrators in",
    Cause.CONNECTION_LOST: "the server closed the connection while {phase}",
    Cause.ERROR: "the server answered with an error while {phase}",
}


class ObservesNode(Protocol):
    """What the monitor needs: something that reads the node."""

    async def observe(self) -> NodeState | Unobserved:
        """Make one observation; whatever goes wrong is an `Unobserved`, not an exception."""


class _PlainTextError(Exception):
    """The server offers no TLS where it is required."""


class _Connection(aiomysql.Connection):  # type: ignore[misc]
    """aiomysql's connection, but never in plain text where TLS is asked for, and let go of at once when cancelled."""

    async def _request_authentication(self) -> None:
        # aiomysql goes on in plain text, password included, if the greeting does not offer TLS.
        if self._ssl_context is not None and not self.server_capabilities & CLIENT.SSL:
            raise _PlainTextError
        await super()._request_authentication()

    def _close_on_cancel(self) -> None:
        writer = self._writer
        super()._close_on_cancel()
        # A plain close waits for the peer to end TLS as well; a hung server never does.
        if writer is not None:
            writer.transport.abort()


class Observer:
    """Reads one node over one connection, which it keeps for as long as the server does.

    deadline_seconds bounds one observation in total: connect, handshake, login and queries. A connection found dead
    is replaced within the same observation, so that a session killed by an administrator costs nothing; no
    observation makes more than one attempt to connect.
    """

    def __init__(self, database: Database, deadline_seconds: float) -> None:
        self._database = database
        self._deadline_seconds = deadline_seconds
        self._connection: _Connection | None = None
        self._login: Login | None = None
        self._phase = "connecting"
        self._refusal: Unobserved | None = None
        self._pause_seconds = 0.0
        self._retry_at = 0.0

    async def observe(self) -> NodeState | Unobserved:
        """Read the node, within the deadline. Never raises but for cancellation from outside.

        While the server refuses our login, attempts become rarer (up to one in 5 s) and the refusal is repeated in
        between: each attempt is a line in the server's error log.
        """
        if self._refusal is not None and time.monotonic() < self._retry_at:
            return self._refusal
        try:
            async with asyncio.timeout(self._deadline_seconds):
                observation = await self._read_or_reconnect()
        except asyncio.CancelledError:
            self._discard()
            raise
        except Exception as fault:  # noqa: BLE001 (the driver lets RuntimeError, struct.error and others through)
            self._discard()
            observation = self._unobserved(fault)
        self._pace(observation)
        return observation

    async def close(self) -> None:
        """Say goodbye to the server, so that it does not log and count an aborted client."""
        connection, self._connection = self._connection, None
        if connection is not None:
            writer = connection._writer  # noqa: SLF001 (the driver does not wait for its own end)
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_QUIT_SECONDS):
                    await connection.ensure_closed()
                    await writer.wait_closed()
            connection.close()

    async def _read_or_reconnect(self) -> NodeState | Unobserved:
        if self._connection is not None:
            try:
                return await self._read(self._connection)
            except Exception as fault:
                if self._unobserved(fault).cause is not Cause.CONNECTION_LOST:
                    raise
                self._discard()
        self._connection = await self._connect()
        return await self._read(self._connection)

    async def _connect(self) -> _Connection:
        self._phase = "connecting"
        self._login = login = self._database.login()
        connection = _Connection(
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
        # aiomysql.connect() makes only its own class of connection. Its connect_timeout stays unset: it would cover
        # no more than the TCP handshake, and on Python 3.11 may swallow our deadline (python/cpython#86296).
        await connection._connect()  # noqa: SLF001
        self._phase = "reading the node's state"
        try:
            await self._rows(connection, _NO_SYNC_WAIT)
        except MySQLError as fault:
            if _error_number(fault) != _UNKNOWN_SYSTEM_VARIABLE:
                connection.close()
                raise
        except BaseException:
            connection.close()
            raise
        return connection

    async def _read(self, connection: _Connection) -> NodeState | Unobserved:
        self._phase = "reading the node's state"
        # SHOW STATUS in session scope: the global one takes a lock over all threads on MySQL 8 and PXC.
        rows = await self._rows(connection, _SHOW_STATUS)
        return parse_node_state(rows + await self._rows(connection, _SHOW_VARIABLES))

    async def _rows(self, connection: _Connection, statement: str) -> list[tuple[Cell, ...]]:
        cursor = await connection.cursor()
        await cursor.execute(statement)
        return list(await cursor.fetchall() or ())

    def _discard(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _pace(self, observation: NodeState | Unobserved) -> None:
        if isinstance(observation, Unobserved) and observation.cause in _REFUSALS:
            self._refusal = observation
            self._pause_seconds = min(max(2 * self._pause_seconds, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
            self._retry_at = time.monotonic() + self._pause_seconds
        else:
            self._refusal = None
            self._pause_seconds = 0.0

    def _unobserved(self, fault: BaseException) -> Unobserved:
        """Say in our own words what a failure means. Driver and server texts stay out: they quote credentials."""
        seen = self._fault_seen(fault)
        # Paths and names may hold anything.
        return Unobserved(seen.cause, seen.detail.encode("ascii", "backslashreplace").decode())

    def _fault_seen(self, fault: BaseException) -> Unobserved:
        number = _error_number(fault)
        if number == _CONNECT_FAILED and fault.__cause__ is not None:
            fault = fault.__cause__
        match fault:
            case DatabaseSettingsError():
                return Unobserved(Cause.ERROR, str(fault))
            case UnicodeError():
                return Unobserved(Cause.ERROR, f"{self._login} or user {self._user} is no name that can be asked for")
            case _PlainTextError():
                return Unobserved(Cause.ERROR, f"{self._login} offers no TLS, which MYSQL_SSL requires")
            case TimeoutError():
                waited = f"within {self._deadline_seconds:g} s while {self._phase}"
                return Unobserved(Cause.TIMEOUT, f"no answer from {self._login} {waited}")
            case ssl.SSLError():
                return Unobserved(Cause.ERROR, f"no TLS connection to {self._login}: {_tls_words(fault)}")
            case BrokenPipeError() | ConnectionResetError() | ConnectionAbortedError():
                # The connection was there, and the peer ended it, however early.
                return self._driver_fault(fault, number=0)
            case OSError() if number == _CONNECT_FAILED:
                return Unobserved(Cause.UNREACHABLE, f"cannot connect to {self._login}: {_os_words(fault)}")
            case RuntimeError() if "cryptography" in str(fault):
                return Unobserved(Cause.ACCESS_DENIED, self._cryptography_words())
        return self._driver_fault(fault, number)

    def _driver_fault(self, fault: BaseException, number: int) -> Unobserved:
        if number == _NO_AUTH_PLUGIN:
            return Unobserved(Cause.ACCESS_DENIED, self._plugin_words(str(fault)))
        cause = CAUSE_OF_SERVER_ERROR.get(number)
        if cause is None and number:
            cause = Cause.ERROR
        elif cause is None and isinstance(fault, (OSError, RuntimeError, aiomysql.InterfaceError)):
            # What asyncio, uvloop and aiomysql raise on a transport whose peer is gone.
            cause = Cause.CONNECTION_LOST
        if cause is None:
            return Unobserved(Cause.ERROR, f"{self._login} does not speak the MySQL protocol ({self._phase})")
        words = _IN_WORDS[cause].format(user=self._user, phase=self._phase)
        return Unobserved(cause, f"{words} (error {number})" if number else words)

    @property
    def _user(self) -> str:
        return self._login.username if self._login else "unknown"

    def _cryptography_words(self) -> str:
        return (
            f"user {self._user} authenticates with caching_sha2_password or sha256_password, which over plain TCP needs"
            " the Python package cryptography: install it, or use the socket or TLS"
        )

    def _plugin_words(self, driver_text: str) -> str:
        found = re.search(r"plugin '(?:b')?(\w+)", driver_text)
        plugin = found.group(1) if found else "unknown"
        return (
            f"user {self._user} authenticates with the plugin {plugin}, which clustercheckd does not speak:"
            " use unix_socket, mysql_native_password or caching_sha2_password for it"
        )


def observe_once(
    database: Database,
    deadline_seconds: float,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> NodeState | Unobserved:
    """Observe a node once, outside any event loop."""

    async def once() -> NodeState | Unobserved:
        observer = Observer(database, deadline_seconds)
        try:
            return await observer.observe()
        finally:
            await observer.close()

    # Not asyncio.run, which at its end waits for a name resolver that hangs.
    loop = loop_factory()
    try:
        return loop.run_until_complete(once())
    finally:
        loop.close()


def _error_number(fault: BaseException) -> int:
    number = fault.args[0] if isinstance(fault, MySQLError) and fault.args else 0
    return number if isinstance(number, int) else 0


def _os_words(fault: OSError) -> str:
    # Event loops put addresses and their own phrases into strerror; a resolver's numbers mean nothing to os.strerror.
    if isinstance(fault, socket.gaierror) or not fault.errno:
        return fault.strerror or type(fault).__name__
    return os.strerror(fault.errno)


def _tls_words(fault: ssl.SSLError) -> str:
    if isinstance(fault, ssl.SSLCertVerificationError):
        return f"certificate not accepted: {fault.verify_message}"
    return (fault.reason or type(fault).__name__).lower().replace("_", " ")
