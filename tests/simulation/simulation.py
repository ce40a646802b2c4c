"""Runs the real monitor and the real poller in a world made from a seed, and checks what clustercheckd promises."""

import asyncio
import contextlib
import logging
import math
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from async_solipsism import SolipsismWarning

from app.database.login import Database
from app.database.poller import Poller
from app.monitor import Monitor, oldest_usable_seconds
from app.node_state import NodeState, PollFailure
from app.reason import Reason
from app.verdict import NO_SWITCHES, Policy, Verdict
from tests.simulation import promises as promised
from tests.simulation.plan import Plan
from tests.simulation.promises import Promises, most_seconds
from tests.simulation.server import Fate, Server, milliseconds
from tests.simulation.world import World

_UNKNOWN = (Reason.STARTING, Reason.STALE)
_QUIET_SECONDS = 2.0
_EXAM_SECONDS = 4.0
_IMPATIENT = 0.05
"""The share of health checks that are given up."""


class BrokenPromiseError(AssertionError):
    """What clustercheckd promises did not hold; the words are the story of the world."""


@dataclass
class Poll:
    """A poll, in seconds in which our process runs."""

    began_at: float = -math.inf
    ended_at: float = -math.inf


class Simulation:
    """One world, from one seed."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.ask_seconds = rng.choice([0.1, 0.1, 0.5, 1.0])
        self.world = World()
        self.server = Server(self.world, random.Random(seed))
        self.promises = Promises(self.world, self.server, 1.5 * self.ask_seconds)
        self.plan = Plan(self.world, self.server, self.promises, rng)
        self.seed = seed
        self.rng = rng
        self.broken: list[str] = []
        self.latest = Poll()
        self.under_way = 0
        self._said: object = None
        self._left_since = math.inf
        self.world.each_turn.append(self._check_sessions)

    def run(self) -> None:
        """Run the world to its end. Raise `BrokenPromiseError` if a promise was broken."""
        logging.disable()
        try:
            with warnings.catch_warnings(), asyncio.Runner(loop_factory=lambda: self.world.loop) as runner:
                # The mock sockets know nothing of keepalive.
                warnings.simplefilter("ignore", SolipsismWarning)
                runner.run(self._live())
        finally:
            logging.disable(logging.NOTSET)

    async def _live(self) -> None:
        self.poller = Poller(
            Database(host="127.0.0.1", port=3306, username="someone", password="geheim"),
            promised.DEADLINE_SECONDS,
            login_interval_seconds=promised.LOGIN_INTERVAL_SECONDS,
            poll_interval_seconds=1.0,
        )
        self.monitor = Monitor(
            self._poll,
            interval_seconds=promised.POLL_INTERVAL_SECONDS,
            deadline_seconds=promised.DEADLINE_SECONDS,
            policy=Policy(oldest_usable_seconds(promised.POLL_INTERVAL_SECONDS, promised.DEADLINE_SECONDS)),
            switches=lambda: NO_SWITCHES,
            clock=self.world.boot_seconds,
        )
        running = asyncio.create_task(self.monitor.run())
        asking = asyncio.create_task(self._ask_again_and_again())
        await self._wait_until(lambda: self.world.now > self.plan.ends_at)
        await self._wait_until_settled()
        # Reject logins for a while: a poller that is locked out would not notice.
        self.plan.change_fate(Fate.NO_THREAD)
        await asyncio.sleep(_EXAM_SECONDS)
        self.plan.change_fate(Fate.WELCOME)
        await self._wait_until_settled()
        if self.rng.random() < 0.3:
            self.server.stopped = True
            await asyncio.sleep(self.rng.uniform(0.0, 4.0))
        asking.cancel()
        running.cancel()
        await asyncio.wait([asking, running])
        await self._check_end()
        if self.broken:
            raise BrokenPromiseError(
                "\n".join([f"seed {self.seed} (python -m tests.simulation {self.seed}):", *self.broken])
            )

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition() and not self.broken:  # noqa: ASYNC110 (any condition)
            await asyncio.sleep(0.5)

    async def _wait_until_settled(self) -> None:
        await self._wait_until(lambda: self.world.running > self.promises.settled_at + _QUIET_SECONDS)

    async def _ask_again_and_again(self) -> None:
        checks: set[asyncio.Task[None]] = set()
        try:
            while True:
                patience_seconds = self.rng.uniform(0.0, 0.3) if self.rng.random() < _IMPATIENT else None
                check = asyncio.create_task(self._ask(patience_seconds))
                checks.add(check)
                check.add_done_callback(checks.discard)
                boring = (
                    self.world.now > self.plan.ends_at and 5.0 < self.promises.settled_at - self.world.running < 99.0
                )
                await asyncio.sleep(3.0 if boring else self.ask_seconds * self.rng.uniform(0.5, 1.5))
        finally:
            for check in checks:
                check.cancel()
            await asyncio.gather(*checks, return_exceptions=True)

    async def _ask(self, patience_seconds: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_seconds):
                await self._check_answer()

    async def _check_answer(self) -> None:
        asked_at = self.world.running
        pauses = self.world.pauses
        known = self.monitor.verdict()
        due = self.promises.settled_at <= asked_at
        verdict = await self.monitor.fresh_verdict()
        took_seconds = self.world.running - asked_at
        self._tell_change(verdict)
        worked_until, worked_seconds = self.world.worked
        most = most_seconds(
            known_refusal=not known.available and known.reason not in _UNKNOWN,
            pauses=self.world.pauses - pauses,
            turn_seconds=self.world.turn_seconds or (worked_seconds if worked_until >= asked_at else 0.0),
        )
        if took_seconds > most:
            self._break(f"an answer took {took_seconds:.3f} s, at most {most:.3f} s is promised")
        if verdict.available:
            self._check_200(asked_at)
        elif due and self.promises.settled_at <= asked_at:
            self._break(f"{verdict.reason} asked at {asked_at:.3f}, though the server was well in time")

    def _check_200(self, asked_at: float) -> None:
        if asked_at > self.promises.last_200_at:
            self._break("available, though no login succeeds")
        fresh = self.latest.began_at >= asked_at - promised.POLL_INTERVAL_SECONDS - 1e-5
        if not fresh and self.latest.ended_at < asked_at:
            self._break(f"the answer rests on a poll that began {asked_at - self.latest.began_at:.3f} s before")

    async def _poll(self) -> NodeState | PollFailure:
        self.under_way += 1
        if self.under_way > 1:
            self._break("two polls are under way")
        poll = Poll(began_at=self.world.running)
        began_at = self.world.now
        try:
            result = await self.poller.poll()
        finally:
            self.under_way -= 1
        poll.ended_at = self.world.running
        self.latest = poll
        if isinstance(result, NodeState) and (result.wsrep_local_recv_queue or 0) < milliseconds(began_at):
            self._break("a poll returned what the server said before it")
        self.plan.poll_ended()
        return result

    def _check_sessions(self) -> None:
        if self.server.held > promised.MOST_SESSIONS:
            self._break(f"{self.server.held} sessions are open")
        left = self.server.left
        self._left_since = min(self._left_since, self.world.now) if left else math.inf
        hangs_seconds = self.world.now - self._left_since
        if left and left > promised.MOST_SESSIONS + hangs_seconds / promised.SECONDS_PER_SESSION_LEFT:
            self._break(f"the server is left with {left} sessions")

    async def _check_end(self) -> None:
        began_at = self.world.running
        await self.poller.aclose()
        if self.world.running - began_at > 0.5 + promised.TURN_SECONDS:
            self._break("to close took too long")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            self._break(f"tasks are left: {others}")
        if self.server.held:
            self._break("connections are left")
        if timers := self.world.loop.timers:
            self._break(f"timers are left: {timers}")

    def _tell_change(self, verdict: Verdict) -> None:
        if verdict.reason is not self._said:
            self._said = verdict.reason
            self.world.tell(f"answer: {200 if verdict.available else 503} {verdict.reason.value}: {verdict.detail}")

    def _break(self, words: str) -> None:
        if not self.broken:
            self.world.tell(f"BROKEN: {words}")
            self.broken = self.world.story.copy()
