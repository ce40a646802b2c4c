"""The loop that observes the node, the latest observation, and the changes of verdict."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from app.database.observer import ObservesNode
from app.node_state import Cause, NodeState, Unobserved
from app.verdict import Policy, Switches, Verdict, decide

_log = logging.getLogger(__name__)

SLACK_SECONDS = 0.1
"""How much longer than interval + deadline an observation may be served: the time the loop may need to notice that
the next one has failed. Without it that failure's own reason would be hidden behind a moment of `stale`."""

_CHANGES_KEPT = 50
_TIMER_SECONDS = 0.01  # event loops' timers may be some milliseconds early
_TURNS_MISSED = 3
"""The turns (an observation takes interval + deadline at the most) after which a loop that brings nothing is not slow,
but stuck. The turns are counted by a timer of the same event loop: one that was stopped as a whole (SIGSTOP, a paused
machine) and goes on needs no restart."""
_OBSERVER_FAILED = Unobserved(Cause.ERROR, "clustercheckd failed to read the node, see its log")


@dataclass(frozen=True, slots=True)
class Change:
    """A change of verdict. at: Unix time in seconds."""

    at: float
    verdict: Verdict


class Monitor:
    """Keeps the latest observation of one node and answers from it.

    One observation is under way at a time; one begins every interval_seconds, or as soon as the one before has ended.
    policy is the configured one, which the log and the changes go by; switches is asked at every decision.
    """

    def __init__(
        self,
        observer: ObservesNode,
        *,
        interval_seconds: float,
        policy: Policy,
        switches: Callable[[], Switches],
    ) -> None:
        self.policy = policy
        self.changes: deque[Change] = deque(maxlen=_CHANGES_KEPT)
        self.observation: NodeState | Unobserved | None = None
        self.observed = asyncio.Event()  # set once there is an observation
        self._observer = observer
        self._interval_seconds = interval_seconds
        self._switches = switches
        self._holds_from = time.monotonic()
        self._ended = False
        self._turns_missed = 0
        self._overdue: asyncio.TimerHandle | None = None

    @property
    def age_seconds(self) -> float:
        """Time since the latest observation began, or failed; before the first, since the monitor was made."""
        return time.monotonic() - self._holds_from

    @property
    def alive(self) -> bool:
        """Whether observations, failed ones included, still come in."""
        return not self._ended and self._turns_missed < _TURNS_MISSED

    def verdict(self, policy: Policy | None = None) -> Verdict:
        """Decide now, under the configured policy or the one given."""
        return decide(self.observation, self.age_seconds, policy or self.policy, self._switches())

    async def run(self) -> None:
        """Observe for ever; ends only when cancelled."""
        self._expect_observation(self.policy.max_age_seconds)
        try:
            while True:
                began_at = time.monotonic()
                observation = await self._observe()
                ended_at = time.monotonic()
                # What was read may have changed since it was asked for. What failed did so just now: counted from its
                # beginning, a hung server would look stale before the next attempt can have ended.
                self._holds_from = began_at if isinstance(observation, NodeState) else ended_at
                self.observation = observation
                self._turns_missed = 0
                self._expect_observation(self._holds_from + self.policy.max_age_seconds - ended_at)
                self.observed.set()
                self.note_change()
                # Even a node that always uses up the deadline leaves the loop its turn.
                await asyncio.sleep(max(0.0, began_at + self._interval_seconds - ended_at))
        finally:
            self._ended = True

    def _expect_observation(self, seconds: float) -> None:
        """Have it counted and logged if no observation ends within so many seconds, also where this task has ended."""
        if self._overdue is not None:
            self._overdue.cancel()
        loop = asyncio.get_running_loop()
        self._overdue = loop.call_later(max(0.0, seconds) + _TIMER_SECONDS, self._miss_observation)

    def _miss_observation(self) -> None:
        self._turns_missed += 1
        self._expect_observation(self.policy.max_age_seconds)
        self.note_change()

    async def _observe(self) -> NodeState | Unobserved:
        try:
            return await self._observer.observe()
        except Exception:  # noqa: BLE001 (whatever it is, the loop goes on)
            if self.observation != _OBSERVER_FAILED:
                _log.exception("the observer failed; the node counts as unobserved")
            return _OBSERVER_FAILED

    def note_change(self) -> None:
        """Keep and log the verdict if it is not the one last noted."""
        verdict = self.verdict()
        last = self.changes[-1].verdict if self.changes else None
        if last is not None and (last.available, last.reason) == (verdict.available, verdict.reason):
            return
        self.changes.append(Change(time.time(), verdict))
        _log.log(
            logging.INFO if verdict.available or verdict.draining else logging.WARNING,
            "%s %s: %s%s",
            "available" if verdict.available else "NOT available",
            verdict.reason,
            verdict.detail,
            f" (was {last.reason})" if last is not None else "",
        )
