"""A deadline that counts only the time in which this process runs.

After a pause (a frozen cgroup, a starved CPU), an ordinary timer fires at once, although the answer
lies in the socket.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

boot_seconds = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
"""Returns the time since the machine booted, in seconds, with that in suspend."""

_STEPS = 8
_REPEATS = 8


@asynccontextmanager
async def deadline(
    seconds: float, *, unless: Callable[[], bool] = lambda: False
) -> AsyncIterator[None]:
    """Raise TimeoutError in the body after so many seconds, as `asyncio.timeout` does.

    unless: asked then whether to go on. A pause of any length costs at most one of eight steps. If
    the last one ends more than a step late, it is repeated, at most eight times: the loop still has
    to read what has arrived.
    """
    loop = asyncio.get_running_loop()
    step_seconds = seconds / _STEPS
    left = _STEPS
    timer: asyncio.TimerHandle

    def begin_step() -> asyncio.TimerHandle:
        due = loop.time() + step_seconds
        return loop.call_at(due, end_step, due)

    def end_step(due: float) -> None:
        nonlocal left, timer
        left -= 1
        now = loop.time()
        on_time = now - due <= step_seconds
        if left > 0 or (not on_time and left > -_REPEATS) or unless():
            timer = begin_step()
        else:
            timeout.reschedule(now)

    timer = begin_step()
    try:
        async with asyncio.timeout(None) as timeout:
            yield
    finally:
        timer.cancel()
