"""The changes of the verdict: kept, counted and logged."""

import logging
from collections import Counter, deque
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from app.verdict.reason import Reason
from app.verdict.rules import Verdict

_log = logging.getLogger(__name__)

_KEPT = 50


@dataclass(frozen=True)
class Change(Verdict):
    """A change of the verdict under the configured policy."""

    at: datetime


class Changes(deque[Change]):
    """The latest changes, oldest first. counts: of all since the start, by the new reason."""

    def __init__(self) -> None:
        super().__init__(maxlen=_KEPT)
        self.counts: Counter[Reason] = Counter()

    def note(self, verdict: Verdict) -> None:
        """Record and log the verdict if it is a change."""
        last = self[-1] if self else None
        if last is not None and (last.available, last.reason) == (
            verdict.available,
            verdict.reason,
        ):
            return
        self.append(Change(**asdict(verdict), at=datetime.now(UTC)))
        self.counts[verdict.reason] += 1
        _log.log(
            logging.INFO if verdict.available or verdict.draining else logging.WARNING,
            "unavailable" if verdict.word == "NOT available" else verdict.word,
            extra={
                "reason": verdict.reason,
                "was": None if last is None else last.reason,
                "planned": verdict.draining or None,
                "detail": verdict.detail,
            },
        )
