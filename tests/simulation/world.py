"""A world with a clock of its own.

An event loop runs in it whose time is virtual: it jumps to the next thing that happens. What has
been scheduled with `World.after` goes on while the process of the loop is paused.
"""

import asyncio
import heapq
import itertools
import math
from collections.abc import Callable
from typing import Any

import async_solipsism
import async_solipsism.selector

Action = Callable[[], object]

_TICK_SECONDS = 1e-6


class World:
    """What happens around an event loop, and when."""

    each_turn: Action
    slept_seconds = 0.0
    disturbances = 0  # how often something has kept our process from its work
    turn_seconds = 0.0  # for how long our process works in each turn of the loop
    _paused_at = math.inf
    _paused_seconds = 0.0

    def __init__(self) -> None:
        self.loop = _Loop(self)
        self.story: list[str] = []
        self.turn = asyncio.Event()  # set at the end of each turn
        self._events: list[tuple[float, int, Action]] = []
        self._numbers = itertools.count()
        self._pauses: list[tuple[int, float]] = []

    @property
    def now(self) -> float:
        """The time in seconds."""
        return float(self.loop.time())

    @property
    def running(self) -> float:
        """For how many seconds our process has run."""
        return min(self.now, self._paused_at) - self._paused_seconds

    def boot_seconds(self) -> float:
        """Return the time with what the machine has slept."""
        return self.now + self.slept_seconds

    def tell(self, event: str) -> None:
        """Add a line to the story."""
        self.story.append(f"{self.now:9.4f}  {event}")

    def after(self, seconds: float, action: Action) -> None:
        """Do something after so many seconds, whether our process runs then or not."""
        when = self.now + seconds
        heapq.heappush(self._events, (when, next(self._numbers), action))

    def pause(self, seconds: float, turns: int = 0) -> None:
        """Pause our process after so many turns of the loop."""
        self._pauses.append((turns, seconds))

    def sleep(self, seconds: float) -> None:
        """Suspend the machine, the server included: only the boot clock notices."""
        self.tell(f"the machine sleeps for {seconds:.0f} s")
        self.slept_seconds += seconds
        self.disturbances += 1

    def work(self, turn_seconds: float) -> None:
        """Let our process work for so long in each turn of the loop."""
        self.tell(f"our process works for {turn_seconds:g} s in each turn")
        self.disturbances += 1
        self.turn_seconds = turn_seconds

    def end_turn(self) -> None:
        """Let time pass between two turns of the loop."""
        pauses, self._pauses = self._pauses, []
        for turns, seconds in pauses:
            if turns:
                self.pause(seconds, turns - 1)
                continue
            self.tell(f"our process pauses for {seconds:.2f} s")
            self.disturbances += 1
            self._paused_at = self.now
            self._pass(seconds)
            self._paused_at = math.inf
            self._paused_seconds += seconds
        self._pass(self.turn_seconds)
        self.each_turn()
        self.turn.set()

    def go_on(self, limit: float) -> None:
        """Go on to the next event, or to the limit if that comes first."""
        if self._events and self._events[0][0] <= limit:
            self._happen()
        else:
            self._set(limit)

    def _pass(self, seconds: float) -> None:
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self._happen()
        self._set(end)

    def _happen(self) -> None:
        when, _, action = heapq.heappop(self._events)
        self._set(when)
        action()

    def _set(self, when: float) -> None:
        if when > self.now:
            self.loop.clock.advance(max(when - self.now, _TICK_SECONDS))


class _Loop(async_solipsism.EventLoop):  # type: ignore[misc]
    """An event loop in a world."""

    connect: Callable[[str], Any]

    def __init__(self, world: World) -> None:
        super().__init__()
        self.clock: Any = self._selector.clock  # type: ignore[has-type]
        self._selector = _Selector(world, self.clock)

    @property
    def timers(self) -> list[Any]:
        """What is still to be called later."""
        return [handle for handle in self._scheduled if not handle.cancelled()]

    async def create_connection(
        self,
        factory: Any,
        host: str,
        *_: object,
        **__: object,
    ) -> Any:
        """Connect to the server of the world, which has many addresses."""
        session = await self.connect(host)
        try:
            session.transport, protocol = await super().create_connection(
                factory, sock=session.ours
            )
        except BaseException:
            session.given_up = True
            raise
        return session.transport, protocol


class _Selector(async_solipsism.selector.Selector):  # type: ignore[misc]
    def __init__(self, world: World, clock: object) -> None:
        super().__init__(clock)
        self._world = world

    def select(self, timeout: float | None = None) -> list[Any]:
        self._world.end_turn()
        limit = math.inf if timeout is None else self.clock.time() + timeout
        while True:
            ready: list[Any] = super().select(0)
            if ready or self.clock.time() >= limit - _TICK_SECONDS / 2:
                return ready
            self._world.go_on(limit)
