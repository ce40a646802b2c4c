"""One login: what it does, and how far it has come."""

import asyncio

from app.database.faults import CONNECTING, LOGGING_IN, LOOKING_UP, HeldError
from app.database.resolver import Resolver
from app.database.session import Session
from app.database.sessions import Sessions
from app.settings.database import Database, Target


class Attempt:
    """A login. target: None if the files that it reads could not be read.

    is_visit: whether it began beside a session that answers the polls.
    """

    task: asyncio.Task[None] | None = None
    target: Target | None = None
    phase = CONNECTING

    def __init__(self, database: Database, *, is_visit: bool) -> None:
        self.is_visit = is_visit
        self._database = database
        self.file_stamps = database.file_stamps()

    @property
    def login(self) -> asyncio.Task[None] | None:
        """Its task, until that has ended."""
        return self.task if self.task and not self.task.done() else None

    async def session(
        self, resolver: Resolver, idle_seconds: int, sessions: Sessions
    ) -> Session:
        """Log in. Raises any exception, after it has left what it had opened."""
        self.target = target = self._database.target()
        self.phase = LOOKING_UP
        addresses = [] if target.socket else await resolver.addresses(target.host)
        self.phase = CONNECTING
        session = Session(target, addresses)
        if not sessions.add(session):
            raise HeldError
        try:
            await session.open()
            self.phase = LOGGING_IN
            await session.prepare(idle_seconds, tries_read=self.is_visit)
        except BaseException:
            session.close()
            sessions.leave(session)
            raise
        return session
