"""The sessions that servers may have of ours: in use, or left and not ended yet.

A server that hangs does not notice that its client has gone, and keeps a session that was left.
"""

import asyncio
import math
from contextlib import suppress

from app.database.session import Session

MOST_SESSIONS = 6
"""On the server, with those of a process that takes over, or went before."""

IN_USE = 3
"""So many at most does a process use: see the poller."""

_MUCH = 4
"""Beyond so many, a read in sync waits on: visits need two."""

_ENDED_SECONDS = 60.0
"""By then, a server that takes logins has ended a session that was left: word of it was lost."""

_FORGOTTEN_SECONDS = 28800.0
"""The default of wait_timeout, which ends a session that has set none."""

_GOODBYE_SECONDS = 0.5


class Sessions:
    """Counts the sessions, and waits for the ends of those that were left.

    others: how many another process may have there. is_shared: whether that one still runs.
    """

    others = 0
    is_shared = False

    def __init__(self) -> None:
        self._sessions: set[Session] = set()
        self._leaving: dict[asyncio.Task[None], float] = {}
        self._logged_in_at = -math.inf

    @property
    def left(self) -> int:
        """How many were left and have not ended."""
        return len(self._leaving)

    @property
    def own(self) -> int:
        """How many the server may have of this process."""
        return len(self._sessions)

    @property
    def count(self) -> int:
        """How many it may have in all."""
        return self.own + self.others

    def are_many(self) -> bool:
        """Return whether there is little room for more."""
        return self.own > _MUCH

    def add(self, session: Session) -> bool:
        """Count a session that is about to be opened; return False if a server has too many."""
        has_room = self.count < MOST_SESSIONS
        if has_room:
            self._sessions.add(session)
        return has_room

    def leave(self, session: Session) -> None:
        """Log out a session."""
        leaving = asyncio.create_task(self._end(session))
        self._leaving[leaving] = _now()
        leaving.add_done_callback(self._leaving.pop)

    async def _end(self, session: Session) -> None:
        try:
            await session.quit()
        finally:
            self._sessions.discard(session)

    def note_login(self) -> None:
        """Note that a server takes logins."""
        self._logged_in_at = _now()
        if not self.is_shared:
            self.others = 0

    def forget(self) -> None:
        """Close those that a server must have ended by now."""
        for leaving, left_at in self._leaving.items():
            is_well = left_at <= self._logged_in_at
            if _now() >= left_at + (_ENDED_SECONDS if is_well else _FORGOTTEN_SECONDS):
                leaving.cancel()

    async def aclose(self) -> None:
        """Close those that were left, after a moment for their ends."""
        ends = asyncio.gather(*self._leaving, return_exceptions=True)
        with suppress(TimeoutError):
            await asyncio.wait_for(ends, _GOODBYE_SECONDS)


def _now() -> float:
    return asyncio.get_running_loop().time()
