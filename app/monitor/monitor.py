"""Polls the node when somebody asks, keeps the latest result, and notes the changes of the verdict.

An answer rests on a poll that began at most the poll interval ago, or that has just ended:

- A question that finds an older result begins a poll, or joins the one that is under way, and waits
  for its end.
- One poll is under way at a time, and none begins sooner than the poll interval after the one
  before.
- After a second in which nobody asked, a poll begins all the same, for the log, /metrics and
  systemd.
"""

import asyncio
import contextlib
import logging
import math
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial

from app.deadline import deadline
from app.verdict.node_state import NodeState, PollFailure
from app.verdict.reason import Reason
from app.verdict.rules import Policy, Switches, Verdict, decide

_log = logging.getLogger(__name__)

IDLE_SECONDS = 1.0
"""How long after a poll the next one begins if nobody asks."""

REFUSAL_SECONDS = 0.05
"""How long an answer that would be 503 waits for the poll. It is safe at any time, and the load
balancer's check may be about to time out."""

_CHANGES_KEPT = 50
_SLACK_SECONDS = 0.1
_DURATION_BOUNDS_SECONDS = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.4,
    0.8,
    1.6,
    3.2,
    6.4,
    15.0,
    30.0,
    60.0,
)
_PERIODS_MISSED = 3
"""After this many periods without a result, the monitor is not slow but stuck. A period is the time
for which a result is usable. A pause of the whole process does not count: the process needs no
restart."""
_POLLER_FAILED = PollFailure(Reason.ERROR, "clustercheckd failed to poll the node: see its log")
_STOPPED = PollFailure(Reason.ERROR, "clustercheckd has stopped polling the node")

# Whoever asks while the result is too old to say anything waits as for a 200: an answer is on its
# way.
_UNKNOWN = (Reason.STARTING, Reason.STALE)
_BY_HAND = (Reason.DISABLED, Reason.SHUTTING_DOWN)

boot_seconds = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
"""Returns the time since the machine booted, in seconds. Unlike `time.monotonic`, it includes time
in suspend."""


def oldest_usable_seconds(interval_seconds: float, deadline_seconds: float) -> float:
    """Return the age in seconds above which a result is stale: clustercheckd itself must be stuck.

    The next poll begins when nobody has asked for a while, or when the one before has taken its
    deadline. It may take the deadline too.
    """
    return round(
        max(interval_seconds, IDLE_SECONDS, deadline_seconds) + deadline_seconds + _SLACK_SECONDS, 3
    )


@dataclass(frozen=True)
class Change:
    """A change of the verdict. at: when it happened, in Unix time."""

    at: float
    verdict: Verdict


class Monitor:
    """Polls one node, keeps the latest result, and decides verdicts from it.

    poll: polls the node once; a failure is a `PollFailure`, not an exception. policy: the
    configured policy, which decides the logged verdict and its changes. switches: called for every
    verdict. deadline_seconds: how long an answer may wait for a poll. clock: returns seconds, and
    must include the time that the machine spends in suspend. on_verdict: called with the last
    recorded verdict after each poll, failed or not, and whenever a change is looked for.
    """

    def __init__(
        self,
        poll: Callable[[], Awaitable[NodeState | PollFailure]],
        *,
        interval_seconds: float,
        deadline_seconds: float,
        policy: Policy,
        switches: Callable[[], Switches],
        clock: Callable[[], float] = boot_seconds,
        on_verdict: Callable[[Verdict], None] = lambda _: None,
    ) -> None:
        self.policy = policy
        self.switches = switches
        # The result of the latest poll; None before the first one has ended.
        self.result: NodeState | PollFailure | None = None
        self.changes: deque[Change] = deque(maxlen=_CHANGES_KEPT)
        # Counts since the start. polls: by the reason for a failure, None for those that did not
        # fail. durations: how many polls took at most so many seconds, and all took
        # duration_seconds together.
        self.polls: Counter[Reason | None] = Counter()
        self.durations = dict.fromkeys((*_DURATION_BOUNDS_SECONDS, math.inf), 0)
        self.duration_seconds = 0.0
        self.changes_to: Counter[Reason] = Counter()
        self._poll_node = poll
        self._interval_seconds = interval_seconds
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._began_at = self._ended_at = clock()
        self._decided: Verdict | None = None
        self._asked = asyncio.Event()
        self._poll_ended = asyncio.Event()  # set, and replaced, at the end of each poll
        self._on_verdict = on_verdict
        self._periods_missed = 0

    @property
    def age_seconds(self) -> float:
        """Time since the latest completed poll began.

        Before the first, time since the monitor was created.
        """
        return self._clock() - self._began_at

    @property
    def alive(self) -> bool:
        """Whether polls still end, failed ones included."""
        return self._periods_missed < _PERIODS_MISSED

    def verdict(self, policy: Policy | None = None) -> Verdict:
        """Return the verdict from the latest result. policy: instead of the configured one."""
        return self._decide(self.age_seconds, policy)

    async def fresh_verdict(self, policy: Policy | None = None) -> Verdict:
        """Return the verdict from a fresh result, or from a poll that has just ended.

        A result is fresh if its poll began at most the poll interval ago.

        For a node that is unavailable anyway, wait at most `REFUSAL_SECONDS`, then return the
        verdict as it is known. In every other case, a poll that does not end within the deadline
        makes the result stale.
        """
        fresh = self.result is not None and self.age_seconds <= self._interval_seconds
        if fresh and policy is None and self._decided is not None and not self.switches().any_on:
            return self._decided
        verdict = self.verdict(policy)
        if fresh or verdict.reason in _BY_HAND:
            return verdict
        limit: AbstractAsyncContextManager[object] = asyncio.timeout(REFUSAL_SECONDS)
        is_patient = verdict.available or verdict.reason in _UNKNOWN
        if is_patient:
            # The poll ends by its own deadline, which began when this wait did, or before.
            limit = deadline(self._deadline_seconds + _SLACK_SECONDS)
        try:
            async with limit:
                return await self._verdict_of_next_poll(policy)
        except TimeoutError:
            # An old 200 is no answer.
            return self._decide(math.inf if is_patient else self.age_seconds, policy)

    def _decide(self, age_seconds: float, policy: Policy | None) -> Verdict:
        return decide(self.result, age_seconds, policy or self.policy, self.switches())

    async def _verdict_of_next_poll(self, policy: Policy | None) -> Verdict:
        """Wait for a poll that ends now.

        After a pause of this process, one that ended before says nothing.
        """
        while True:
            self._asked.set()
            await self._poll_ended.wait()
            if self._clock() - self._ended_at <= self._interval_seconds:
                verdict = self.verdict(policy)
                if verdict.reason is not Reason.STALE:
                    return verdict

    async def run(self) -> None:
        """Poll until cancelled."""
        watching = asyncio.create_task(self._watch())
        try:
            while True:
                began_at = self._clock()
                result = await self._poll()
                if self._clock() - began_at > self.policy.max_age_seconds:
                    # Polls do not take so long: this process was paused. Ask again, instead of
                    # calling it stale.
                    continue
                self.result = result
                # Most health checks get this verdict. To decide for each would be a sixth of the
                # cost of an answer.
                self._decided = decide(result, 0.0, self.policy, Switches())
                # The age counts from the start of the poll: a value may have changed right after
                # the server sent it.
                self._began_at, self._ended_at = began_at, self._clock()
                self._asked.clear()
                self._count(result, self._ended_at - began_at)
                self._release_waiters()
                self.note_change()
                await self._pause()
        finally:
            watching.cancel()
            self._periods_missed = _PERIODS_MISSED
            # A health check that waits for the cancelled poll must not get the verdict of the poll
            # before it, but this one, at once.
            self.result, self._decided = _STOPPED, None
            self._began_at = self._ended_at = self._clock()
            self._release_waiters()

    def note_change(self) -> None:
        """Record and log the verdict if it differs from the last recorded one."""
        verdict = self.verdict()
        if verdict.reason is Reason.STALE and not self._periods_missed:
            # After a pause of this process, until the next poll has ended.
            return
        last = self.changes[-1].verdict if self.changes else None
        if last is None or (last.available, last.reason) != (verdict.available, verdict.reason):
            self.changes.append(Change(time.time(), verdict))
            self.changes_to[verdict.reason] += 1
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
        if self.result is not None:
            self._on_verdict(self.changes[-1].verdict)

    async def _poll(self) -> NodeState | PollFailure:
        try:
            return await self._poll_node()
        except Exception:  # noqa: BLE001 (no fault may end the polling)
            if self.result != _POLLER_FAILED:
                _log.exception("poller failed")
            return _POLLER_FAILED

    async def _pause(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, IDLE_SECONDS - self.age_seconds)):
                await self._asked.wait()
        # sleep(0) still lets other tasks run, even if every poll takes longer than the interval.
        await asyncio.sleep(max(0.0, self._interval_seconds - self.age_seconds))

    async def _watch(self) -> None:
        """Count the periods in which no poll ends."""
        loop = asyncio.get_running_loop()
        while True:
            latest, due = self._ended_at, loop.time() + self.policy.max_age_seconds
            await asyncio.sleep(self.policy.max_age_seconds)
            if self._ended_at != latest:
                self._periods_missed = 0
            elif loop.time() < due + _SLACK_SECONDS:
                # If this is later, the process was paused: the answer to the poll lies in the
                # socket.
                self._periods_missed += 1
                self.note_change()

    def _count(self, result: NodeState | PollFailure, took_seconds: float) -> None:
        self.polls[result.reason if isinstance(result, PollFailure) else None] += 1
        self.duration_seconds += took_seconds
        for bound in self.durations:
            self.durations[bound] += took_seconds <= bound

    def _release_waiters(self) -> None:
        self._poll_ended.set()
        self._poll_ended = asyncio.Event()
