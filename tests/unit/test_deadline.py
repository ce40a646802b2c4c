"""The deadline, on an event loop whose clock only a test moves, as if this process were paused or
busy.
"""

import asyncio

import pytest

from app.deadline import deadline
from tests.unit.polling import JumpingLoop


def run_until_the_deadline(turn_seconds: float, seconds: float) -> float:
    """Do so much work in each turn of the loop; return when the deadline ended that."""

    async def work() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, JumpingLoop)
        async with deadline(seconds):
            while loop.ahead_seconds < 100:
                loop.ahead_seconds += turn_seconds
                await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        with pytest.raises(TimeoutError):
            runner.run(work())
        return runner.get_loop().time()


@pytest.mark.parametrize(
    ("turn_seconds", "seconds", "at_most"),
    [
        # Turns that are short beside a step cost nothing.
        (0.001, 0.8, 0.9),
        # Longer ones are late at each step, and still end.
        (0.015, 0.8, 1.6),
        (0.015, 0.05, 0.5),
        (0.3, 0.8, 10.4),
    ],
)
def test_a_loop_that_is_always_busy_reaches_the_deadline(
    turn_seconds: float, seconds: float, at_most: float
) -> None:
    assert seconds <= run_until_the_deadline(turn_seconds, seconds) <= at_most
