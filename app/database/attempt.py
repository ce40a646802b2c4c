"""One login: what it does, and how far it has come."""

import asyncio

from app.database.faults import CONNECTING, LOGGING_IN, LOOKING_UP
from app.database.resolver import Resolver
from app.database.session import Session
from app.settings.database import Database, Target


class Attempt:
    """A login, under way until its task has ended.

    is_visit: whether it began beside a session that answers the polls. file_stamps: of the files
    that it reads. target: None if they could not be read.
    """

    task: asyncio.Task[None]
    target: Target | None = None
    phase = CONNECTING

    def __init__(self, database: Database, *, is_visit: bool) -> None:
        self.is_visit = is_visit
        self.file_stamps = database.file_stamps()
        self._database = database

    async def session(self, resolver: Resolver, idle_seconds: int) -> Session:
        """Log in. Raises any exception: the driver does not limit them to its own.

        A visit tries what polls ask, which must work in the next session too.
        """
        self.target = target = self._database.target()
        addresses: list[str] = []
        if not target.socket:
            self.phase = LOOKING_UP
            addresses = await resolver.addresses(target.host)
            self.phase = CONNECTING
        session = await Session.to(target, addresses)
        self.phase = LOGGING_IN
        await session.prepare(idle_seconds, tries_read=self.is_visit)
        return session
