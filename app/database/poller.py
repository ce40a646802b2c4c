"""Polls one node, one poll at a time, and visits it beside the polls. Every failure is a value.

The session that was opened first goes on answering the polls. It cannot show that a new client gets
in. Therefore a visit logs in every few seconds, gets an answer, reads in sync, and leaves when the
next visit has come in: one open session can read in sync although no login works. What the logins
mean and when the next one is due is in `logins`, what the reads in sync mean in `sync`.

There are never more than three sessions: the serving one, which answers the polls, the guest, which
is the latest visit, and a login under way. `_come_in` says which of them a new session becomes.
"""

import asyncio
import contextlib
import dataclasses
import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from app.database.faults import (
    LOOKING_UP,
    is_error_of_server,
    outcome_of,
    poll_failure,
)
from app.database.logins import Logins, Outcome
from app.database.resolver import Resolver
from app.database.session import Session
from app.database.surroundings import Surroundings
from app.database.sync import Sync, gap_seconds
from app.deadline import boot_seconds, deadline
from app.settings.database import Database, Target
from app.verdict.alone import GROUP, SHOW_COUNTERS, Look, Stand, counters_of
from app.verdict.node_state import NodeState, PollFailure
from app.verdict.reason import Reason

_LIMITS_SECONDS = ((1.5, 1.0), (4.0, 1.0), (5.0, 25.0))
"""The limits for a login and its first answer, of the next one after it was late, and while the
server hangs, where no verdict waits. When many clients reconnect at once, a second or two is load.
A server that takes logins and hangs is left with two sessions a minute."""

_REPLACED_SECONDS = 25.0
"""How often sessions that answer no poll are replaced, for the same reason."""

_NO_GUEST_SECONDS, _AT_ONCE_SECONDS = 0.2, 1e-6
"""How soon to visit without a guest: the node may stand still, or return. The second is for a
serving session that has just logged in."""

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

_READING, _IN_SYNC = "reading the node's state", "reading in sync"
_LOST = PollFailure(
    Reason.CONNECTION_LOST, "the server closed the connection after the login"
)

_ANSWERS = (Reason.TOO_MANY_CONNECTIONS, Reason.ACCESS_DENIED, Reason.HOST_BLOCKED)
"""A server that answers a login so has not hung."""

_log = logging.getLogger(__name__)


class Poller:
    """Polls one node.

    deadline_seconds: the limit for one poll, with its login. login_interval_seconds: how often to
    visit the node; 0 never does, and never reads in sync. poll_interval_seconds: the longest pause
    between two polls. before: the poller that this one replaces; what it knows of the same server
    goes on. clock: counts suspend.

    A poll that fails on an open session tries again on a new one, so that a KILL costs no verdict.
    """

    logins = Logins()
    sync = Sync()
    told_seconds = 0.0
    _serving: Session | None = None
    _replaced_at = -math.inf
    _guest: Session | None = None
    # The login that is under way, and of the latest one, what its failure is described with.
    _login: asyncio.Task[None] | None = None
    _is_visit = False
    _target: Target | None = None
    _phase = "connecting"
    _file_stamps: Sequence[object] = ()
    _closed = False

    def __init__(
        self,
        database: Database,
        deadline_seconds: float,
        *,
        login_interval_seconds: float = 0.0,
        poll_interval_seconds: float = 1.0,
        before: "Poller | None" = None,
        surroundings: Surroundings | None = None,
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        self.database = database
        # How many logins since the start failed for each reason; None for those that did not fail.
        self.login_counts: Counter[Reason | None] = Counter()
        self._now = clock
        self._deadline_seconds = deadline_seconds
        self._login_interval_seconds = login_interval_seconds
        self._poll_interval_seconds = poll_interval_seconds
        longest_pause_seconds = max(poll_interval_seconds, login_interval_seconds)
        self._idle_seconds = _SPARE_IDLE_SECONDS + math.ceil(
            longest_pause_seconds + deadline_seconds
        )
        self._resolver = Resolver()
        self._surroundings = surroundings or Surroundings()
        self.stand = Stand(counted=Look(self._now()))
        self._leaving: set[asyncio.Task[Any]] = set()
        if before is not None:
            self.login_counts = before.login_counts
            # Without an interval, no read would ever end a wait.
            if before.database.server == database.server and login_interval_seconds:
                self.sync = before.sync.read_lost(self._now())
                self.stand = before.stand
                self.told_seconds = before.told_seconds
            if before.database == database:
                # A refused login is due at once: a reload says that something has changed.
                self.logins = before.logins.account_changed()

    @property
    def sync_wait_seconds(self) -> float | None:
        """See `Sync.wait_seconds`."""
        return self.sync.wait_seconds(self._now())

    async def poll(self) -> NodeState | PollFailure:
        """Poll the node within the deadline. Raises only CancelledError."""
        result: NodeState | PollFailure | None = None
        try:
            async with deadline(self._deadline_seconds):
                result = await self._result()
                if isinstance(result, NodeState):
                    await self._note_answer()
        except TimeoutError as fault:
            phase = self._phase if self._serving is None else _READING
            result = result or poll_failure(
                fault, self._target, phase, self._deadline_seconds
            )
        if isinstance(result, PollFailure):
            # A timeout may be that of the login that this poll has waited for.
            self.sync = self.sync.poll_failed(
                in_time=result.reason is not Reason.TIMEOUT,
                is_answer=result.reason in _ANSWERS,
            )
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
            sync.read_began_at if sync.waiting_since is None else -math.inf,
            counters_of(session.counted) | around,
        )
        self.stand = self.stand.after(look)
        return self.stand

    async def aclose(self) -> None:
        """Log out and close the connections, within 0.5 s. A poll under way then fails."""
        self._closed = True
        self._cancel_login()
        for session in (self._serving, self._guest):
            if session is not None:
                self._leave(asyncio.create_task(session.quit()))
        self._serving = self._guest = None
        if self._leaving:
            await asyncio.wait(self._leaving)

    async def _note_answer(self) -> None:
        """Wait for the read in sync that a node needs to return: our own pause costs no verdict."""
        if self.sync.unanswered and self._is_visit:
            # It may hang in what the server has left behind, and has the long limits.
            self._cancel_login()
        serving, interval_seconds = self._serving, self._login_interval_seconds
        longest_seconds = math.inf
        if serving is not None and serving.can_read_in_sync and interval_seconds:
            longest_seconds = gap_seconds(
                serving.suspect_seconds, self._poll_interval_seconds
            )
        self.sync = self.sync.poll_answered(self._now(), longest_seconds)
        while self.sync.is_returning(self._now()):
            self._begin_what_is_due()
            awaited = (self._guest.reading if self._guest else None) or self._login
            if awaited is None:
                break
            await asyncio.wait([awaited])

    async def _result(self) -> NodeState | PollFailure:
        self._begin_what_is_due()
        while self._serving is not None and self._serving.reading is not None:
            # Not used: the server may have sent the answer long ago.
            awaited = [task for task in (self._serving.reading, self._login) if task]
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        result = await self._read_serving()
        if isinstance(result, NodeState):
            return result
        # A visit may have come in meanwhile, or hang in what has ended the session.
        if self._serving is None:
            waits = self.logins.waits(self._now())
            if not waits and (self._login is None or self._is_visit):
                self._cancel_login()
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
            result = poll_failure(fault, self._target, _READING, self._deadline_seconds)
        session.reading = None
        if isinstance(result, PollFailure):
            # Also if the rows make no sense: perhaps they answer another statement.
            self._lose(session)
        return result

    def _begin_what_is_due(self) -> None:
        """Begin a read in sync, and a login beside the session that there is."""
        at, interval_seconds = self._now(), self._login_interval_seconds
        if self.logins.waits(at) and self.database.file_stamps() != self._file_stamps:
            self.logins = self.logins.account_changed()
        if self.sync.read_is_due(at, interval_seconds):
            self._begin_read_in_sync()
        if self._serving is None or self._login or self._leaving:
            return
        if interval_seconds and self._guest is None and self.logins.failure is None:
            interval_seconds = _NO_GUEST_SECONDS if self._is_visit else _AT_ONCE_SECONDS
        if self.logins.is_due(
            at, interval_seconds, session_answers=self._serving.reading is None
        ):
            self._begin_login()

    def _begin_login(self) -> None:
        if self._closed:
            return
        self.logins = self.logins.begun(self._now())
        self._is_visit = self._serving is not None
        self._login = asyncio.create_task(self._log_in())

    def _cancel_login(self) -> None:
        if self._login is not None:
            self._login.cancel()
            self._leave(self._login)
            self._login = None

    def _leave(self, leaving: asyncio.Task[Any]) -> None:
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    def _come_in(self, session: Session) -> None:
        """Let a session that has logged in answer the polls, or be the guest."""
        serving, guest, at = self._serving, self._guest, self._now()
        is_stuck = (
            serving is not None
            and serving.reading is not None
            and self.sync.unanswered
            # Not more often: each stays on a server that hangs.
            and at >= self._replaced_at + _REPLACED_SECONDS
        )
        if is_stuck:
            self._replaced_at = at
        if serving is None or is_stuck or serving.peer != session.peer:
            # The latter: the name of the host leads to another server.
            self._serving, leaver = session, serving
            if guest is not None and guest.peer != session.peer:
                self._lose(guest)
                self.sync = self.sync.nothing_reads()
        elif guest is None or guest.reading is None or self.sync.read_is_outdated:
            if guest is not None and guest.reading is not None:
                self.sync = self.sync.read_lost(at)
            self._guest, leaver = session, guest
            self._begin_read_in_sync()
        else:
            leaver = session
        if leaver is not None:
            self._leave(asyncio.create_task(leaver.quit()))

    def _lose(self, session: Session) -> None:
        """Close a session that did not answer as it should."""
        session.close()
        if session is self._serving:
            self._serving = None
        elif session is self._guest:
            self._guest = None

    def _begin_read_in_sync(self) -> None:
        guest = self._guest
        if (
            guest is not None
            and guest.reading is None
            and guest.can_read_in_sync
            and self._login_interval_seconds
        ):
            self.sync = self.sync.read_begun(self._now())
            guest.reading = asyncio.create_task(self._read_in_sync(guest))

    async def _read_in_sync(self, guest: Session) -> None:
        is_answered = False
        try:
            async with deadline(_SYNC_SECONDS):
                is_answered = await guest.read_in_sync()
        except Exception as fault:  # noqa: BLE001 (as in `_read`)
            self._note_lost_read(guest, fault)
        guest.reading = None
        # A guest that has been replaced says nothing about the read of the next one.
        if guest is self._guest:
            sync, at = self.sync, self._now()
            self.sync = sync.read_answered(at) if is_answered else sync.read_refused()
            if self.logins.outcome is Outcome.UNREAD:
                self._note(Outcome.ACCEPTED)

    def _note_lost_read(self, guest: Session, fault: Exception) -> None:
        if guest is self._guest:
            is_error, at = is_error_of_server(fault), self._now()
            self.sync = (
                self.sync.read_failed(at) if is_error else self.sync.read_lost(at)
            )
            self._guest = None
            if is_error or not guest.has_read_in_sync:
                failure = poll_failure(fault, self._target, _IN_SYNC, _SYNC_SECONDS)
                self._note(Outcome.UNREAD, failure)
        guest.close()

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

    async def _log_in(self) -> None:
        late = len(_LIMITS_SECONDS) if self.sync.unanswered else self.logins.rejections
        seconds, answer_seconds = _LIMITS_SECONDS[: late + 1][-1]
        try:
            async with deadline(seconds):
                self._file_stamps = self.database.file_stamps()
                self._target = target = self.database.target()
                addresses: list[str] = []
                if not target.socket:
                    self._phase = LOOKING_UP
                    addresses = await self._resolver.addresses(target.host)
                self._phase = "connecting"
                session = await Session.to(target, addresses)
            self._phase = "logging in"
            self.logins = self.logins.password_accepted()
            seconds = answer_seconds
            async with deadline(seconds):
                # What polls ask must work in the next session too.
                await session.prepare(self._idle_seconds, tries_read=self._is_visit)
        except Exception as fault:  # noqa: BLE001 (as in `_read`)
            failure = poll_failure(fault, self._target, self._phase, seconds)
            self._note(outcome_of(fault, failure, self._phase), failure)
        else:
            # The read in sync that follows says whether it is more.
            if self.logins.outcome is not Outcome.UNREAD:
                self._note(Outcome.ACCEPTED)
            self._come_in(session)
        finally:
            # A login that stays would be the last one. A cancelled one may have a successor.
            if self._login is asyncio.current_task():
                self._login = None

    def _note(self, outcome: Outcome, failure: PollFailure | None = None) -> None:
        if outcome is Outcome.REJECTED and self.sync.unanswered:
            # A poll that is under way says nothing: a login begins together with one.
            outcome = Outcome.HUNG
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
        # Without a session, and while the server hangs, the verdict itself says why.
        if (
            self._serving is None
            or self.logins.outcome in (Outcome.HUNG, before.outcome)
            or (failure is None and before.outcome is Outcome.HUNG)
        ):
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

    async def once() -> NodeState | PollFailure:
        async with contextlib.aclosing(Poller(database, deadline_seconds)) as poller:
            return await poller.poll()

    return asyncio.run(once())
