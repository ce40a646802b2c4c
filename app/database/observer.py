"""One node, read over one connection, one observation at a time; every failure is a value."""

import asyncio
import contextlib
import time

from app.database.connection import Connection
from app.database.faults import Attempt, is_refusal, unobserved
from app.database.login import Database, Login
from app.database.resolver import Resolver
from app.database.session import Session
from app.node_state import NodeState, Unobserved, parse_node_state

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 5.0


class Observer:
    """Reads one node over one connection, which it keeps for as long as the server does.

    deadline_seconds bounds one observation in total: connect, handshake, login and queries. Whatever goes wrong on a
    connection that has worked before is tried again on a new one, within the same observation: a session that an
    administrator kills, or a statement that the server's own time limit ends, costs no answer. No observation makes
    more than one new connection.
    """

    def __init__(self, database: Database, deadline_seconds: float) -> None:
        self._database = database
        self._deadline_seconds = deadline_seconds
        self._connection: Connection | None = None
        self._session: Session | None = None
        self._login: Login | None = None
        self._resolver = Resolver()
        self._phase = "connecting"
        self._refusal: Unobserved | None = None
        self._pause_seconds = 0.0
        self._retry_at = 0.0

    async def observe(self) -> NodeState | Unobserved:
        """Read the node, within the deadline. Never raises but for cancellation from outside.

        While the server refuses our login, or we its certificate, attempts become rarer (up to one in 5 s) and the
        refusal is repeated in between: each attempt is a line in the server's error log.
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
            observation = unobserved(fault, Attempt(self._login, self._phase, self._deadline_seconds))
            if is_refusal(fault, observation):
                self._pace(observation)
                return observation
        self._refusal, self._pause_seconds = None, 0.0
        return observation

    async def close(self) -> None:
        """End the connection in good order."""
        connection, self._connection, self._session = self._connection, None, None
        if connection is not None:
            await connection.quit()

    async def _read_or_reconnect(self) -> NodeState | Unobserved:
        if self._session is not None and self._connection is not None:
            self._connection.begin_observation()
            # The deadline is not among these: it comes as a cancellation.
            with contextlib.suppress(Exception):
                return await self._read(self._session)
            self._discard()
        return await self._read(await self._connect())

    async def _connect(self) -> Session:
        self._phase = "connecting"
        self._login = login = self._database.login()
        addresses: list[str] = []
        if not login.socket:
            self._phase = "looking up the host's name"
            addresses = await self._resolver.addresses(login.host)
            self._phase = "connecting"
        self._connection = await Connection.to(login, addresses)
        self._phase = "reading the node's state"
        session = Session(self._connection)
        await session.begin()
        self._session = session
        return session

    async def _read(self, session: Session) -> NodeState | Unobserved:
        self._phase = "reading the node's state"
        return parse_node_state(await session.read())

    def _discard(self) -> None:
        connection, self._connection, self._session = self._connection, None, None
        if connection is not None:
            connection.close()

    def _pace(self, refusal: Unobserved) -> None:
        self._refusal = refusal
        self._pause_seconds = min(max(2 * self._pause_seconds, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
        self._retry_at = time.monotonic() + self._pause_seconds


def observe_once(database: Database, deadline_seconds: float) -> NodeState | Unobserved:
    """Observe a node once, outside any event loop."""

    async def once() -> NodeState | Unobserved:
        observer = Observer(database, deadline_seconds)
        try:
            return await observer.observe()
        finally:
            await observer.close()

    return asyncio.run(once())
