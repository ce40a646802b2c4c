"""Polls one node, one poll at a time, and logs in again beside the polls. Every failure is a value.

A session that was opened long ago shows the node's state, but not whether a new client can log in. Therefore the poller
logs in again every few seconds. When the new session has answered a poll, it takes the place of the old one. What a
failed login means depends on whose fault it is:

- The server takes no logins (see `faults.is_rejection`): no client gets in. After two such failures in a row, the
  second login made at once, `NodeState.rejects_logins` is set until a login succeeds.
- Anything else concerns the account or the path of clustercheckd. The session that works goes on, and `login_failure`
  says what is wrong.

There are never more than three sessions: one answers the polls, one logs in, one logs out. A session that does not
answer is kept until another one answers: to close it and open another one at each poll would use up the server's
connections.
"""

import asyncio
import contextlib
import dataclasses
import logging
import math
from collections import Counter

from app.database.connection import Connection
from app.database.faults import LOOKING_UP, is_refusal, is_rejection, poll_failure
from app.database.login import Database, Login
from app.database.resolver import Resolver
from app.database.session import Session
from app.deadline import deadline
from app.node_state import NodeState, PollFailure
from app.reason import Reason

_LOGIN_SECONDS = 5.0
"""How long a login may take. When many clients reconnect at once, a second or two is load, not a fault."""

_REJECTIONS = 2
"""After so many rejected logins in a row, the server takes none."""

_STUCK_SECONDS = 2.0
"""How often to log in while the session does not answer, if CLUSTERCHECK_LOGIN_INTERVAL is 0."""

_SPARE_IDLE_SECONDS = 30
"""How much longer than the longest pause between two polls the server keeps an idle session."""

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 5.0

_READING = "reading the node's state"

_log = logging.getLogger(__name__)


class Poller:
    """Polls one node.

    deadline_seconds: the limit for one poll, including the login if there is no session. login_interval_seconds: how
    often to log in again; 0 keeps one session. poll_interval_seconds: the longest pause between two polls.

    If a poll fails on an existing session, the same poll tries again on a new one. The node therefore stays available
    if an administrator kills the session, or the server's time limit ends a statement.
    """

    def __init__(
        self,
        database: Database,
        deadline_seconds: float,
        *,
        login_interval_seconds: float = 0.0,
        poll_interval_seconds: float = 1.0,
    ) -> None:
        # Why the latest login failed; None if it did not. account_refused: whether the account or the path was why.
        self.login_failure: PollFailure | None = None
        self.account_refused = False
        # How many logins since the start failed for each reason; None for those that did not fail.
        self.logins: Counter[Reason | None] = Counter()
        self._database = database
        self._deadline_seconds = deadline_seconds
        self._login_interval_seconds = login_interval_seconds
        self._idle_seconds = math.ceil(poll_interval_seconds + deadline_seconds) + _SPARE_IDLE_SECONDS
        self._resolver = Resolver()
        self._session: Session | None = None
        self._logging_in: asyncio.Task[Session | PollFailure] | None = None
        self._logging_out: asyncio.Task[None] | None = None
        self._login: Login | None = None
        self._login_phase = "connecting"
        self._login_began_at = -math.inf
        self._rejections = 0
        self._poll_answered = True
        self._pause_seconds = 0.0

    async def poll(self) -> NodeState | PollFailure:
        """Poll the node within the deadline, and return the result. Raises only CancelledError."""
        try:
            async with deadline(self._deadline_seconds):
                result = await self._result()
        except TimeoutError as fault:
            self._poll_answered = False
            phase = self._login_phase if self._session is None else _READING
            return poll_failure(fault, self._login, phase, self._deadline_seconds)
        self._poll_answered = True
        if isinstance(result, NodeState) and self.login_failure is not None and self._rejections >= _REJECTIONS:
            return dataclasses.replace(result, rejects_logins=self.login_failure.detail)
        return result

    async def aclose(self) -> None:
        """Log out and close the connection, within 0.5 s."""
        if self._logging_in is not None:
            self._logging_in.cancel()
            await asyncio.wait([self._logging_in])
            if not self._logging_in.cancelled():
                self._take_new_session()
        if self._session is not None:
            await self._session.quit()
        if self._logging_out is not None:
            await self._logging_out

    async def _result(self) -> NodeState | PollFailure:
        self._take_new_session()
        if self._is_login_due():
            self._begin_login()
        while self._session is not None and self._session.reading is not None:
            # An earlier poll waits for this answer too. It is not used: the server may have sent it long ago.
            awaited = {self._session.reading} if self._logging_in is None else {self._session.reading, self._logging_in}
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            self._take_new_session()
        if self._session is not None:
            result = await self._read(self._session)
            if self._session is not None:
                return result
        session = await self._log_in_now()
        return session if isinstance(session, PollFailure) else await self._read(session)

    async def _read(self, session: Session) -> NodeState | PollFailure:
        """Read the node's state. If that fails, close the session."""
        try:
            result = await session.read()
        except Exception as fault:  # noqa: BLE001 (the driver lets RuntimeError, struct.error and others through)
            result = poll_failure(fault, self._login, _READING, self._deadline_seconds)
        if isinstance(result, PollFailure):
            # Also if the rows make no sense: perhaps they answer another statement.
            session.close()
            if session is self._session:
                self._session = None
        return result

    async def _log_in_now(self) -> Session | PollFailure:
        """Return the session of a login, or why it failed, for a poll that has no session.

        Each refused login adds a line to the server's error log. After a refusal, the next logins are 1 s apart, then
        up to 5 s. Polls in between get the same refusal.
        """
        paused = self._since_login_seconds < self._pause_seconds
        if self._logging_in is None and self.login_failure is not None and paused:
            return self.login_failure
        login = self._logging_in or self._begin_login()
        await asyncio.wait([login])
        self._take_new_session()
        return login.result()

    def _is_login_due(self) -> bool:
        """Return whether to log in beside the session that there is."""
        logging_out = self._logging_out is not None and not self._logging_out.done()
        if self._session is None or self._logging_in is not None or logging_out:
            return False
        stuck_seconds = _STUCK_SECONDS if self._session.reading is not None else 0.0
        interval_seconds = self._login_interval_seconds or stuck_seconds
        return interval_seconds > 0 and max(interval_seconds, self._pause_seconds) <= self._since_login_seconds

    @property
    def _since_login_seconds(self) -> float:
        return asyncio.get_running_loop().time() - self._login_began_at

    def _take_new_session(self) -> None:
        """If a login has succeeded, use its session for the polls, and log out of the one before."""
        if self._logging_in is None or not self._logging_in.done():
            return
        outcome, self._logging_in = self._logging_in.result(), None
        if isinstance(outcome, Session):
            if self._session is not None:
                self._logging_out = asyncio.create_task(self._session.quit())
            self._session = outcome

    def _begin_login(self) -> asyncio.Task[Session | PollFailure]:
        self._login_began_at = asyncio.get_running_loop().time()
        self._logging_in = asyncio.create_task(self._log_in())
        return self._logging_in

    async def _log_in(self) -> Session | PollFailure:
        """Return a new session; if it is to replace another one, only after it has answered a poll."""
        outcome = await self._try_login(_LOGIN_SECONDS)
        if self._rejections == 1 and self._session is not None:
            outcome = await self._try_login(self._deadline_seconds)
        if isinstance(outcome, Session) and self._session is not None:
            try:
                result = await self._read(outcome)
            except asyncio.CancelledError:
                outcome.close()
                raise
            return result if isinstance(result, PollFailure) else outcome
        return outcome

    async def _try_login(self, seconds: float) -> Session | PollFailure:
        try:
            async with deadline(seconds):
                session = await self._connect()
        except Exception as fault:  # noqa: BLE001 (the driver lets RuntimeError, struct.error and others through)
            failure = poll_failure(fault, self._login, self._login_phase, seconds)
            self._note_failed_login(fault, failure)
            return failure
        if self.account_refused and self._session is not None:
            _log.info("login works again")
        self.logins[None] += 1
        self.login_failure, self.account_refused = None, False
        self._rejections, self._pause_seconds = 0, 0.0
        return session

    async def _connect(self) -> Session:
        self._login = login = self._database.login()
        addresses: list[str] = []
        if not login.socket:
            self._login_phase = LOOKING_UP
            addresses = await self._resolver.addresses(login.host)
        self._login_phase = "connecting"
        # The server is the same as long as a session lives.
        known = self._session.known if self._session is not None else ()
        session = Session(await Connection.to(login, addresses), known)
        self._login_phase = "logging in"
        try:
            await session.begin(self._idle_seconds)
        except BaseException:
            session.close()
            raise
        return session

    def _note_failed_login(self, fault: Exception, failure: PollFailure) -> None:
        self.logins[failure.reason] += 1
        rejected = is_rejection(fault, failure, self._login_phase)
        if rejected and self._session is not None and not self._poll_answered:
            # The session gets no answer either: the server hangs, and the polls say so. A poll that is under way says
            # nothing: a login begins together with one.
            self._rejections = 0
        elif rejected:
            self._rejections += 1
        elif self._rejections < _REJECTIONS:
            self._rejections = 0
        if is_refusal(fault, failure):
            self._pause_seconds = min(max(2 * self._pause_seconds, _FIRST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)
        else:
            # A server that does not answer has nothing to log: it may be back at the next poll.
            self._pause_seconds = 0.0
        # Without a session, the verdict itself says why.
        if not rejected and self._session is not None and not self.account_refused:
            detail = f"{failure.detail}; the session that is open goes on"
            _log.warning("login failed", extra={"reason": failure.reason.value, "detail": detail})
        self.account_refused = not rejected
        self.login_failure = failure


def poll_once(database: Database, deadline_seconds: float) -> NodeState | PollFailure:
    """Poll a node once, from code without an event loop, and return the result."""

    async def once() -> NodeState | PollFailure:
        async with contextlib.aclosing(Poller(database, deadline_seconds)) as poller:
            return await poller.poll()

    return asyncio.run(once())
