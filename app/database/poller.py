"""Polls one node, one poll at a time, and visits it beside the polls. Every failure is a value.

The session that was opened first goes on answering the polls. It cannot show that a new client gets
in. Therefore a visit logs in every few seconds, gets an answer, reads in sync, and leaves when the
next visit has come in: one open session can read in sync although no login works. What the logins
mean and when the next one is due is in `logins`, what the reads in sync mean in `sync`.

There are never more than three sessions: the serving one, which answers the polls, the guest, which
is the latest visit, and a login under way. `_come_in` says which of them a new session becomes. A
server that hangs keeps a session that is closed before its answer. So the first two wait for that
as long as it takes, and the login, too, after two that were given up.
"""

import asyncio
import contextlib
import dataclasses
import logging
import math
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from app.database.attempt import Attempt
from app.database.faults import CONNECTING, outcome_of, poll_failure
from app.database.logins import Logins, Outcome
from app.database.resolver import Resolver
from app.database.session import Session
from app.database.surroundings import Surroundings
from app.database.sync import Read, Sync, gap_seconds
from app.deadline import boot_seconds, deadline
from app.settings.database import Database
from app.verdict.alone import GROUP, SHOW_COUNTERS, Look, Stand, counters_of
from app.verdict.node_state import NodeState, PollFailure
from app.verdict.reason import Reason

_LIMITS_SECONDS = (1.5, 4.0)
"""The limits of a login, and of the next one after it was late: when many clients reconnect at
once, a second or two is load."""

_NO_GUEST_SECONDS = 0.2
"""How soon to visit without a guest: the node may stand still, or return."""

_SYNC_SECONDS = 60.0
"""The limit of a read in sync. The server itself gives up after 30 s."""

_SPARE_IDLE_SECONDS = 30
"""So much longer than the longest pause between two statements does the server keep a session."""

_TOLD_SECONDS = 1.0
"""After a wait of so many seconds, the log tells of a read in sync."""

_NOT_IN_SYNC = (
    "the whole group waits, as far as this node shows: look for DDL, a large transaction, and a"
    " member that has gone"
)

_IN_SYNC = "reading in sync"

_LOST = PollFailure(
    Reason.CONNECTION_LOST, "the server closed the connection after the login"
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pace:
    """How fast and how often to ask.

    deadline_seconds: the limit for one poll, with its login. login_interval_seconds: how often to
    visit the node; 0 never does, and never reads in sync. poll_interval_seconds: the longest pause
    between two polls.
    """

    deadline_seconds: float
    login_interval_seconds: float = 0.0
    poll_interval_seconds: float = 1.0

    @property
    def idle_seconds(self) -> int:
        """How long the server keeps a session without a statement."""
        longest = max(self.poll_interval_seconds, self.login_interval_seconds)
        return _SPARE_IDLE_SECONDS + math.ceil(longest + self.deadline_seconds)


class Poller:
    """Polls one node. clock: counts suspend.

    A poll that fails on an open session tries again on a new one, so that a KILL costs no verdict.
    """

    logins = Logins()
    sync = Sync()
    told_seconds = 0.0
    _serving: Session | None = None
    _guest: Session | None = None
    _attempt: Attempt | None = None
    """The latest login."""
    _closed = False

    def __init__(
        self,
        database: Database,
        pace: Pace,
        *,
        surroundings: Surroundings | None = None,
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        self.database = database
        self.pace = pace
        # How many logins since the start failed for each reason; None for those that did not fail.
        self.login_counts: Counter[Reason | None] = Counter()
        self._now = clock
        self._resolver = Resolver()
        self._surroundings = surroundings or Surroundings()
        self.stand = Stand(counted=Look(self._now()))
        self._leaving: set[asyncio.Task[None]] = set()

    def take(self, database: Database, pace: Pace) -> None:
        """Poll by other settings from now on. Sessions with the same server go on."""
        if database.server != self.database.server:
            self._leave_all()
            self.sync = Sync()
            self.stand = Stand(counted=Look(self._now()))
        if not pace.login_interval_seconds:
            # No read would ever end a wait.
            self.sync = Sync()
        # A login is due, which replaces the sessions of another account.
        self.logins = self.logins.account_changed()
        self.database, self.pace = database, pace

    @property
    def sync_wait_seconds(self) -> float | None:
        """See `Sync.wait_seconds`."""
        return self.sync.wait_seconds(self._now())

    async def poll(self) -> NodeState | PollFailure:
        """Poll the node within the deadline. Raises only CancelledError."""
        seconds = self.pace.deadline_seconds
        result: NodeState | PollFailure | None = None
        try:
            async with deadline(seconds):
                result = await self._result()
                if isinstance(result, NodeState):
                    await self._note_answer()
        except TimeoutError as fault:
            where = self._serving or self._attempt
            target, phase = (where.target, where.phase) if where else (None, CONNECTING)
            result = result or poll_failure(fault, target, phase, seconds)
        if isinstance(result, PollFailure):
            # A timeout may be that of the login that this poll has waited for.
            is_timeout = result.reason is Reason.TIMEOUT
            self.sync = self.sync.poll_failed(in_time=not is_timeout)
            return result
        self._begin_what_is_due()
        rejected = self.logins.rejected
        stall, stall_seconds = self._stand_after(result).cause
        self._tell_of_sync(stall)
        return dataclasses.replace(
            result,
            rejects_logins=rejected.detail if rejected else None,
            returning=self.sync.is_returning(self._now()),
            sync_wait_seconds=self.sync_wait_seconds,
            sync_refused=self.sync.refused,
            stall=stall,
            stall_seconds=stall_seconds,
        )

    def _stand_after(self, node: NodeState) -> Stand:
        sync, session = self.sync, self._serving
        if session is None:
            return self.stand
        around = self._surroundings.look(
            session.variables, node.wsrep_cluster_size, waits=self.stand.waits
        )
        look = Look(
            self._now(),
            node.wsrep_last_committed or 0,
            node.wsrep_local_recv_queue or 0,
            self.sync_wait_seconds or 0.0,
            sync.read_began_at if sync.read is Read.ANSWERED else -math.inf,
            (node.wsrep_received_bytes or 0) + (node.wsrep_replicated_bytes or 0),
            node.wsrep_cert_index_size or 0,
            counters_of(session.counted) | around,
        )
        self.stand = self.stand.after(look)
        return self.stand

    async def aclose(self) -> None:
        """Log out and close the connections, within 0.5 s. A poll under way then fails."""
        self._closed = True
        self._leave_all()
        if self._leaving:
            await asyncio.wait(self._leaving)

    @property
    def _login(self) -> asyncio.Task[None] | None:
        """The login that is under way."""
        attempt = self._attempt
        return attempt.task if attempt and not attempt.task.done() else None

    async def _note_answer(self) -> None:
        """Wait for the read in sync that a node needs to return: our own pause costs no verdict."""
        serving, pace = self._serving, self.pace
        longest_seconds = None
        if serving is not None and serving.can_read_in_sync:
            longest_seconds = gap_seconds(
                serving.suspect_seconds, pace.poll_interval_seconds
            )
        self.sync = self.sync.poll_answered(
            self._now(), longest_seconds if pace.login_interval_seconds else None
        )
        while self.sync.is_returning(self._now()):
            self._begin_what_is_due()
            awaited = (self._guest.reading if self._guest else None) or self._login
            if awaited is None:
                break
            await asyncio.wait([awaited])

    async def _result(self) -> NodeState | PollFailure:
        self._begin_what_is_due()
        if self._serving is not None and self._serving.reading is not None:
            # Not used: the server may have sent the answer long ago.
            await asyncio.wait([self._serving.reading])
        result = await self._read_serving()
        if isinstance(result, NodeState):
            return result
        # A visit may have come in meanwhile.
        if self._serving is None:
            if self._login is None and not self.logins.waits(self._now()):
                self._begin_login()
            if self._login is not None:
                await asyncio.wait([self._login])
        return await self._read_serving() or self.logins.failure or _LOST

    async def _read_serving(self) -> NodeState | PollFailure | None:
        """Read the node's state, if there is a session.

        If this is cancelled, the session goes on waiting.
        """
        if self._serving is None:
            return None
        reading = asyncio.create_task(self._read(self._serving))
        self._serving.reading = reading
        await asyncio.wait([reading])
        return reading.result()

    async def _read(self, session: Session) -> NodeState | PollFailure:
        try:
            more = [SHOW_COUNTERS] if self.stand.counts else []
            result = await session.read(*more)
        except Exception as fault:  # noqa: BLE001 (the driver lets RuntimeError, struct.error and others through)
            seconds = self.pace.deadline_seconds
            result = poll_failure(fault, session.target, session.phase, seconds)
        session.reading = None
        if isinstance(result, PollFailure):
            # Also if the rows make no sense: perhaps they answer another statement.
            session.close()
            if session is self._serving:
                self._serving = None
        return result

    def _begin_what_is_due(self) -> None:
        """Begin a read in sync, and a login beside the session that there is."""
        at, interval_seconds = self._now(), self.pace.login_interval_seconds
        attempt = self._attempt
        if (
            attempt is not None
            and self.logins.waits(at)
            and attempt.file_stamps != self.database.file_stamps()
        ):
            self.logins = self.logins.account_changed()
        if self.sync.read_is_due(at, interval_seconds):
            self._begin_read_in_sync()
        if self._serving is None or self._login is not None:
            return
        if interval_seconds and self._guest is None and self.logins.failure is None:
            interval_seconds = _NO_GUEST_SECONDS
        if self.logins.is_due(
            at, interval_seconds, session_answers=self._serving.reading is None
        ):
            self._begin_login()

    def _begin_login(self) -> None:
        if self._closed:
            return
        self.logins = self.logins.begun(self._now())
        attempt = Attempt(self.database, is_visit=self._serving is not None)
        attempt.task = asyncio.create_task(self._log_in(attempt))
        self._attempt = attempt

    def _come_in(self, session: Session) -> None:
        """Let a session that has logged in answer the polls, or be the guest."""
        serving, guest = self._serving, self._guest
        # The server has answered the new one what it owes to the open one.
        is_stuck = (
            serving is not None and serving.reading is not None and self.sync.unanswered
        )
        if serving is None or is_stuck or serving.peer != session.peer:
            # The latter: the name of the host leads to another server.
            self._serving, leaver = session, serving
            if guest is not None and guest.peer != session.peer:
                self._guest = None
                self._leave(guest.quit())
                self.sync = self.sync.nothing_reads()
        elif guest is None or guest.reading is None or self.sync.read_is_outdated:
            self._guest, leaver = session, guest
            self._begin_read_in_sync()
        else:
            leaver = session
        if leaver is not None:
            self._leave(leaver.quit())

    def _leave_all(self) -> None:
        """Log out all sessions, and give up the login."""
        if self._login is not None:
            self._login.cancel()
            self._hold(self._login)
        for session in (self._serving, self._guest):
            if session is not None:
                self._leave(session.quit())
        self._serving = self._guest = self._attempt = None

    def _leave(self, leaving: Coroutine[Any, Any, None]) -> None:
        self._hold(asyncio.create_task(leaving))

    def _hold(self, task: asyncio.Task[None]) -> None:
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _begin_read_in_sync(self) -> None:
        guest = self._guest
        if (
            guest is not None
            and guest.reading is None
            and guest.can_read_in_sync
            and self.pace.login_interval_seconds
        ):
            self.sync = self.sync.read_begun(self._now())
            guest.reading = asyncio.create_task(self._read_in_sync(guest))

    async def _read_in_sync(self, guest: Session) -> None:
        is_answered, failure = False, None
        try:
            async with deadline(_SYNC_SECONDS):
                is_answered = await guest.read_in_sync()
        except Exception as fault:  # noqa: BLE001 (as in `_read`)
            failure = poll_failure(fault, guest.target, _IN_SYNC, _SYNC_SECONDS)
            guest.close()
        guest.reading = None
        sync, at = self.sync, self._now()
        if guest is not self._guest:
            # It says nothing about the read of the one that has replaced it.
            return
        if failure is not None:
            self._guest = None
            self.sync = sync.read_lost(at)
            # Unless logins fail for another reason.
            if self.logins.outcome in (Outcome.ACCEPTED, Outcome.UNREAD):
                self._note(Outcome.UNREAD, failure)
            return
        self.sync = sync.read_answered(at) if is_answered else sync.read_refused()
        if self.logins.outcome is Outcome.UNREAD:
            self._note(Outcome.ACCEPTED)

    def _tell_of_sync(self, stall: str | None) -> None:
        """Log once that a read in sync waits, and once that one was answered."""
        wait_seconds = self.sync_wait_seconds
        if wait_seconds is not None and wait_seconds >= _TOLD_SECONDS:
            if not self.told_seconds:
                detail = _NOT_IN_SYNC if stall == GROUP else stall
                _log.warning("not in sync", extra={"detail": detail})
            self.told_seconds = wait_seconds
        elif wait_seconds == 0.0 and self.told_seconds:
            _log.info("in sync again", extra={"seconds": round(self.told_seconds, 1)})
            self.told_seconds = 0.0

    async def _log_in(self, attempt: Attempt) -> None:
        seconds = _LIMITS_SECONDS[min(self.logins.rejections, 1)]
        try:
            async with deadline(seconds, unless=self._server_hangs):
                session = await attempt.session(self._resolver, self.pace.idle_seconds)
        except Exception as fault:  # noqa: BLE001 (as in `_read`)
            failure = poll_failure(fault, attempt.target, attempt.phase, seconds)
            refusals = self.logins.refusals
            self._note(outcome_of(fault, failure, attempt.phase, refusals), failure)
            # The login that decides is not to wait for the next poll.
            asyncio.get_running_loop().call_soon(self._begin_what_is_due)
            return
        # The read in sync that follows says whether an account that could not can now.
        if self.logins.outcome is not Outcome.UNREAD:
            self._note(Outcome.ACCEPTED)
        self._come_in(session)

    def _server_hangs(self) -> bool:
        """Whether no poll is answered, and two logins were given up: a server keeps them."""
        return self.sync.unanswered and self.logins.rejected is not None

    def _note(self, outcome: Outcome, failure: PollFailure | None = None) -> None:
        self.login_counts[failure.reason if failure else None] += 1
        before, self.logins = self.logins, self.logins.ended(outcome, failure)
        # Clients pile up behind a wait: that the server is full does not end it.
        if (
            self.logins.account_refused
            and self._guest is None
            and outcome is not Outcome.UNREAD
            and not (outcome is Outcome.ANSWERED and self.sync_wait_seconds)
        ):
            self.sync = self.sync.nothing_reads()
        # Without a session, the verdict itself says why.
        if self._serving is None or outcome is before.outcome:
            return
        if failure is not None:
            _log.warning(
                "login failed",
                extra={
                    "reason": failure.reason,
                    "detail": f"{failure.detail}; the session that is open goes on",
                },
            )
        elif before.failure is not None:
            _log.info("login works again")


def poll_once(database: Database, deadline_seconds: float) -> NodeState | PollFailure:
    """Poll a node once, from code without an event loop, and return the result."""
    return asyncio.run(first_poll(database, deadline_seconds))


async def first_poll(
    database: Database,
    deadline_seconds: float,
    clock: Callable[[], float] = boot_seconds,
) -> NodeState | PollFailure:
    """Poll a node once, with a login, and log out."""
    poller = Poller(database, Pace(deadline_seconds), clock=clock)
    async with contextlib.aclosing(poller):
        return await poller.poll()
