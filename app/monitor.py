"""The loop that polls the node, the latest poll, and the changes of the verdict.

A poll is the result of a poll: a `NodeState`, or a `PollFailure` that says why the node could not be read.
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
from app.node_state import NodeState, PollFailure
from app.reason import POLL_FAILURES, Reason
from app.verdict import Policy, Switches, Verdict, decide

_log = logging.getLogger(__name__)

IN_DOUBT_SECONDS = 0.1
"""How late a poll may be before the poll of the one before is in doubt."""

DURATION_BOUNDS_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 15.0, 30.0, 60.0)
"""The upper bounds of the histogram of poll durations."""

_CHANGES_KEPT = 50
_TIMER_SECONDS = 0.01  # an event loop may run a timer some milliseconds early
_PERIODS_MISSED = 3
"""After this many periods without a result, the monitor is not slow but stuck. A period is the time for which an
poll is usable. A timer of the same event loop counts the periods: if the whole process was stopped and goes on
(SIGSTOP, a paused machine), it needs no restart."""
_POLLER_FAILED = PollFailure(Reason.ERROR, "clustercheckd failed to poll the node: see its log")
_STOPPED = PollFailure(Reason.ERROR, "clustercheckd has stopped polling the node")

boot_seconds = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
"""Returns the time since the machine booted, in seconds. Unlike `time.monotonic`, it includes time in suspend."""


def oldest_usable_seconds(interval_seconds: float, deadline_seconds: float) -> float:
    """Return the age in seconds above which a poll is stale: clustercheckd itself must be stuck.

    A slow poll is as old as the deadline when it ends, and the next one may take as long again.
    """
    return interval_seconds + 2 * deadline_seconds + IN_DOUBT_SECONDS


def longest_silence_seconds(policy: Policy) -> float:
    """Return the longest time in seconds between the ends of two polls of a monitor that is alive."""
    return _PERIODS_MISSED * policy.max_age_seconds


class PollsNode(Protocol):
    """Polls the node for the monitor."""

    async def poll(self) -> NodeState | PollFailure:
        """Poll the node once, and return the result. A failure is a `PollFailure`, not an exception."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the verdict. at: when it happened, in Unix time."""

    at: float
    verdict: Verdict


class Monitor:
    """Polls one node, keeps the latest poll, and decides verdicts from it.

    One poll is under way at a time. A poll begins every interval_seconds, or once the one before has ended.

    policy: the configured policy, which decides the logged verdict and its changes. switches: called for every verdict.
    clock: returns seconds, and must include the time that the machine spends in suspend. on_poll: called when a
    poll has ended, failed or not. on_change: called when the verdict has changed.
    """

    def __init__(
        self,
        poller: PollsNode,
        *,
        interval_seconds: float,
        policy: Policy,
        switches: Callable[[], Switches],
        clock: Callable[[], float] = boot_seconds,
        on_poll: Callable[[], None] = lambda: None,
        on_change: Callable[[Verdict], None] = lambda _: None,
    ) -> None:
        self.policy = policy
        self.changes: deque[Change] = deque(maxlen=_CHANGES_KEPT)
        self.polled = asyncio.Event()  # set once there is a poll
        # Counts since the start. outcomes: the cause for a poll that failed, None for one that did not. durations: one
        # count for each of DURATION_BOUNDS_SECONDS, and one for polls that took longer.
        self.outcomes: dict[Reason | None, int] = dict.fromkeys((None, *POLL_FAILURES), 0)
        self.durations = [0] * (len(DURATION_BOUNDS_SECONDS) + 1)
        self.duration_seconds = 0.0
        self.changes_to: dict[Reason, int] = dict.fromkeys(Reason, 0)
        self._poller = poller
        self._interval_seconds = interval_seconds
        self._switches = switches
        self._clock = clock
        self._change_log = ChangeLog(clock)
        self._began_at = clock()
        self._result: NodeState | PollFailure | None = None
        self._known: Verdict | None = None  # by the poll alone, under the configured policy
        self._next = asyncio.Event()  # set, and replaced, when a poll ends
        self._on_poll = on_poll
        self._on_change = on_change
        self._ended = False
        self._periods_missed = 0
        self._overdue: asyncio.TimerHandle | None = None

    @property
    def result(self) -> NodeState | PollFailure | None:
        """The latest poll; None before the first one."""
        return self._result

    @property
    def age_seconds(self) -> float:
        """Time since the poll of the latest poll began. Before the first, time since the monitor was created."""
        return self._clock() - self._began_at

    @property
    def in_doubt(self) -> bool:
        """Whether the poll under way is late, so that the latest poll may no longer be true."""
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
        return decide(self._result, age_seconds, policy or self.policy, self._switches(), known)

    async def next_verdict(self, policy: Policy | None = None) -> Verdict:
        """Wait until the poll under way ends, then return the verdict.

        If it does not end, wait until the latest poll is stale.
        """
        await self._next.wait()
        return self.verdict(policy)

    async def run(self) -> None:
        """Poll until cancelled."""
        self._expect_poll(self.policy.max_age_seconds)
        try:
            while True:
                began_at = self._clock()
                self._keep(await self._poll())
                # The age counts from the start of the poll: a value may have changed right after the server sent it.
                self._began_at = began_at
                self._count(self.age_seconds)
                self._periods_missed = 0
                self._expect_poll(self.policy.max_age_seconds - self.age_seconds)
                self.polled.set()
                self._release_waiters()
                self.note_change()
                self._on_poll()
                # sleep(0) still lets other tasks run, even if every poll takes longer than the interval.
                await asyncio.sleep(max(0.0, self._interval_seconds - self.age_seconds))
        finally:
            self._ended = True
            # A health check that waits for the cancelled poll must not get the verdict of the poll before it.
            self._keep(_STOPPED)
            self._release_waiters()

    def _keep(self, poll: NodeState | PollFailure) -> None:
        # At rest, the poller returns the same object again and again.
        if poll is self._result:
            return
        # For all health checks until the next poll. decide's own cache would hash the 24 fields of the state each time.
        self._known = decide(poll, 0.0, self.policy, Switches())
        self._result = poll

    def _count(self, took_seconds: float) -> None:
        seen = self._result
        self.outcomes[seen.reason if isinstance(seen, PollFailure) else None] += 1
        self.durations[bisect_left(DURATION_BOUNDS_SECONDS, took_seconds)] += 1
        self.duration_seconds += took_seconds

    def _release_waiters(self) -> None:
        self._next.set()
        self._next = asyncio.Event()

    def _expect_poll(self, seconds: float) -> None:
        """Count a missed period if no poll ends within this many seconds. It works without `run`, which may be dead."""
        if self._overdue is not None:
            self._overdue.cancel()
        loop = asyncio.get_running_loop()
        self._overdue = loop.call_later(max(0.0, seconds) + _TIMER_SECONDS, self._miss_poll)

    def _miss_poll(self) -> None:
        self._periods_missed += 1
        self._expect_poll(self.policy.max_age_seconds)
        self._release_waiters()
        self.note_change()

    async def _poll(self) -> NodeState | PollFailure:
        try:
            return await self._poller.poll()
        except Exception:  # noqa: BLE001 (no fault may end the polling)
            if self._result != _POLLER_FAILED:
                _log.exception("poller failed")
            return _POLLER_FAILED

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
