"""The loop that polls the node, the latest observation, and the changes of the verdict.

An observation is the result of a poll: a `NodeState`, or an `Unobserved` that says why the node could not be read.
"""

import asyncio
import logging
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from app.change_log import ChangeLog
from app.node_state import Cause, NodeState, Unobserved
from app.verdict import Policy, Reason, Switches, Verdict, decide

_log = logging.getLogger(__name__)

IN_DOUBT_SECONDS = 0.1
"""How late a poll may be before the observation of the one before is in doubt."""

DURATION_BOUNDS_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 15.0, 30.0, 60.0)
"""The upper bounds of the histogram of poll durations."""

_CHANGES_KEPT = 50
_TIMER_SECONDS = 0.01  # an event loop may run a timer some milliseconds early
_PERIODS_MISSED = 3
"""After this many periods without a result, the monitor is not slow but stuck. A period is the time for which an
observation is usable. A timer of the same event loop counts the periods: if the whole process was stopped and goes on
(SIGSTOP, a paused machine), it needs no restart."""
_OBSERVER_FAILED = Unobserved(Cause.ERROR, "clustercheckd failed to poll the node: see its log")
_STOPPED = Unobserved(Cause.ERROR, "clustercheckd has stopped polling the node")

boot_seconds = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
"""Returns the time since the machine booted, in seconds. Unlike `time.monotonic`, it includes time in suspend."""


def oldest_usable_seconds(interval_seconds: float, deadline_seconds: float) -> float:
    """Return the age in seconds above which an observation is stale: clustercheckd itself must be stuck.

    A slow poll is as old as the deadline when it ends, and the next one may take as long again.
    """
    return interval_seconds + 2 * deadline_seconds + IN_DOUBT_SECONDS


def longest_silence_seconds(policy: Policy) -> float:
    """Return the longest time in seconds between the ends of two polls of a monitor that is alive."""
    return _PERIODS_MISSED * policy.max_age_seconds


class ObservesNode(Protocol):
    """Polls the node for the monitor."""

    async def observe(self) -> NodeState | Unobserved:
        """Poll the node once, and return the result. A failure is an `Unobserved`, not an exception."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the verdict. at: when it happened, in Unix time."""

    at: float
    verdict: Verdict


class Monitor:
    """Polls one node, keeps the latest observation, and decides verdicts from it.

    One poll is under way at a time. A poll begins every interval_seconds, or once the one before has ended.

    policy: the configured policy, which decides the logged verdict and its changes. switches: called for every verdict.
    clock: returns seconds, and must include the time that the machine spends in suspend. on_observation: called when a
    poll has ended, failed or not. on_change: called when the verdict has changed.
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
        self.observed = asyncio.Event()  # set once there is an observation
        # Counts since the start. outcomes: the cause for a poll that failed, None for one that did not. durations: one
        # count for each of DURATION_BOUNDS_SECONDS, and one for polls that took longer.
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
        self._observation: NodeState | Unobserved | None = None
        self._known: Verdict | None = None  # by the observation alone, under the configured policy
        self._next = asyncio.Event()  # set, and replaced, when a poll ends
        self._on_observation = on_observation
        self._on_change = on_change
        self._ended = False
        self._periods_missed = 0
        self._overdue: asyncio.TimerHandle | None = None

    @property
    def observation(self) -> NodeState | Unobserved | None:
        """The latest observation; None before the first one."""
        return self._observation

    @property
    def age_seconds(self) -> float:
        """Time since the poll of the latest observation began. Before the first, time since the monitor was created."""
        return self._clock() - self._began_at

    @property
    def in_doubt(self) -> bool:
        """Whether the poll under way is late, so that the latest observation may no longer be true."""
        # Here and in `verdict`, age_seconds would be one more call for each health check.
        return self._clock() - self._began_at > self._interval_seconds + IN_DOUBT_SECONDS

    @property
    def alive(self) -> bool:
        """Whether polls still end, failed ones included."""
        return not self._ended and self._periods_missed < _PERIODS_MISSED

    def verdict(self, policy: Policy | None = None) -> Verdict:
        """Return the verdict at this moment, under policy if given, else under the configured one."""
        age_seconds = self._clock() - self._began_at
        known = self._known if policy is None else None
        return decide(self._observation, age_seconds, policy or self.policy, self._switches(), known)

    async def next_verdict(self, policy: Policy | None = None) -> Verdict:
        """Wait until the poll under way ends, then return the verdict.

        If it does not end, wait until the latest observation is stale.
        """
        await self._next.wait()
        return self.verdict(policy)

    async def run(self) -> None:
        """Poll until cancelled."""
        self._expect_observation(self.policy.max_age_seconds)
        try:
            while True:
                began_at = self._clock()
                self._keep(await self._observe())
                # The age counts from the start of the poll: a value may have changed right after the server sent it.
                self._began_at = began_at
                self._count(self.age_seconds)
                self._periods_missed = 0
                self._expect_observation(self.policy.max_age_seconds - self.age_seconds)
                self.observed.set()
                self._release_waiters()
                self.note_change()
                self._on_observation()
                # sleep(0) still lets other tasks run, even if every poll takes longer than the interval.
                await asyncio.sleep(max(0.0, self._interval_seconds - self.age_seconds))
        finally:
            self._ended = True
            # A health check that waits for the cancelled poll must not get the verdict of the poll before it.
            self._keep(_STOPPED)
            self._release_waiters()

    def _keep(self, observation: NodeState | Unobserved) -> None:
        # At rest, the observer returns the same object again and again.
        if observation is self._observation:
            return
        # For all health checks until the next poll. decide's own cache would hash the 24 fields of the state each time.
        self._known = decide(observation, 0.0, self.policy, Switches())
        self._observation = observation

    def _count(self, took_seconds: float) -> None:
        seen = self._observation
        self.outcomes[seen.cause if isinstance(seen, Unobserved) else None] += 1
        self.durations[bisect_left(DURATION_BOUNDS_SECONDS, took_seconds)] += 1
        self.duration_seconds += took_seconds

    def _release_waiters(self) -> None:
        self._next.set()
        self._next = asyncio.Event()

    def _expect_observation(self, seconds: float) -> None:
        """Count a missed period if no poll ends within this many seconds. It works without `run`, which may be dead."""
        if self._overdue is not None:
            self._overdue.cancel()
        loop = asyncio.get_running_loop()
        self._overdue = loop.call_later(max(0.0, seconds) + _TIMER_SECONDS, self._miss_observation)

    def _miss_observation(self) -> None:
        self._periods_missed += 1
        self._expect_observation(self.policy.max_age_seconds)
        self._release_waiters()
        self.note_change()

    async def _observe(self) -> NodeState | Unobserved:
        try:
            return await self._observer.observe()
        except Exception:  # noqa: BLE001 (no fault may end the polling)
            if self._observation != _OBSERVER_FAILED:
                _log.exception("observer failed")
            return _OBSERVER_FAILED

    def note_change(self) -> None:
        """Record and log the verdict if it differs from the last recorded one."""
        verdict = self.verdict()
        last = self.changes[-1].verdict if self.changes else None
        if last is not None and (last.available, last.reason) == (verdict.available, verdict.reason):
            self._change_log.unchanged()
            return
        self.changes.append(Change(time.time(), verdict))
        self._on_change(verdict)
        self.changes_to[verdict.reason] += 1
        self._change_log.changed(verdict)
