"""Polls one node over one connection, one poll at a time. Every failure is a value."""

import asyncio
import contextlib
import time
from functools import lru_cache

from app.database.connection import Connection
from app.database.faults import Attempt, is_refusal, poll_failure
from app.database.login import Database, Login
from app.database.resolver import Resolver
from app.database.session import Session
from app.node_state import NodeState, PollFailure, parse_node_state

# At rest, all polls read the same rows.
_parsed = lru_cache(maxsize=1)(parse_node_state)

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 5.0


class Poller:
    """Polls one node over one connection, which it keeps open.

    deadline_seconds: the limit for one whole poll: connect, handshake, login and queries.

    If a poll fails on an existing connection, the same poll tries again on a new one. The node therefore stays
    available if an administrator kills the session, or the server's time limit ends a statement. A poll makes at most
    one new connection.
    """

    def __init__(self, database: Database, deadline_seconds: float) -> None:
        self._database = database
        self._deadline_seconds = deadline_seconds
        self._connection: Connection | None = None
        self._session: Session | None = None
        self._login: Login | None = None
        self._resolver = Resolver()
        self._phase = "connecting"
        self._refusal: PollFailure | None = None
        self._pause_seconds = 0.0
        self._retry_at = 0.0

    async def poll(self) -> NodeState | PollFailure:
        """Poll the node within the deadline, and return the result. Raises only CancelledError.

        Each refused login adds a line to the server's error log. After a refusal, by the server or because of its
        certificate, the next attempts are 1 s apart, then up to 5 s. Polls in between return the same refusal.
        """
        if self._refusal is not None and time.monotonic() < self._retry_at:
            return self._refusal
        try:
            async with asyncio.timeout(self._deadline_seconds):
                poll = await self._read_or_reconnect()
            if isinstance(poll, PollFailure):
                # The rows make no sense, perhaps because they answer another statement.
                self._discard()
        except asyncio.CancelledError:
            self._discard()
            raise
        except Exception as fault:  # noqa: BLE001 (the driver lets RuntimeError, struct.error and others through)
            self._discard()
            poll = poll_failure(fault, Attempt(self._login, self._phase, self._deadline_seconds))
            if is_refusal(fault, poll):
                self._pace(poll)
                return poll
        self._refusal, self._pause_seconds = None, 0.0
        return poll

    async def close(self) -> None:
        """Log out and close the connection, within 0.5 s."""
        connection, self._connection, self._session = self._connection, None, None
        if connection is not None:
            await connection.quit()

    async def _read_or_reconnect(self) -> NodeState | PollFailure:
        if self._session is not None and self._connection is not None:
            self._connection.begin_poll()
            # This does not suppress the deadline, which arrives as a CancelledError.
            with contextlib.suppress(Exception):
                poll = await self._read(self._session)
                if isinstance(poll, NodeState):
                    return poll
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

    async def _read(self, session: Session) -> NodeState | PollFailure:
        self._phase = "reading the node's state"
        return _parsed(await session.read())

    def _discard(self) -> None:
        connection, self._connection, self._session = self._connection, None, None
        if connection is not None:
            connection.close()

    def _pace(self, refusal: PollFailure) -> None:
        self._refusal = refusal
        self._pause_seconds = min(max(2 * self._pause_seconds, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
        self._retry_at = time.monotonic() + self._pause_seconds


def poll_once(database: Database, deadline_seconds: float) -> NodeState | PollFailure:
    """Poll a node once, from code without an event loop, and return the result."""

    async def once() -> NodeState | PollFailure:
        poller = Poller(database, deadline_seconds)
        try:
            return await poller.poll()
        finally:
            await poller.close()

    return asyncio.run(once())
