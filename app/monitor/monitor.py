"""Polls the node when somebody asks, keeps the latest result, and decides from it.

An answer rests on a poll that began at most the poll interval ago, or that has just ended:

- A question that finds an older result waits for the end of a poll.
- One poll is under way at a time, and none begins sooner than the interval after the one before.
- After a second in which nobody asked, one begins all the same; after the interval while the node
  waits, to find out why in time.
"""

import asyncio
import contextlib
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import lru_cache, partial
from typing import NamedTuple

from app.deadline import boot_seconds, deadline
from app.monitor.changes import Changes
from app.monitor.waits import Waits
from app.verdict.node_state import NodeState, PollFailure, PollResult
from app.verdict.reason import Reason
from app.verdict.rules import Policy, Switches, Verdict, verdicts

_log = logging.getLogger(__name__)

IDLE_SECONDS = 1.0
"""When the next poll begins if nobody asks."""

REFUSAL_SECONDS = 0.05
"""How long an answer waits that would be 503."""

_POLICIES_KEPT = 64  # no client can make memory grow
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
    math.inf,
)
_STUCK_PERIODS = 3
"""A poll that takes so many times as long as a result is usable is stuck."""
_POLLER_FAILED = PollFailure(
    Reason.ERROR, "clustercheckd failed to poll the node: see its log"
)
_RULE_FAILED = Verdict(
    available=False,
    reason=Reason.ERROR,
    detail="clustercheckd failed to decide on the node: see its log",
)
_GIVEN_UP = PollFailure(Reason.STALE, "a poll did not end and was given up")
_STOPPED = PollFailure(Reason.ERROR, "clustercheckd has stopped polling the node")

# Who asks then waits as for a 200.
_UNKNOWN = (Reason.STARTING, Reason.STALE)


def oldest_usable_seconds(interval_seconds: float, deadline_seconds: float) -> float:
    """Return the age above which a result is stale: the next poll may take a deadline too."""
    return round(
        max(interval_seconds, IDLE_SECONDS, deadline_seconds)
        + deadline_seconds
        + _SLACK_SECONDS,
        3,
    )


Poll = Callable[[], Awaitable[PollResult]]


class Polling(NamedTuple):
    """How to poll, and what to decide from it.

    deadline_seconds: how long an answer may wait. max_age_seconds: see `oldest_usable_seconds`.
    """

    poll: Poll
    interval_seconds: float
    deadline_seconds: float
    max_age_seconds: float
    policy: Policy


class Monitor:
    """Polls one node.

    switches: called for every verdict. clock: counts suspend. on_verdict: called after each poll.
    """

    def __init__(
        self,
        polling: Polling,
        *,
        switches: Callable[[], Switches],
        clock: Callable[[], float] = boot_seconds,
        on_verdict: Callable[[Verdict], None] = lambda _: None,
    ) -> None:
        self.polling = polling
        self.switches = switches
        self.result: PollResult | None = None
        self.changes = Changes()
        self._waits = Waits()
        # By the reason for a failure, or None.
        self.polls: Counter[Reason | None] = Counter()
        # How many took at most so many seconds, and all together.
        self.durations = dict.fromkeys(_DURATION_BOUNDS_SECONDS, 0)
        self.duration_seconds = 0.0
        self.now = clock
        self._began_at = self._ended_at = clock()
        # The verdicts of the latest poll, by policy: to decide each time takes long.
        self._decided = lru_cache(_POLICIES_KEPT)(
            partial(self._decide, 0.0, switches=Switches())
        )
        self._rule_failed = False
        self._asked = False
        self._question = asyncio.Event()
        self._poll_ended = asyncio.Event()  # set, and replaced, at the end of each poll
        self._on_verdict = on_verdict

    @property
    def age_seconds(self) -> float:
        """Time since the latest completed poll began, or since the start."""
        return self.now() - self._began_at

    @property
    def alive(self) -> bool:
        """Whether polls still end, failed ones included."""
        return self.result not in (_GIVEN_UP, _STOPPED)

    def verdict(
        self, policy: Policy | None = None, *, switches: Switches | None = None
    ) -> Verdict:
        """Return the verdict from the latest result."""
        return self._decide(self.age_seconds, policy, switches or self.switches())

    def verdict_if_fresh(self, policy: Policy | None = None) -> Verdict | None:
        """Return the verdict, or None if it takes a poll."""
        switches = self.switches()
        if switches.any_on:
            return self.verdict(policy, switches=switches)
        is_old = self.age_seconds > self.polling.interval_seconds
        return None if is_old or self.result is None else self._decided(policy)

    async def fresh_verdict(self, policy: Policy | None = None) -> Verdict:
        """Return the verdict from a fresh result, or from a poll that has just ended.

        If none ends within the deadline, the result is stale.
        """
        if verdict := self.verdict_if_fresh(policy):
            return verdict
        verdict = self.verdict(policy)
        limit: contextlib.AbstractAsyncContextManager[object] = asyncio.timeout(
            REFUSAL_SECONDS
        )
        is_patient = verdict.available or verdict.reason in _UNKNOWN
        if is_patient:
            # The poll ends by its own deadline, which began no later.
            limit = deadline(self.polling.deadline_seconds + _SLACK_SECONDS)
        try:
            async with limit:
                return await self.next_verdict(policy)
        except TimeoutError:
            # An old 200 is no answer.
            age_seconds = math.inf if is_patient else self.age_seconds
            return self._decide(age_seconds, policy, self.switches())

    def against(self) -> list[Verdict]:
        """Return what speaks against the node beside the verdict."""
        _, *rest = self._verdicts(self.age_seconds, None, self.switches())
        return [one for one in rest if not one.available]

    def _decide(
        self, age_seconds: float, policy: Policy | None, switches: Switches
    ) -> Verdict:
        return next(self._verdicts(age_seconds, policy, switches))

    def _verdicts(
        self, age_seconds: float, policy: Policy | None, switches: Switches
    ) -> Iterator[Verdict]:
        policy, limit = policy or self.polling.policy, self.polling.max_age_seconds
        try:
            yield from verdicts(self.result, age_seconds, policy, switches, limit)
        except Exception:  # noqa: BLE001 (no fault of a rule may end the polling)
            if not self._rule_failed:
                _log.exception("rule failed")
            self._rule_failed = True
            yield _RULE_FAILED

    async def next_verdict(self, policy: Policy | None = None) -> Verdict:
        """Wait for a poll that ends now: one from before a pause says nothing."""
        while True:
            # The next one begins as soon as the interval allows.
            self._asked = True
            self._question.set()
            await self._poll_ended.wait()
            if self.now() - self._ended_at <= self.polling.interval_seconds:
                verdict = self.verdict(policy)
                if verdict.reason is not Reason.STALE:
                    return verdict

    async def run(self) -> None:
        """Poll until cancelled."""
        try:
            while True:
                began_at = self.now()
                self._take_result(await self._poll(), began_at)
                await self._pause()
        except Exception:
            _log.exception("polling ended")
            raise
        finally:
            # Who waits must not get the verdict of the poll before.
            self._keep(_STOPPED, self.now())

    def _keep(self, result: PollResult | None, began_at: float) -> None:
        self.result = result
        self._decided.cache_clear()
        # From its start: a value may have changed right after the server sent it.
        self._began_at, self._ended_at = began_at, self.now()
        self._poll_ended.set()
        self._poll_ended = asyncio.Event()

    def _take_result(self, result: PollResult, began_at: float) -> None:
        self._keep(result, began_at)
        if isinstance(result, NodeState):
            self._waits.note(result)
        self._asked = False
        took_seconds = self._ended_at - began_at
        self.polls[result.reason if isinstance(result, PollFailure) else None] += 1
        self.duration_seconds += took_seconds
        for bound in self.durations:
            self.durations[bound] += took_seconds <= bound
        self.note_change()

    def note_change(self) -> None:
        """Note the verdict from the latest result, or that there is none."""
        self.changes.note(self._decide(0.0, None, self.switches()))
        # systemd takes the first one that is told for the end of the start.
        if self.result is not None:
            self._on_verdict(self.changes[-1])

    async def _poll(self) -> PollResult:
        try:
            async with deadline(_STUCK_PERIODS * self.polling.max_age_seconds):
                return await self.polling.poll()
        except TimeoutError:
            return _GIVEN_UP
        except Exception:  # noqa: BLE001 (no fault may end the polling)
            if self.result != _POLLER_FAILED:
                _log.exception("poller failed")
            return _POLLER_FAILED

    async def _pause(self) -> None:
        # Let other tasks run.
        await asyncio.sleep(0)
        with contextlib.suppress(TimeoutError):
            while True:
                # Who asks meanwhile ends the pause, and it is measured again.
                self._question.clear()
                waits = getattr(self.result, "stall", None)
                least_seconds = 0.0 if self._asked or waits else IDLE_SECONDS
                seconds = max(self.polling.interval_seconds, least_seconds)
                async with asyncio.timeout(seconds - self.age_seconds):
                    await self._question.wait()
