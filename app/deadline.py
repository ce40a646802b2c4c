"""A deadline that counts only the time in which this process runs.

After a pause (a frozen cgroup, a starved CPU), an ordinary timer fires at once, although the answer
lies in the socket.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

boot_seconds = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
"""Returns the time since the machine booted, in seconds, with that in suspend."""

_STEPS = 8
_REPEATS = 8


def _never() -> bool:
    return False


class deadline:  # noqa: N801 (as asyncio.timeout, which it stands for)
    """Raise TimeoutError in the body after so many seconds, as `asyncio.timeout` does.

    unless: asked then whether to go on. A pause of any length costs at most one of eight steps. If
    the last one ends more than a step late, it is repeated, at most eight times: the loop still has
    to read what has arrived.
    """

    def __init__(self, seconds: float, *, unless: Callable[[], bool] = _never) -> None:
        self._step_seconds = seconds / _STEPS
        self._unless = unless
        self._left = _STEPS
        self._is_over = False

    async def __aenter__(self) -> None:
        """Begin. asyncio.timeout does the same, and each poll would take a tenth longer."""
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[Any] = asyncio.current_task()  # type: ignore[assignment]
        self._cancelling = self._task.cancelling()
        self._begin_step()

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, _: object
    ) -> None:
        """End, and turn its own cancellation into TimeoutError."""
        self._timer.cancel()
        is_ours = self._is_over and self._task.uncancel() <= self._cancelling
        if is_ours and kind is asyncio.CancelledError:
            raise TimeoutError from fault

    def _begin_step(self) -> None:
        due = self._loop.time() + self._step_seconds
        self._timer = self._loop.call_at(due, self._end_step, due)

    def _end_step(self, due: float) -> None:
        self._left -= 1
        now = self._loop.time()
        on_time = now - due <= self._step_seconds
        goes_on = self._left > 0 or (not on_time and self._left > -_REPEATS)
        if goes_on or self._unless():
            self._begin_step()
        else:
            self._is_over = True
            self._task.cancel()
