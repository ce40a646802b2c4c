"""The promises of the poller and the monitor, in worlds made from seeds.

`python -m tests.simulation 17` runs one.
"""

import pytest

from tests.simulation.simulation import Simulation

WORLDS, MORE_WORLDS = 100, 1500
AT_ONCE = 20


@pytest.mark.parametrize(
    "first",
    [
        *range(0, WORLDS, AT_ONCE),
        *(
            pytest.param(first, marks=pytest.mark.long)
            for first in range(WORLDS, MORE_WORLDS, AT_ONCE)
        ),
    ],
)
def test_promises_hold(first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        Simulation(seed).run()


def test_a_seed_tells_the_same_story_again() -> None:
    assert Simulation(4).run() == Simulation(4).run()
