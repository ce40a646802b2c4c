"""What the worlds of the seeds are seldom long or still enough for, one story each."""

import asyncio

import pytest

from tests.simulation import promises as promised
from tests.simulation.server import Fate, Sync
from tests.simulation.simulation import OTHER_SERVER, Simulation, Story

_SOON_SECONDS = 5.0
_SEEDS = 4


def tell(story: Story) -> None:
    """Let a story happen in worlds that differ in how fast all is."""
    for seed in range(_SEEDS):
        Simulation(seed, story).run()


async def until_settled(world: Simulation) -> None:
    """Let a calm world go on for a while, and until its node must be available."""
    await asyncio.sleep(_SOON_SECONDS)
    await world.until_settled()


@pytest.mark.parametrize("role", [0, 1], ids=["serving", "guest"])
def test_a_session_that_gets_no_answer_and_no_end_keeps_the_node_out_for_a_minute_at_most(
    role: int,
) -> None:
    async def story(world: Simulation) -> None:
        world.server.has_keepalive = False
        await until_settled(world)
        world.promises.lose_session(silently=True)
        world.server.silence(world.server.logged_in[role])
        await until_settled(world)

    tell(story)


def test_a_server_that_hangs_for_15_minutes_keeps_nine_sessions() -> None:
    async def story(world: Simulation) -> None:
        await until_settled(world)
        world.server.holds_statements = True
        await asyncio.sleep(60.0)
        world.most_on_the_server = 9
        await asyncio.sleep(840.0)
        world.plan.release()
        await until_settled(world)

    tell(story)


def test_a_login_that_takes_two_seconds_is_one_even_without_a_session() -> None:
    async def story(world: Simulation) -> None:
        await until_settled(world)
        world.plan.change_fate(Fate.SLOW)
        for session in world.server.logged_in:
            world.promises.lose_session()
            session.end()
        await until_settled(world)

    tell(story)


def test_of_another_server_nothing_is_known_and_no_session_stays_with_the_one_before() -> (
    None
):
    async def story(world: Simulation) -> None:
        await until_settled(world)
        world.plan.change_sync(Sync.LOST)
        await asyncio.sleep(_SOON_SECONDS)
        assert (world.poller.sync_wait_seconds or 0) > promised.MOST_SYNC_WAIT_SECONDS
        before = world.server.logged_in
        world.plan.change_sync(Sync.ANSWERED)
        world.take_over(OTHER_SERVER)
        assert world.poller.sync_wait_seconds is None
        await asyncio.sleep(promised.CLOSE_SECONDS)
        assert not any(session.held for session in before)

    tell(story)
