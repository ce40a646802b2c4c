"""Polls one node, one poll at a time, and logs in again beside the polls. Every failure is a value.

A session that was opened long ago shows the node's state, but not whether a new client can log in.
Therefore the poller logs in again every few seconds. When the new session has answered a poll, it
takes the place of the old one, which reads in sync as its last act. What the logins mean and when
the next one is due is in `logins`, and what the reads in sync mean in `sync`.

There are never more than three sessions. Each has a slot, and each slot its own time limit:

    serving   answers the polls. One that does not answer is kept until another one does: to open
              another one at each poll would use up the server's connections.
    login     becomes the next one: 5 s to log in, and 25 s to answer its first statements. A login
              beside the serving session answers a poll too before it takes its place.
    last act  the session before, which reads in sync: 60 s. The server itself gives up after 30 s.
    leaving   sessions that log out: 0.5 s. Until they have, no login begins beside.
"""

import asyncio
import contextlib
import dataclasses
import logging
import math
from collections import Counter
from typing import Any

from app.database.connection import Connection
from app.database.faults import LOOKING_UP, outcome_of, poll_failure
from app.database.logins import Logins, Outcome
from app.database.resolver import Resolver
from app.database.session import Session
from app.database.sync import Sync
from app.deadline import deadline
from app.settings.target import Database, Login
from app.verdict.node_state import NodeState, PollFailure
from app.verdict.reason import Reason

_LOGIN_SECONDS = 5.0
"""How long a login may take. When many clients reconnect at once, a second or two is load, not a
fault."""

_FIRST_ANSWERS_SECONDS = 25.0
"""How long a new session may take to answer. Two sessions that never answer cost a minute, and a
server that takes logins and hangs is not left with more than two sessions a minute."""

_SYNC_SECONDS = 60.0

_NEXT_SYNC_SECONDS = 1.0
"""How soon to log in for the next read in sync, after one that was refused, lost or too late."""

_SPARE_IDLE_SECONDS = 30
"""How much longer than the longest pause between two polls the server keeps an idle session."""

_TOLD_SECONDS = 1.0
"""After a wait of so many seconds, the log tells of a read in sync."""

_READING = "reading the node's state"

_log = logging.getLogger(__name__)


class _Attempt:
    """A login that is under way.

    beside: whether it began beside a session. login and phase: for the words of its failure.
    """

    beside = False
    login: Login | None = None
    phase = "connecting"
    task: asyncio.Task[Session | PollFailure]


class Poller:
    """Polls one node.

    deadline_seconds: the limit for one poll, including the login if there is no session.
    login_interval_seconds: how often to log in again and read in sync; 0 keeps one session and
    never reads in sync. poll_interval_seconds: the longest pause between two polls.

    If a poll fails on an existing session, the same poll tries again on a new one. The node
    therefore stays available if an administrator kills the session, or the server's time limit ends
    a statement.
    """

    def __init__(
        self,
        database: Database,
        deadline_seconds: float,
        *,
        login_interval_seconds: float = 0.0,
        poll_interval_seconds: float = 1.0,
    ) -> None:
        self.logins = Logins()
        # How many logins since the start failed for each reason; None for those that did not fail.
        self.login_counts: Counter[Reason | None] = Counter()
        self._database = database
        self._deadline_seconds = deadline_seconds
        self._login_interval_seconds = login_interval_seconds
        self._idle_seconds = (
            math.ceil(poll_interval_seconds + deadline_seconds) + _SPARE_IDLE_SECONDS
        )
        self._resolver = Resolver()
        self._sync = Sync()
        self._told_seconds = 0.0
        self._latest = _Attempt()
        # The slots: see this module's docstring.
        self._serving: Session | None = None
        self._login: _Attempt | None = None
        self._last_act: asyncio.Task[None] | None = None
        self._leaving: set[asyncio.Task[Any]] = set()

    @property
    def sync_wait_seconds(self) -> float | None:
        """For how long no read in sync has been answered.

        0 if the latest was, None if there was none.
        """
        return self._sync.wait_seconds(_now())

    async def poll(self) -> NodeState | PollFailure:
        """Poll the node within the deadline, and return the result. Raises only CancelledError."""
        began_at = _now()
        try:
            async with deadline(self._deadline_seconds):
                result = await self._result()
        except TimeoutError as fault:
            self._sync = self._sync.poll_unanswered(began_at)
            phase = self._latest.phase if self._serving is None else _READING
            return poll_failure(fault, self._latest.login, phase, self._deadline_seconds)
        if isinstance(result, PollFailure):
            if result.reason is Reason.TIMEOUT:
                # That of a login, which this poll has waited for.
                self._sync = self._sync.poll_unanswered(began_at)
            elif result.reason is not Reason.UNREACHABLE:
                self._sync = self._sync.poll_failed()
            return result
        self._sync = self._sync.poll_answered(
            _now(), can_read=self._can_read_in_sync(self._serving)
        )
        self._begin_login_if_due()
        self._tell_of_sync()
        return self._with_own_findings(result)

    async def aclose(self) -> None:
        """Log out and close the connections, within 0.5 s."""
        self._use_new_session()
        self._cancel_login()
        if self._last_act is not None:
            self._last_act.cancel()
            self._await_end_of(self._last_act)
        if self._serving is not None:
            self._await_end_of(asyncio.create_task(self._serving.quit()))
        await asyncio.gather(*self._leaving, return_exceptions=True)

    def _with_own_findings(self, state: NodeState) -> NodeState:
        """Add to the node's state what the logins and the reads in sync say."""
        rejected = self.logins.rejected
        return dataclasses.replace(
            state,
            rejects_logins=None if rejected is None else rejected.detail,
            returning=self._sync.is_returning(_now()),
            sync_wait_seconds=self.sync_wait_seconds,
            sync_refused=self._sync.refused,
        )

    async def _result(self) -> NodeState | PollFailure:
        self._use_new_session()
        self._begin_login_if_due()
        while self._serving is not None and self._serving.reading is not None:
            # An earlier poll waits for this answer too. It is not used: the server may have sent it
            # long ago.
            awaited: set[asyncio.Task[Any]] = {self._serving.reading}
            if self._login is not None:
                awaited.add(self._login.task)
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            self._use_new_session()
        if self._serving is not None:
            result = await self._read(self._serving)
            if isinstance(result, NodeState):
                return result
            # A login may have ended meanwhile.
            self._use_new_session()
        session = self._serving or await self._log_in_now()
        return session if isinstance(session, PollFailure) else await self._read(session)

    async def _read(self, session: Session) -> NodeState | PollFailure:
        """Read the node's state. If that fails, close the session."""
        try:
            result = await session.read()
        except Exception as fault:  # noqa: BLE001 (the driver lets RuntimeError, struct.error and others through)
            result = poll_failure(fault, self._latest.login, _READING, self._deadline_seconds)
        if isinstance(result, PollFailure):
            # Also if the rows make no sense: perhaps they answer another statement.
            session.close()
            if session is self._serving:
                self._serving = None
        return result

    async def _log_in_now(self) -> Session | PollFailure:
        """Return a session for a poll that has none, or why there is none."""
        attempt = self._login
        if attempt is None or attempt.beside:
            refusal = self.logins.refusal(_now())
            if refusal is None:
                # A login beside may hang in what has ended the session.
                self._cancel_login()
                attempt = self._begin(beside=False)
            elif attempt is None:
                return refusal
        await asyncio.wait([attempt.task])
        self._use_new_session()
        return attempt.task.result()

    def _begin_login_if_due(self) -> None:
        """Begin a login beside the session that there is."""
        if self._serving is None or self._login is not None or self._leaving:
            return
        interval_seconds = self._login_interval_seconds
        if self._sync.is_returning(_now()) or (self._last_act is None and self.sync_wait_seconds):
            # The next read must not be late to see that the node is back.
            interval_seconds = min(interval_seconds, _NEXT_SYNC_SECONDS)
        is_first = interval_seconds and self.login_counts.total() == 1
        if is_first or self._sync.is_returning_since(self.logins.began_at):
            # At once: after a start, the node may stand still, and after a hang, it returns with a
            # read in sync.
            interval_seconds = 1e-6
        if self.logins.is_due(
            _now(), interval_seconds, session_answers=self._serving.reading is None
        ):
            self._begin(beside=True)

    def _can_read_in_sync(self, session: Session | None) -> bool:
        return self._login_interval_seconds > 0 and session is not None and session.can_read_in_sync

    def _begin(self, *, beside: bool) -> _Attempt:
        self.logins = self.logins.begun(_now())
        self._login = self._latest = attempt = _Attempt()
        attempt.beside = beside
        log_in = self._log_in_beside if beside else self._log_in
        attempt.task = asyncio.create_task(log_in(attempt))
        attempt.task.add_done_callback(self._login_ended)
        return attempt

    def _cancel_login(self) -> None:
        if self._login is not None:
            self._login.task.cancel()
            self._await_end_of(self._login.task)
            self._login = None

    def _login_ended(self, _task: asyncio.Task[Session | PollFailure]) -> None:
        # At once, so that no read in sync waits for the next poll. But not while a poll uses the
        # session before.
        if self._serving is None or self._serving.reading is None:
            self._use_new_session()

    def _use_new_session(self) -> None:
        """Let the session of a login that has ended answer the polls."""
        if self._login is None or not self._login.task.done():
            return
        outcome = self._login.task.result()
        self._login = None
        if isinstance(outcome, Session):
            if self._serving is not None:
                self._let_go(self._serving)
            self._serving = outcome

    def _let_go(self, session: Session) -> None:
        """Read in sync over a session that was replaced, if nothing waits for that yet.

        Then log out.
        """
        if self._can_read_in_sync(session) and session.reading is None and self._last_act is None:
            self._last_act = asyncio.create_task(self._read_in_sync(session))
            self._last_act.add_done_callback(lambda _: self._end_last_act(session))
        else:
            self._await_end_of(asyncio.create_task(session.quit()))

    def _await_end_of(self, leaving: asyncio.Task[Any]) -> None:
        self._leaving.add(leaving)
        leaving.add_done_callback(self._leaving.discard)

    async def _read_in_sync(self, session: Session) -> None:
        self._sync = self._sync.read_begun(_now())
        try:
            async with deadline(_SYNC_SECONDS):
                answered = await session.read_in_sync()
            self._sync = self._sync.read_answered(_now()) if answered else self._sync.read_refused()
            await session.quit()
        except Exception:  # noqa: BLE001 (as in `_read`)
            self._sync = self._sync.read_lost(_now())

    def _end_last_act(self, session: Session) -> None:
        # Not in the task itself: one that is cancelled before its first step does nothing.
        session.close()
        self._last_act = None

    def _tell_of_sync(self) -> None:
        """Log once that a read in sync waits, and once that one was answered."""
        wait_seconds = self.sync_wait_seconds
        if wait_seconds is not None and wait_seconds >= _TOLD_SECONDS:
            if not self._told_seconds:
                detail = "the node has not applied what its group has ordered"
                _log.warning("not in sync", extra={"detail": detail})
            self._told_seconds = wait_seconds
        elif wait_seconds == 0.0 and self._told_seconds:
            _log.info("in sync again", extra={"seconds": round(self._told_seconds, 1)})
            self._told_seconds = 0.0

    async def _log_in_beside(self, attempt: _Attempt) -> Session | PollFailure:
        """Return a session that is to replace another one, after it has answered a poll."""
        outcome = await self._log_in(attempt)
        if isinstance(outcome, PollFailure) and self.logins.again_at_once:
            # One that was cut short says nothing about how long the next one takes.
            seconds = self._deadline_seconds if outcome.reason is Reason.TIMEOUT else _LOGIN_SECONDS
            outcome = await self._log_in(attempt, seconds)
        return outcome

    async def _log_in(
        self, attempt: _Attempt, seconds: float = _LOGIN_SECONDS
    ) -> Session | PollFailure:
        """Return a new session, or why there is none. seconds: the limit until it has logged in."""
        with contextlib.ExitStack() as unless_accepted:
            try:
                async with deadline(seconds):
                    session = await self._connect(attempt)
                unless_accepted.callback(session.close)
                seconds = _FIRST_ANSWERS_SECONDS
                async with deadline(seconds):
                    await session.begin(self._idle_seconds)
                    if attempt.beside:
                        attempt.phase = _READING
                        state = await session.read()
                        if isinstance(state, PollFailure):
                            self._note(Outcome.FAILED, state)
                            return state
            except Exception as fault:  # noqa: BLE001 (as in `_read`)
                failure = poll_failure(fault, attempt.login, attempt.phase, seconds)
                self._note(outcome_of(fault, failure, attempt.phase), failure)
                return failure
            unless_accepted.pop_all()
            self._note(Outcome.ACCEPTED)
            return session

    async def _connect(self, attempt: _Attempt) -> Session:
        attempt.login = login = self._database.login()
        addresses: list[str] = []
        if not login.socket:
            attempt.phase = LOOKING_UP
            addresses = await self._resolver.addresses(login.host)
        attempt.phase = "connecting"
        session = Session(await Connection.to(login, addresses))
        attempt.phase = "logging in"
        return session

    def _note(self, outcome: Outcome, failure: PollFailure | None = None) -> None:
        """Note how a login has ended."""
        if outcome is Outcome.REJECTED and self._sync.hung_since is not None:
            # A poll that is under way says nothing: a login begins together with one.
            outcome = Outcome.HUNG
        self.login_counts[None if failure is None else failure.reason] += 1
        before, self.logins = self.logins, self.logins.ended(outcome, failure)
        # Clients pile up behind a wait: that the server is full does not end it.
        if (
            self.logins.account_refused
            and self._last_act is None
            and not (outcome is Outcome.ANSWERED and self.sync_wait_seconds)
        ):
            self._sync = self._sync.nothing_reads()
        # Without a session, and while the server hangs, the verdict itself says why.
        if (
            self._serving is None
            or outcome in (Outcome.HUNG, before.outcome)
            or (failure is None and before.outcome is Outcome.HUNG)
        ):
            return
        if failure is not None:
            detail = f"{failure.detail}; the session that is open goes on"
            _log.warning("login failed", extra={"reason": failure.reason, "detail": detail})
        elif before.failure is not None:
            _log.info("login works again")


def _now() -> float:
    return asyncio.get_running_loop().time()


def poll_once(database: Database, deadline_seconds: float) -> NodeState | PollFailure:
    """Poll a node once, from code without an event loop, and return the result."""

    async def once() -> NodeState | PollFailure:
        async with contextlib.aclosing(Poller(database, deadline_seconds)) as poller:
            return await poller.poll()

    return asyncio.run(once())
