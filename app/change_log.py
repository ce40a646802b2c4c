"""The log of the verdict's changes: a line for each, but for those of a node that flaps.

A verdict that begins for the third time within 30 s is told as flapping: one line with the number of changes, and
another each minute that it goes on. Once a verdict has lasted 10 s it gets its line as usual, with the number of
changes that got none.
"""

import logging
from collections import deque
from collections.abc import Callable

from app.verdict import Reason, Verdict

_BEGINNINGS = 3
_WITHIN_SECONDS = 30.0
_CALM_SECONDS = 10.0
_TELL_SECONDS = 60.0

_log = logging.getLogger(__name__)


class ChangeLog:
    """Logs changes of the verdict. clock returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun: deque[tuple[float, Verdict]] = deque()
        self._was: Reason | None = None
        self._flapping = False
        self._untold = 0
        self._told_at = 0.0

    def changed(self, verdict: Verdict) -> None:
        """Log that this is the verdict now, or count it."""
        now = self._clock()
        if self._begun:
            self._was = self._begun[-1][1].reason
        self._begun.append((now, verdict))
        # The latest one is kept, however old it gets.
        while now - self._begun[0][0] > _WITHIN_SECONDS:
            self._begun.popleft()
        if self._flapping:
            self._untold += 1
            if now - self._told_at >= _TELL_SECONDS:
                self._tell_flapping(self._untold, now - self._told_at)
        elif self._beginnings_of(verdict) >= _BEGINNINGS:
            self._flapping = True
            self._tell_flapping(len(self._begun), now - self._begun[0][0])
        else:
            self._tell()

    def unchanged(self) -> None:
        """Log the verdict of a node that flapped, once it has lasted."""
        if self._flapping and self._clock() - self._begun[-1][0] >= _CALM_SECONDS:
            self._flapping = False
            self._tell()

    def _beginnings_of(self, verdict: Verdict) -> int:
        return sum((other.available, other.reason) == (verdict.available, verdict.reason) for _, other in self._begun)

    def _tell(self) -> None:
        verdict = self._begun[-1][1]
        _log.log(
            logging.INFO if verdict.available or verdict.draining else logging.WARNING,
            "available" if verdict.available else "unavailable",
            extra={
                "reason": verdict.reason.value,
                "was": self._was and self._was.value,
                "planned": verdict.draining or None,
                "changes": self._untold or None,
                "detail": verdict.detail,
            },
        )
        self._untold = 0

    def _tell_flapping(self, changes: int, seconds: float) -> None:
        verdict = self._begun[-1][1]
        fields = {"reason": verdict.reason.value, "was": self._was and self._was.value}
        _log.warning("flapping", extra={**fields, "changes": changes, "seconds": round(seconds, 1)})
        self._untold = 0
        self._told_at = self._clock()
