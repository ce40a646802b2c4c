"""Polls one node, one poll at a time, and visits it beside the polls. Every failure is a value.

The session that was opened first goes on answering the polls. It cannot show that a new client gets
in. Therefore a visit logs in every few seconds, reads in sync, and leaves when the next visit has
come in.

Three sessions are in use at most: the serving one, which answers the polls, the guest, which is the
latest visit, and a login under way. A server that hangs keeps a session that is given up before its
answer. So the first two wait for that as long as it takes, a login for a minute after two that were
given up, and none begins while the server may have `MOST_SESSIONS` of ours.
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import NamedTuple, TypeVar

from app.database.attempt import Attempt
from app.database.faults import HeldError, outcome_of, poll_failure
from app.database.logins import NO_SESSION, Logins, Outcome
from app.database.resolver import Resolver
from app.database.session import SYNC_SECONDS, Session
from app.database.sessions import Sessions
from app.database.surroundings import Surroundings
from app.database.sync import Sync, gap_seconds
from app.deadline import boot_seconds, deadline
from app.settings.database import Database
from app.verdict.alone import Look, Stand
from app.verdict.node_state import ELSEWHERE, NodeState, PollFailure, PollResult
from app.verdict.reason import Reason

_FIRST_VISIT_SECONDS, _NEXT_VISIT_SECONDS = 0.001, 0.2
"""How soon to visit without a guest, after a first login and after a visit: the node may stand
still, or return, and the poll that sees it return waits for that."""

_LOGINS = 2
"""A poll's, at most."""

_SPARE_IDLE_SECONDS = 30
"""So much longer than the longest pause does the server keep a session."""

_LOST = PollFailure(
    Reason.CONNECTION_LOST, "the server closed the connection after the login"
)

_log = logging.getLogger(__name__)

_T = TypeVar("_T")


class Pace(NamedTuple):
    """How fast and how often to ask.

    deadline_seconds: the limit for one poll, with its login. login_interval_seconds: 0 never visits
    the node, nor reads in sync. poll_interval_seconds: the longest pause between two polls.
    """

    deadline_seconds: float
    login_interval_seconds: float = 0.0
    poll_interval_seconds: float = 1.0

    @property
    def idle_seconds(self) -> int:
        """When the server is to end a session."""
        longest = max(self.poll_interval_seconds, self.login_interval_seconds)
        return _SPARE_IDLE_SECONDS + math.ceil(longest + self.deadline_seconds)


class Poller:
    """Polls one node. clock: counts suspend.

    A KILL costs no verdict: a poll that fails on an open session tries again on a new one, and once
    more if that is cut, unless the login before was too.
    """

    logins = Logins()
    sync = Sync()
    stand = Stand()
    _serving: Session | None = None
    _guest: Session | None = None

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
        # How many logins failed for each reason; None for those that did not.
        self.login_counts: Counter[Reason | None] = Counter()
        self._now = clock
        self._resolver = Resolver()
        self._surroundings = surroundings or Surroundings()
        self._attempt = Attempt(database, is_visit=False)  # the latest login
        self.sessions = Sessions()

    @property
    def sync_wait_seconds(self) -> float | None:
        """See `Sync.wait_seconds`."""
        return self.sync.wait_seconds(self._now())

    async def poll(self) -> PollResult:
        """Poll the node within the deadline. Raises only CancelledError."""
        seconds = self.pace.deadline_seconds
        result: PollResult | None = None
        try:
            async with deadline(seconds):
                result = await self._result()
                if isinstance(result, NodeState):
                    await self._note_answer()
        except TimeoutError as fault:
            where = self._serving or self._attempt
            result = result or poll_failure(fault, where.target, where.phase, seconds)
        if isinstance(result, PollFailure):
            self.sync = self.sync.poll_failed()
            return result
        self._begin_what_is_due()
        rejected = self.logins.rejected
        stall, stall_seconds = self._stand_after(result).cause
        return replace(
            result,
            rejects_logins=rejected.detail if rejected else None,
            returning=self.sync.is_returning(self._now()),
            sync_wait_seconds=self.sync_wait_seconds,
            sync_refused=self.sync.refused,
            stall=stall,
            stall_seconds=stall_seconds,
            elsewhere=self._serving is not None and self._serving.is_elsewhere,
        )

    async def aclose(self) -> None:
        """Log out and close the connections, within 0.5 s, after the last poll."""
        self._leave_all()
        if login := self._attempt.login:
            login.cancel()
            await asyncio.wait([login])
        await self.sessions.aclose()

    async def _result(self) -> PollResult:
        self._begin_what_is_due()
        if self._serving and self._serving.reading:
            # Not used: the server may have sent the answer long ago.
            await asyncio.wait([self._serving.reading])
        result = await self._read_serving()
        if isinstance(result, NodeState):
            return result
        for _ in range(_LOGINS):
            # A visit may have come in meanwhile.
            if self._serving is None:
                if not self._attempt.login and not self.logins.waits(self._now()):
                    self._begin_login()
                if self._attempt.login:
                    await asyncio.wait([self._attempt.login])
            result = await self._read_serving()
            if isinstance(result, NodeState):
                return result
            failure = result or self.logins.failure or _LOST
            is_cut = failure.reason is Reason.CONNECTION_LOST
            if not is_cut or (result is None and not self.logins.may_be_accident):
                break
        return failure

    async def _read_serving(self) -> PollResult | None:
        """Read the node's state. The session goes on if this is cancelled."""
        session = self._serving
        if session is None:
            return None
        asking = session.read(counts=self.stand.stands)
        reading = asyncio.create_task(_asked(session, asking))
        session.reading = reading
        await asyncio.wait([reading])
        result = reading.result()
        if isinstance(result, PollFailure) and session is self._serving:
            self._serving = None
            self._leave(session)
        return result

    async def _note_answer(self) -> None:
        """Wait for the read in sync that a node needs to return: our pause costs no verdict."""
        serving, pace = self._serving, self.pace
        longest_seconds = None
        if pace.login_interval_seconds and serving and serving.can_read_in_sync:
            longest_seconds = gap_seconds(
                serving.suspect_seconds, pace.poll_interval_seconds
            )
        self.sync = self.sync.poll_answered(self._now(), longest_seconds)
        while self.sync.is_returning(self._now()):
            self._begin_what_is_due()
            awaited = (self._guest and self._guest.reading) or self._attempt.login
            if awaited:
                await asyncio.wait([awaited])
            elif self._guest or self.logins.failure:
                break
            else:
                # The visit that is due next: the one before replaced all sessions.
                await asyncio.sleep(_NEXT_VISIT_SECONDS)

    def _stand_after(self, node: NodeState) -> Stand:
        session = self._serving
        if session is None:
            return self.stand
        around = self._surroundings.look(
            session.variables, node.wsrep_cluster_size, waits=self.stand.waits
        )
        look = Look(
            at=self._now(),
            committed=node.wsrep_last_committed or 0,
            queue=node.wsrep_local_recv_queue or 0,
            sent=node.wsrep_flow_control_sent or 0,
            received=node.wsrep_flow_control_recv or 0,
            wait_seconds=self.sync_wait_seconds or 0.0,
            in_sync_at=self.sync.in_sync_at,
            seen={**session.counted, **around},
            view=node.wsrep_cluster_conf_id or 0,
        )
        self.stand = self.stand.after(look)
        return self.stand

    def _begin_what_is_due(self) -> None:
        """Begin a read in sync, and a login beside the session that there is."""
        self.sessions.forget()
        at, interval_seconds = self._now(), self.pace.login_interval_seconds
        stamps = self._attempt.file_stamps
        if self.logins.waits(at) and stamps != self.database.file_stamps():
            self.logins = self.logins.account_changed()
        is_old = self.sync.read_began_at < self.stand.cut_at
        if is_old or self.sync.read_is_due(at, interval_seconds):
            self._begin_read_in_sync()
        if self._serving is None or self._attempt.login:
            return
        # A server that starts may close the session of the first read in sync.
        is_unread = self.logins.outcome is Outcome.UNREAD
        is_soon = self.logins.failure is None or (
            is_unread and self.sync.is_returning(at)
        )
        if interval_seconds and self._guest is None and is_soon:
            interval_seconds = _FIRST_VISIT_SECONDS
            if self._attempt.is_visit:
                interval_seconds = _NEXT_VISIT_SECONDS
        if self.logins.is_due(
            at, interval_seconds, session_answers=self._serving.reading is None
        ):
            self._begin_login()

    def _begin_login(self) -> None:
        self.logins = self.logins.begun(self._now())
        self._attempt = Attempt(self.database, is_visit=self._serving is not None)
        self._attempt.task = asyncio.create_task(self._log_in(self._attempt))

    async def _log_in(self, attempt: Attempt) -> None:
        seconds = self.logins.limit_seconds(self.sessions.left)
        try:
            async with deadline(seconds):
                session = await attempt.session(
                    self._resolver, self.pace.idle_seconds, self.sessions
                )
        except Exception as fault:  # noqa: BLE001 (as in `_asked`)
            failure = poll_failure(fault, attempt.target, attempt.phase, seconds)
            refusals = self.logins.refusals
            outcome = outcome_of(fault, failure, attempt.phase, refusals)
            is_held = isinstance(fault, HeldError) and self.sessions.is_shared
            if is_held and not self.logins.rejections:
                # Another process has the room: nobody knows whether clients get in.
                outcome = Outcome.FAILED
            self._note(outcome, failure)
            # The login that decides is not to wait for the next poll.
            asyncio.get_running_loop().call_soon(self._begin_what_is_due)
            return
        # The read in sync that follows says whether an account that could not can now.
        if self.logins.outcome is not Outcome.UNREAD:
            self._note(Outcome.ACCEPTED)
        self._come_in(session)

    def _come_in(self, session: Session) -> None:
        """Let a session that has logged in answer the polls, or be the guest."""
        others = self._serving, self._guest
        if any(one and one.peer != session.peer for one in others):
            # The name of the host leads to another server, or the account is another one.
            self._leave_all()
        serving, guest = self._serving, self._guest
        if serving is None and session.is_elsewhere:
            _log.warning("another host", extra={"detail": ELSEWHERE})
        # If the open one is stuck, the server has answered the new one what it owes to that.
        if serving is None or (serving.reading and self.sync.unanswered):
            self._serving, leaver = session, serving
        elif guest is None or guest.reading is None or self.sync.read_is_outdated:
            self._guest, leaver = session, guest
            self._begin_read_in_sync()
        else:
            leaver = session
        self._leave(leaver)

    def _leave_all(self) -> None:
        """Log out all sessions: what they have shown says nothing of another server."""
        self._leave(self._serving, self._guest)
        self._serving = self._guest = None
        self.sync = self.sync.nothing_reads()

    def _leave(self, *sessions: Session | None) -> None:
        for session in filter(None, sessions):
            self.sessions.leave(session)

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
        answer = await _asked(guest, guest.read_in_sync(unless=self.sessions.are_many))
        if guest is not self._guest:
            # It says nothing about the read of the one that has replaced it.
            return
        if isinstance(answer, PollFailure):
            self._guest = None
            self._leave(guest)
            self.sync = self.sync.read_lost(self._now())
            # Unless logins fail for another reason.
            if self.logins.outcome in (Outcome.ACCEPTED, Outcome.UNREAD):
                self._note(Outcome.UNREAD, answer)
            return
        self.sync = self.sync.read_ended(self._now(), is_answered=answer)
        if self.logins.outcome is Outcome.UNREAD:
            self._note(Outcome.ACCEPTED)

    def _note(self, outcome: Outcome, failure: PollFailure | None = None) -> None:
        self.login_counts[failure.reason if failure else None] += 1
        if failure is None:
            self.sessions.note_login()
        before, self.logins = self.logins, self.logins.ended(outcome, failure)
        # Clients pile up behind a wait: that the server is full does not end it.
        if self._guest is None and outcome in NO_SESSION:
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


async def _asked(session: Session, asking: Awaitable[_T]) -> _T | PollFailure:
    """Return what a session answers, or why it does not; then it is of no more use."""
    answer: _T | PollFailure
    try:
        answer = await asking
    except Exception as fault:  # noqa: BLE001 (the driver lets RuntimeError, struct.error and others through)
        # Only a read in sync has a limit of its own.
        answer = poll_failure(fault, session.target, session.phase, SYNC_SECONDS)
    session.reading = None
    return answer


async def poll_once(database: Database, deadline_seconds: float) -> PollResult:
    """Poll a node once, with a login."""
    async with aclosing(Poller(database, Pace(deadline_seconds))) as poller:
        return await poller.poll()
