"""The log of the verdict's changes: one line for each change, unless the node flaps.

When the same verdict begins for the third time within 30 s, the node flaps. Its changes are then counted, not logged:
one line gives their number at once, and another one every minute while the node flaps. Once a verdict has lasted 10 s,
it is logged as usual, with the number of changes that were not logged.
"""

import logging
from collections import deque
from collections.abc import Callable

from app.reason import Reason
from app.verdict import Verdict

_FLAPPING_COUNT = 3
_FLAPPING_WINDOW_SECONDS = 30.0
_CALM_SECONDS = 10.0
_REPEAT_SECONDS = 60.0

_log = logging.getLogger(__name__)


class ChangeLog:
    """Logs the changes of the verdict. clock returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._recent: deque[tuple[float, Verdict]] = deque()
        self._was: Reason | None = None
        self._flapping = False
        self._unlogged = 0
        self._logged_at = 0.0

    def changed(self, verdict: Verdict) -> None:
        """Log the new verdict or, if the node flaps, count it."""
        now = self._clock()
        if self._recent:
            self._was = self._recent[-1][1].reason
        self._recent.append((now, verdict))
        # The latest change always stays, however old it becomes: `unchanged` needs it.
        while now - self._recent[0][0] > _FLAPPING_WINDOW_SECONDS:
            self._recent.popleft()
        if self._flapping:
            self._unlogged += 1
            if now - self._logged_at >= _REPEAT_SECONDS:
                self._log_flapping(self._unlogged, now - self._logged_at)
        elif self._recent_count_of(verdict) >= _FLAPPING_COUNT:
            self._flapping = True
            self._log_flapping(len(self._recent), now - self._recent[0][0])
        else:
            self._log_change()

    def unchanged(self) -> None:
        """Log the verdict of a node that flapped, once the verdict has lasted 10 s. Call it after every poll."""
        if self._flapping and self._clock() - self._recent[-1][0] >= _CALM_SECONDS:
            self._flapping = False
            self._log_change()

    def _recent_count_of(self, verdict: Verdict) -> int:
        return sum((other.available, other.reason) == (verdict.available, verdict.reason) for _, other in self._recent)

    def _log_change(self) -> None:
        verdict = self._recent[-1][1]
        _log.log(
            logging.INFO if verdict.available or verdict.draining else logging.WARNING,
            "available" if verdict.available else "draining" if verdict.draining else "unavailable",
            extra={
                "reason": verdict.reason.value,
                "was": self._was and self._was.value,
                "planned": verdict.draining or None,
                "changes": self._unlogged or None,
                "detail": verdict.detail,
            },
        )
        self._unlogged = 0

    def _log_flapping(self, changes: int, seconds: float) -> None:
        verdict = self._recent[-1][1]
        fields = {"reason": verdict.reason.value, "was": self._was and self._was.value}
        _log.warning("flapping", extra={**fields, "changes": changes, "seconds": round(seconds, 1)})
        self._unlogged = 0
        self._logged_at = self._clock()
