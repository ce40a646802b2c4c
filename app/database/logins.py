"""What the outcomes of logins say about the server, and when the next login is due.

Pure: no socket, no clock.

An open session cannot tell whether the server takes new clients. Therefore the poller logs in again
and again, and each login ends with one of these outcomes:

    outcome   what it means                                      rejected   next login
                                                                 in a row
    accepted  the server takes logins                            0          after the interval
    rejected  the server takes none: no client gets in           one more   at once after the first,
                                                                            then after a second
    hung      the same, but the open session gets no answer      0          after the interval
              either: the polls say so
    refused   the server takes logins, but not of our account    0          after 1, 2, 4, 5, 5 s
    answered  the same, but something else is wrong: it is full  0          after the interval
    failed    the path, or clustercheckd itself: nobody knows    as before  after the interval
              whether clients get in

The server takes no logins if two in a row were rejected: one may be an accident. A refused login
adds a line to the server's error log, so the next one waits. While no session is open, each poll
logs in, unless a refused one waits.
"""

import math
from dataclasses import dataclass, replace
from enum import Enum

from app.verdict.node_state import PollFailure

_REJECTIONS = 2
_REJECTED_PAUSE_SECONDS = 1.0
_REFUSED_PAUSES_SECONDS = (0.0, 1.0, 2.0, 4.0, 5.0)

_HUNG_SECONDS = 2.0
"""How often to log in while the open session gets no answer, if the interval is longer or there is
none."""


class Outcome(Enum):
    """How a login ended: see the table of this module."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    HUNG = "hung"
    REFUSED = "refused"
    ANSWERED = "answered"
    FAILED = "failed"


@dataclass(frozen=True)
class Logins:
    """What all logins so far say. All times are of one clock, in seconds.

    began_at: when the latest login began. outcome: how the latest one ended. failure: why, None if
    it was accepted. rejections: how many were rejected in a row. rejected: why the server takes no
    logins; None if it does. refusals: how many were refused in a row.
    """

    began_at: float = -math.inf
    outcome: Outcome | None = None
    failure: PollFailure | None = None
    rejections: int = 0
    rejected: PollFailure | None = None
    refusals: int = 0

    @property
    def again_at_once(self) -> bool:
        """Whether to log in once more before anything is said about the server."""
        return self.outcome is Outcome.REJECTED and self.rejections < _REJECTIONS

    @property
    def account_refused(self) -> bool:
        """Whether the latest login failed because of the account or the path to the server."""
        return self.outcome in (Outcome.REFUSED, Outcome.ANSWERED, Outcome.FAILED)

    def refusal(self, at: float) -> PollFailure | None:
        """Return why our account was refused, if the next login waits for that."""
        pause_seconds = _REFUSED_PAUSES_SECONDS[: self.refusals + 1][-1]
        return self.failure if at < self.began_at + pause_seconds else None

    def is_due(self, at: float, interval_seconds: float, *, session_answers: bool) -> bool:
        """Return whether to log in beside the session that is open.

        interval_seconds: 0 if only a session that gets no answer, or a server that takes no logins,
        is a reason.
        """
        if self.refusal(at) is not None:
            return False
        seconds = interval_seconds or math.inf
        if not session_answers:
            seconds = min(seconds, _HUNG_SECONDS)
        elif self.rejected is not None:
            seconds = min(seconds, _REJECTED_PAUSE_SECONDS)
        return at >= self.began_at + seconds

    def begun(self, at: float) -> "Logins":
        """Return the value after a login has begun."""
        return replace(self, began_at=at)

    def ended(self, outcome: Outcome, failure: PollFailure | None = None) -> "Logins":
        """Return the value after a login has ended. failure: why it was not accepted."""
        rejections = 0
        rejected = None
        if outcome is Outcome.REJECTED:
            rejections = self.rejections + 1
            rejected = failure if rejections >= _REJECTIONS else None
        elif outcome is Outcome.FAILED:
            rejections = self.rejections
            rejected = self.rejected
        refusals = self.refusals + 1 if outcome is Outcome.REFUSED else 0
        return Logins(self.began_at, outcome, failure, rejections, rejected, refusals)
