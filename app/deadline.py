"""A deadline that counts only the time in which this process runs.

After a pause (a stopped virtual machine, a frozen cgroup, a starved CPU) an ordinary timer fires at once, although the
answer that it waits for lies in the socket. That would be a verdict on clustercheckd, not on the node.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

_STEPS = 8


@asynccontextmanager
async def deadline(seconds: float) -> AsyncIterator[None]:
    """Raise TimeoutError in the body after so many seconds, as `asyncio.timeout` does.

    The time is counted in steps of an eighth. A step that ends more than a step late does not count: the event loop did
    not run meanwhile, and still has to read what has arrived.
    """
    loop = asyncio.get_running_loop()
    step_seconds = seconds / _STEPS
    left = _STEPS
    timer: asyncio.TimerHandle

    def end_step(due: float) -> None:
        nonlocal left, timer
        now = loop.time()
        left -= now - due <= step_seconds
        if left:
            timer = loop.call_at(now + step_seconds, end_step, now + step_seconds)
        else:
            timeout.reschedule(now)

    timer = loop.call_later(step_seconds, end_step, loop.time() + step_seconds)
    try:
        async with asyncio.timeout(None) as timeout:
            yield
    finally:
        timer.cancel()
