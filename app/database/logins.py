"""What the outcomes of logins say about the server, and when the next login is due. Pure."""

import math
from enum import Enum
from typing import NamedTuple

from app.verdict.node_state import PollFailure

_REJECTIONS = 2
"""So many in a row are no accident."""

_REJECTED_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 60.0
_MOST_DOUBLINGS = 7

_LIMITS_SECONDS = (1.5, 4.0)
"""The limits of a login, and of the next one: a second or two may be load."""

_PATIENT_SECONDS = 60.0

_HUNG_SECONDS = 2.0
"""While the open session gets no answer, at the latest."""


class Outcome(Enum):
    """How a login ended."""

    ACCEPTED = "the server takes logins"
    REJECTED = "the server takes none: no client gets in"
    REFUSED = "the server takes logins, but not of our account"
    DELAYED = "no answer after a refusal: connection_control delays the account, not other clients"
    ANSWERED = "the server takes logins, but something else is wrong: it is full"
    UNREAD = "the server takes our logins, but each fails as it reads in sync"
    FAILED = "the path, or clustercheckd itself: nobody knows whether clients get in"


_NONE, _ONE_MORE, _AS_BEFORE = (0, 0), (1, 1), (1, 0)

EFFECTS = {
    #                 rejections in a row, refusals since the last login that was accepted
    Outcome.ACCEPTED: (_NONE, _NONE),
    Outcome.REJECTED: (_ONE_MORE, _AS_BEFORE),
    Outcome.REFUSED: (_NONE, _ONE_MORE),
    Outcome.DELAYED: (_AS_BEFORE, _ONE_MORE),
    Outcome.ANSWERED: (_NONE, _AS_BEFORE),
    Outcome.UNREAD: (_NONE, _NONE),
    Outcome.FAILED: (_AS_BEFORE, _AS_BEFORE),
}

_REFUSALS = (Outcome.REFUSED, Outcome.DELAYED)
"""Each is a line in the server's log, and may count towards max_password_errors. The next login
waits for 1, 2, 4, .. 60 s."""

NO_SESSION = (*_REFUSALS, Outcome.FAILED)
"""Nobody knows whether clients get one."""


class Logins(NamedTuple):
    """What all logins so far say. A method that names an event returns the value after it.

    failure: why the latest was not accepted. rejected: why the server takes no logins. rejections
    and refusals: see `EFFECTS`.
    """

    began_at: float = -math.inf
    outcome: Outcome | None = None
    failure: PollFailure | None = None
    rejections: int = 0
    rejected: PollFailure | None = None
    refusals: int = 0

    @property
    def account_refused(self) -> bool:
        """Whether the latest login failed, but was not rejected."""
        return self.failure is not None and self.outcome is not Outcome.REJECTED

    @property
    def may_be_accident(self) -> bool:
        """Whether the latest login was rejected, but not the one before."""
        return self.outcome is Outcome.REJECTED and self.rejections < _REJECTIONS

    def limit_seconds(self, left: int) -> float:
        """How long the next login may take. left: how many sessions a server keeps that hangs.

        It may delay one that follows a refusal.
        """
        if self.refusals or left > len(_LIMITS_SECONDS) - 1:
            return _PATIENT_SECONDS
        return _LIMITS_SECONDS[min(self.rejections, 1)]

    def waits(self, at: float) -> bool:
        """Whether the next login waits after a refusal."""
        doubled_seconds = 2.0 ** min(self.refusals, _MOST_DOUBLINGS) / 2
        pause_seconds = min(doubled_seconds, _LONGEST_PAUSE_SECONDS)
        # While no client gets in, the next login must not be late.
        is_refused = self.outcome in _REFUSALS and self.rejected is None
        return is_refused and at < self.began_at + pause_seconds

    def is_due(
        self, at: float, interval_seconds: float, *, session_answers: bool
    ) -> bool:
        """Whether to log in beside the session. interval_seconds: 0 for only in trouble."""
        if self.waits(at):
            return False
        if self.may_be_accident:
            return True
        limit_seconds = math.inf if self.rejected is None else _REJECTED_PAUSE_SECONDS
        if not session_answers:
            limit_seconds = _HUNG_SECONDS
        return at >= self.began_at + min(interval_seconds or math.inf, limit_seconds)

    def begun(self, at: float) -> "Logins":
        """Note that one begins."""
        return self._replace(began_at=at)

    def account_changed(self) -> "Logins":
        """Note that the account has changed: a login is due."""
        return self._replace(began_at=-math.inf, refusals=min(self.refusals, 1))

    def ended(self, outcome: Outcome, failure: PollFailure | None = None) -> "Logins":
        """Note how one ended."""
        (keep_rejections, rejected_now), (keep_refusals, refused_now) = EFFECTS[outcome]
        rejections = keep_rejections * self.rejections + rejected_now
        refusals = keep_refusals * self.refusals + refused_now
        rejected = failure if rejected_now else self.rejected
        if rejections < _REJECTIONS:
            rejected = None
        return Logins(
            self.began_at,
            outcome,
            failure,
            rejections,
            rejected,
            refusals,
        )
