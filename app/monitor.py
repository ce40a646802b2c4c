"""The loop that observes the node, the latest observation, and the changes of verdict."""

import asyncio
import logging
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.change_log import ChangeLog
from app.node_state import Cause, NodeState, Unobserved
from app.verdict import Policy, Reason, Switches, Verdict, decide

_log = logging.getLogger(__name__)

IN_DOUBT_SECONDS = 0.1
"""How late an observation may be before what the one before it said is in doubt."""

DURATION_BOUNDS_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 15.0, 30.0, 60.0)
"""The upper bounds that the durations of observations are counted by."""

_CHANGES_KEPT = 50
_TIMER_SECONDS = 0.01  # event loops' timers may be some milliseconds early
_TURNS_MISSED = 3
"""The turns after which a monitor that brings no observation is not slow but stuck. A turn is as long as an observation
stays usable. Turns are counted by a timer of the same event loop: a process that was stopped as a whole (SIGSTOP, a
paused machine) and goes on needs no restart."""
_OBSERVER_FAILED = Unobserved(Cause.ERROR, "clustercheckd failed to read the node, see its log")
_OBSERVES_NO_MORE = Unobserved(Cause.ERROR, "clustercheckd has stopped observing the node")


def boot_seconds() -> float:
    """Return the time since the machine booted, in seconds. Unlike `time.monotonic`, it counts time asleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def oldest_usable_seconds(interval_seconds: float, deadline_seconds: float) -> float:
    """Return the age at which an observation is stale, which means that clustercheckd itself is stuck.

    A slow one is as old as the deadline when it ends, and the next may take as long again.
    """
    return interval_seconds + 2 * deadline_seconds + IN_DOUBT_SECONDS


def longest_silence_seconds(policy: Policy) -> float:
    """Return how long a monitor that is alive may take from one observation to the next."""
    return _TURNS_MISSED * policy.max_age_seconds


class ObservesNode(Protocol):
    """What the monitor needs: something that reads the node."""

    async def observe(self) -> NodeState | Unobserved:
        """Make one observation; whatever goes wrong is an `Unobserved`, not an exception."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of verdict. at: Unix time in seconds."""

    at: float
    verdict: Verdict


class Monitor:
    """Keeps the latest observation of one node and answers from it.

    One observation is under way at a time; one begins every interval_seconds, or as soon as the one before has ended.
    policy is the configured one, which the log and the changes go by; switches is asked at every decision. clock
    returns seconds and must count the time that the machine sleeps.
    on_observation is called when an observation has ended, failed or not; on_change when the verdict has changed.
    """

    def __init__(
        self,
        observer: ObservesNode,
        *,
        interval_seconds: float,
        policy: Policy,
        switches: Callable[[], Switches],
        clock: Callable[[], float] = boot_seconds,
        on_observation: Callable[[], None] = lambda: None,
        on_change: Callable[[Verdict], None] = lambda _: None,
    ) -> None:
        self.policy = policy
        self.changes: deque[Change] = deque(maxlen=_CHANGES_KEPT)
        self.observation: NodeState | Unobserved | None = None
        self.observed = asyncio.Event()  # set once there is an observation
        # Counted from the start on. An outcome is the cause of an observation that failed, None of one that did not;
        # durations are counted by DURATION_BOUNDS_SECONDS, with one count more for those above the last.
        self.outcomes: dict[Cause | None, int] = dict.fromkeys((None, *Cause), 0)
        self.durations = [0] * (len(DURATION_BOUNDS_SECONDS) + 1)
        self.duration_seconds = 0.0
        self.changes_to: dict[Reason, int] = dict.fromkeys(Reason, 0)
        self._observer = observer
        self._interval_seconds = interval_seconds
        self._switches = switches
        self._clock = clock
        self._change_log = ChangeLog(clock)
        self._began_at = clock()
        self._next = asyncio.Event()  # set, and replaced, at the end of an observation
        self._on_observation = on_observation
        self._on_change = on_change
        self._ended = False
        self._turns_missed = 0
        self._overdue: asyncio.TimerHandle | None = None

    @property
    def age_seconds(self) -> float:
        """Time since the latest observation began; before the first, since the monitor was made."""
        return self._clock() - self._began_at

    @property
    def in_doubt(self) -> bool:
        """Whether the next observation should have ended by now, so that the latest may no longer hold."""
        return self.age_seconds > self._interval_seconds + IN_DOUBT_SECONDS

    @property
    def alive(self) -> bool:
        """Whether observations, failed ones included, still come in."""
        return not self._ended and self._turns_missed < _TURNS_MISSED

    def verdict(self, policy: Policy | None = None) -> Verdict:
        """Decide now, under the configured policy or the one given."""
        return decide(self.observation, self.age_seconds, policy or self.policy, self._switches())

    async def next_verdict(self, policy: Policy | None = None) -> Verdict:
        """Wait for the end of the observation under way, then decide.

        Where none ends, this is the moment at which the latest one is stale.
        """
        await self._next.wait()
        return self.verdict(policy)

    async def run(self) -> None:
        """Observe for ever; ends only when cancelled."""
        self._expect_observation(self.policy.max_age_seconds)
        try:
            while True:
                began_at = self._clock()
                self.observation = await self._observe()
                # What was read may have changed since it was asked for.
                self._began_at = began_at
                self._count(self.observation, self.age_seconds)
                self._turns_missed = 0
                self._expect_observation(self.policy.max_age_seconds - self.age_seconds)
                self.observed.set()
                self._end_of_doubt()
                self.note_change()
                self._on_observation()
                # Even a node that always uses up the deadline leaves the loop its turn.
                await asyncio.sleep(max(0.0, self._interval_seconds - self.age_seconds))
        finally:
            self._ended = True
            # Whoever waits for an observation that was cancelled must not get the verdict of the one before.
            self.observation = _OBSERVES_NO_MORE
            self._end_of_doubt()

    def _count(self, observation: NodeState | Unobserved, took_seconds: float) -> None:
        self.outcomes[observation.cause if isinstance(observation, Unobserved) else None] += 1
        self.durations[bisect_left(DURATION_BOUNDS_SECONDS, took_seconds)] += 1
        self.duration_seconds += took_seconds

    def _end_of_doubt(self) -> None:
        self._next.set()
        self._next = asyncio.Event()

    def _expect_observation(self, seconds: float) -> None:
        """Have it counted and logged if no observation ends within so many seconds, also where this task has ended."""
        if self._overdue is not None:
            self._overdue.cancel()
        loop = asyncio.get_running_loop()
        self._overdue = loop.call_later(max(0.0, seconds) + _TIMER_SECONDS, self._miss_observation)

    def _miss_observation(self) -> None:
        self._turns_missed += 1
        self._expect_observation(self.policy.max_age_seconds)
        self._end_of_doubt()
        self.note_change()

    async def _observe(self) -> NodeState | Unobserved:
        try:
            return await self._observer.observe()
        except Exception:  # noqa: BLE001 (whatever it is, the loop goes on)
            if self.observation != _OBSERVER_FAILED:
                _log.exception("observer failed")
            return _OBSERVER_FAILED

    def note_change(self) -> None:
        """Keep and log the verdict if it is not the one last noted."""
        verdict = self.verdict()
        last = self.changes[-1].verdict if self.changes else None
        if last is not None and (last.available, last.reason) == (verdict.available, verdict.reason):
            self._change_log.unchanged()
            return
        self.changes.append(Change(time.time(), verdict))
        self._on_change(verdict)
        self.changes_to[verdict.reason] += 1
        self._change_log.changed(verdict)
