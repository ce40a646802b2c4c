"""Runs the real monitor and poller in a world from a seed, and checks what is promised."""

import asyncio
import contextlib
import logging
import math
import random
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from async_solipsism import SolipsismWarning

from app.database.poller import Pace, Poller
from app.database.surroundings import Surroundings
from app.monitor.monitor import Monitor, Polling
from app.settings.database import Database
from app.verdict.alone import IS_CUT
from app.verdict.node_state import NodeState, PollFailure
from app.verdict.reason import Reason
from app.verdict.rules import Policy, Switches, Verdict
from tests.simulation import promises as promised
from tests.simulation.plan import Plan
from tests.simulation.promises import TURN_SECONDS, Promises
from tests.simulation.server import Fate, Server, Stand, Sync, milliseconds
from tests.simulation.world import World

_UNKNOWN = (Reason.STARTING, Reason.STALE)
_STANDS_ALONE = (Reason.CUT_OFF, Reason.DISK_FULL, Reason.STALLED)
_QUIET_SECONDS = 2.0
_EXAM_SECONDS = 4.0
_BORING_SECONDS, _LONG_SECONDS = 3.0, 4.0
"""How seldom to ask while a world that is well again needs long to settle."""
_TOO_MANY = 2
"""A health check may be unlucky during which our process pauses so often."""
_MOST_TURNS = 40
"""In fewer turns of the loop a login has ended."""
_STRICT_SHARE = 0.3
"""The share of health checks with max_sync_wait."""
_IMPATIENT = 0.05
"""The share of health checks that are given up."""


_STRICT = Policy(max_sync_wait=promised.MOST_SYNC_WAIT_SECONDS)
_DATABASE = Database(
    mysql_host="127.0.0.1",
    mysql_port=3306,
    mysql_username="someone",
    mysql_password="geheim",
)
_PACE = Pace(
    promised.DEADLINE_SECONDS,
    promised.LOGIN_INTERVAL_SECONDS,
    promised.IDLE_SECONDS,
)


class BrokenPromiseError(AssertionError):
    """What clustercheckd promises did not hold; the words are the story of the world."""


class Host(Surroundings):
    """Has room, and connections that work, unless the network is cut.

    is_doubtful: whether the group may still exclude the node for that.
    """

    is_cut = is_doubtful = False

    def look(
        self, _variables: object, _members: object, *, waits: bool
    ) -> dict[str, int]:
        """Return what is seen of the network."""
        return {IS_CUT: int(self.is_cut)} if waits else {}


Story = Callable[["Simulation"], Awaitable[None]]
"""What happens in a world, if not what its seed says."""


@dataclass
class Poll:
    """A poll, in seconds in which our process runs.

    disturbances: of the world, when it began.
    """

    began_at: float = -math.inf
    ended_at: float = 0.0
    disturbances: int = 0


class Simulation:
    """One world, from one seed."""

    _polls = False
    _over = False
    _out_of_sync_at = math.inf
    _stands_still_at = math.inf
    _reason: object = None

    def __init__(self, seed: int, story: Story | None = None) -> None:
        self.seed = seed
        self._story = story or Simulation.live_through_all
        self.rng = random.Random(seed)
        self.ask_seconds = self.rng.choice([0.1, 0.1, 0.5, 1.0])
        self.world = World()
        self.server = Server(self.world, self.rng)
        self.promises = Promises(self.world, self.server, 1.5 * self.ask_seconds)
        self.plan = Plan(
            self.world,
            self.server,
            self.promises,
            self.rng,
            story is not None,
        )
        self.broken: list[str] = []
        self._latest = Poll()
        self.server.on_session = self._check_sessions
        self.host = Host()

    def run(self) -> list[str]:
        """Run the world to its end, and return its story.

        Raises `BrokenPromiseError` if a promise was broken.
        """
        logging.disable()
        try:
            with (
                warnings.catch_warnings(),
                asyncio.Runner(loop_factory=lambda: self.world.loop) as runner,
            ):
                # The mock sockets know nothing of keepalive.
                warnings.simplefilter("ignore", SolipsismWarning)
                runner.run(self._live())
        finally:
            logging.disable(logging.NOTSET)
        if self.broken:
            title = f"seed {self.seed} (python -m tests.simulation {self.seed}):"
            raise BrokenPromiseError("\n".join([title, *self.broken]))
        return self.world.story

    async def _live(self) -> None:
        self.poller = Poller(
            _DATABASE, _PACE, surroundings=self.host, clock=self.world.boot_seconds
        )
        polling = Polling(
            self._check_poll,
            interval_seconds=promised.POLL_INTERVAL_SECONDS,
            deadline_seconds=promised.DEADLINE_SECONDS,
            max_age_seconds=promised.MAX_AGE_SECONDS,
            policy=Policy(),
        )
        self.monitor = Monitor(
            polling, switches=Switches, clock=self.world.boot_seconds
        )
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            running = tasks.create_task(self.monitor.run())
            asking = tasks.create_task(self._ask_again_and_again())
            await self._story(self)
            self._over = True
            asking.cancel()
            running.cancel()
        await self._check_end()

    async def live_through_all(self) -> None:
        """Let happen what is planned, and then what no world is to be without."""
        await self.until_settled()
        # Reject logins for a while: a poller that is locked out would not notice.
        self.plan.change_fate(Fate.NO_THREAD)
        await asyncio.sleep(_EXAM_SECONDS)
        self.plan.change_fate(Fate.WELCOME)
        await self.until_settled()
        await self._stand_still()
        await self.until_settled()
        await self._come_back_out_of_sync()
        await self.until_settled()
        self.server.stopped = self.rng.random() < 0.3
        await self._until_the_end()

    async def until_settled(self) -> None:
        """Wait until the node must be available, and has been for a while."""
        while not self.broken and (  # noqa: ASYNC110 (a world with its own clock)
            self.world.now < self.plan.ends_at or self._settles_in > -_QUIET_SECONDS
        ):
            await asyncio.sleep(0.5)

    async def _come_back_out_of_sync(self) -> None:
        """Let nothing answer for a time, and the node then not keep up with its group."""
        self.plan.change_sync(Sync.LOST)
        if self.rng.random() < 0.5:
            self.plan.kill()
        seconds = self.rng.choice(promised.HANG_SECONDS)
        match self.rng.choice(["server", "both", "machine"]):
            case "server":
                self.server.stopped = True
            case "both":
                self.plan.stop_all(seconds)
            case "machine":
                self.world.sleep(seconds)
                seconds = 0.0
        await asyncio.sleep(seconds)
        self._out_of_sync_at = self.world.running
        self.plan.release()
        self.promises.settle()
        await asyncio.sleep(_EXAM_SECONDS)
        self._out_of_sync_at = math.inf
        self.plan.change_sync(Sync.ANSWERED)

    async def _stand_still(self) -> None:
        """Let the node not keep up with its group, perhaps while our account is refused."""
        if self.promises.in_sync_at > self.world.running:
            # A read in sync that may never be answered goes on.
            return
        self.plan.change_fate(self.rng.choice([Fate.WELCOME, *promised.ACCOUNT]))
        await asyncio.sleep(self.rng.uniform(0.0, 4.0))
        stand = self.rng.choice([Stand.IT, Stand.OTHERS, Stand.ALL])
        self.server.change_stand(stand)
        if stand is not Stand.OTHERS:
            self.plan.change_sync(Sync.LOST)
        await asyncio.sleep(promised.BLOCKED_SECONDS)
        if stand is not Stand.OTHERS:
            self._stands_still_at = self.world.running
        await asyncio.sleep(_EXAM_SECONDS)
        self._stands_still_at = math.inf
        self.plan.change_sync(Sync.ANSWERED)
        self.server.change_stand(Stand.NOBODY)
        self.promises.settle()
        self.plan.change_fate(Fate.WELCOME)

    async def _until_the_end(self) -> None:
        """Wait for a while, or until so many turns of the loop after a login has begun."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.rng.uniform(0.0, 4.0)):
                await self.server.next_client.wait()
                for _ in range(self.rng.randint(0, _MOST_TURNS)):
                    self.world.turn.clear()
                    await self.world.turn.wait()

    @property
    def _settles_in(self) -> float:
        return self.promises.settled_at - self.world.running

    async def _ask_again_and_again(self) -> None:
        while True:
            seconds = self.ask_seconds * self.rng.uniform(0.5, 1.5)
            if (
                self.world.now > self.plan.ends_at
                and _LONG_SECONDS < self._settles_in < math.inf
            ):
                seconds = _BORING_SECONDS
            is_impatient = self.rng.random() < _IMPATIENT
            self._tasks.create_task(
                self._ask(self.rng.uniform(0.0, 0.3) if is_impatient else None)
            )
            await asyncio.sleep(seconds)

    async def _ask(self, patience_seconds: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_seconds):
                await self._check_answer()

    async def _check_answer(self) -> None:
        asked_at = self.world.running
        disturbances = self.world.disturbances
        policy = _STRICT if self.rng.random() < _STRICT_SHARE else None
        known = self.monitor.verdict(policy)
        settled_at = self._settled_at(policy)
        verdict = await self.monitor.fresh_verdict(policy)
        took_seconds = self.world.running - asked_at
        disturbances = self.world.disturbances - disturbances
        if policy is None:
            self._tell_change(verdict)
        self._check_time(
            took_seconds, known, disturbed=disturbances or self.world.turn_seconds
        )
        settled_at = max(settled_at, self._settled_at(policy))
        # Our process may have paused meanwhile, but not twice.
        is_due = settled_at <= asked_at and disturbances < _TOO_MANY
        is_alone = self.server.stand is Stand.IT or self.host.is_doubtful
        stands_alone = verdict.reason in _STANDS_ALONE and is_alone
        if verdict.available:
            self._check_200(asked_at, is_strict=policy is _STRICT)
        elif is_due and not stands_alone and not self._over:
            self._break(
                f"{verdict.reason} asked at {asked_at:.3f}, though the server was well"
            )

    def _check_time(
        self, took_seconds: float, known: Verdict, *, disturbed: float
    ) -> None:
        promised_seconds = promised.ANSWER_SECONDS
        if disturbed:
            promised_seconds = promised.DISTURBED_SECONDS
        elif not known.available and known.reason not in _UNKNOWN:
            promised_seconds = promised.REFUSAL_SECONDS
        if took_seconds > promised_seconds + TURN_SECONDS:
            self._break(
                f"an answer took {took_seconds:.3f} s, promised are {promised_seconds} s"
            )

    def _settled_at(self, policy: Policy | None) -> float:
        if policy is _STRICT:
            return self.promises.in_sync_at
        return self.promises.settled_at

    def _check_200(self, asked_at: float, *, is_strict: bool) -> None:
        is_alone = self.server.stand is Stand.IT
        if (is_strict or is_alone) and asked_at > self._stands_still_at:
            self._break("available, though no read in sync is answered")
        if asked_at > self.promises.last_200_at:
            self._break("available, though no login succeeds")
        if asked_at > self._out_of_sync_at:
            self._break("available after a hang, though no read in sync was answered")
        oldest = asked_at - promised.POLL_INTERVAL_SECONDS - promised.ROUNDING_SECONDS
        if self._latest.began_at < oldest and self._latest.ended_at < asked_at:
            self._break(
                f"the answer rests on a poll that began at {self._latest.began_at:.3f}"
            )

    async def _check_poll(self) -> NodeState | PollFailure:
        if self._polls:
            self._break("two polls are under way")
        self._polls = True
        began_at = int(milliseconds(self.world.now))
        poll = Poll(self.world.running, disturbances=self.world.disturbances)
        self._check_gap(poll)
        try:
            result = await self.poller.poll()
        finally:
            self._polls = False
        poll.ended_at = self.world.running
        self._latest = poll
        if isinstance(result, NodeState):
            said_at = result.uptime or 0
            if said_at < began_at:
                self._break("a poll returned what the server said before it")
        self.plan.poll_ended()
        return result

    def _check_gap(self, poll: Poll) -> None:
        if poll.disturbances > self._latest.disturbances or self.world.turn_seconds:
            return
        began_at = self._latest.began_at
        earliest = began_at + promised.POLL_INTERVAL_SECONDS - promised.ROUNDING_SECONDS
        latest = (
            max(began_at + promised.IDLE_SECONDS, self._latest.ended_at) + TURN_SECONDS
        )
        if not earliest <= poll.began_at <= latest:
            self._break("a poll begins too soon or too late")

    def _check_sessions(self) -> None:
        held, has = len(self.server.held), self.server.has
        if held > promised.MOST_SESSIONS:
            self._break(f"{held} sessions are open")
        if max(has.values()) > promised.MOST_ON_THE_SERVER:
            self._break(f"the server has {has}")

    async def _check_end(self) -> None:
        began_at = self.world.running
        await self.poller.aclose()
        if self.world.running > began_at + promised.CLOSE_SECONDS + TURN_SECONDS:
            self._break("to close took too long")
        await asyncio.sleep(TURN_SECONDS)
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        left = [*tasks, *self.world.loop.timers, *self.server.held]
        if left:
            self._break(f"this is left: {left}")

    def _tell_change(self, verdict: Verdict) -> None:
        if verdict.reason is not self._reason:
            self._reason = verdict.reason
            status = 200 if verdict.available else 503
            self.world.tell(
                f"answer: {status} {verdict.reason.value}: {verdict.detail}"
            )

    def _break(self, promise: str) -> None:
        if not self.broken:
            self.world.tell(f"BROKEN: {promise}")
            self.broken = self.world.story.copy()
