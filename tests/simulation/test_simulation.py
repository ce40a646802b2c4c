"""The promises of the poller and the monitor, in worlds made from seeds.

`python -m tests.simulation 17` runs one.
"""

import pytest

from tests.simulation.simulation import Simulation

WORLDS, MORE_WORLDS = 100, 3000


@pytest.mark.parametrize("first", range(0, WORLDS, 20))
def test_promises_hold(first: int) -> None:
    for seed in range(first, first + 20):
        Simulation(seed).run()


@pytest.mark.long
@pytest.mark.parametrize("first", range(WORLDS, MORE_WORLDS, 100))
def test_promises_hold_in_more_worlds(first: int) -> None:
    for seed in range(first, first + 100):
        Simulation(seed).run()


def test_a_seed_tells_the_same_story_again() -> None:
    stories = []
    for _ in range(2):
        simulation = Simulation(4)
        simulation.run()
        stories.append(simulation.world.story)
    assert stories[0] == stories[1]
