"""What the worlds of the seeds are seldom long or still enough for, one story each."""

import asyncio
from collections.abc import Callable

from app.verdict.reason import Reason
from tests.simulation.server import Fate, Sync
from tests.simulation.simulation import Simulation, Story

_SOON_SECONDS = 5.0
_SEEDS = 4


def in_calm_worlds(story: Story) -> Callable[[], None]:
    """Make a test of a story: it happens in worlds that differ in how fast all is."""

    async def between_calm_times(world: Simulation) -> None:
        await asyncio.sleep(_SOON_SECONDS)
        await world.until_settled()
        await story(world)
        await world.until_settled()

    def test() -> None:
        for seed in range(_SEEDS):
            Simulation(seed, between_calm_times).run()

    return test


@in_calm_worlds
async def test_a_session_that_gets_no_answer_and_no_end_keeps_the_node_out_for_a_minute_at_most(
    world: Simulation,
) -> None:
    world.server.has_keepalive = False
    serving, guest = 0, 1
    for role in (serving, guest) * 3:
        world.promises.lose_session(silently=True)
        world.server.silence(world.server.held[role])
        await world.until_settled()
        await asyncio.sleep(_SOON_SECONDS)


@in_calm_worlds
async def test_a_server_that_hangs_for_15_minutes_keeps_six_sessions(
    world: Simulation,
) -> None:
    world.server.holds_statements = True
    await asyncio.sleep(900.0)
    world.plan.release()


@in_calm_worlds
async def test_a_server_that_greets_nobody_for_15_minutes_keeps_six_sessions(
    world: Simulation,
) -> None:
    world.plan.change_fate(Fate.NO_GREETING)
    await asyncio.sleep(900.0)
    world.plan.change_fate(Fate.WELCOME)


@in_calm_worlds
async def test_a_server_whose_sessions_fall_silent_for_a_while_is_back_within_a_minute(
    world: Simulation,
) -> None:
    world.server.has_keepalive = False
    world.plan.change_fate(Fate.SILENT)
    await asyncio.sleep(30.0)
    world.plan.change_fate(Fate.WELCOME)


@in_calm_worlds
async def test_reads_in_sync_that_wait_for_15_minutes_leave_room_for_visits(
    world: Simulation,
) -> None:
    world.plan.change_sync(Sync.LOST)
    await asyncio.sleep(900.0)
    assert world.promises.settled_at < world.world.now
    world.plan.change_sync(Sync.ANSWERED)


@in_calm_worlds
async def test_after_a_cut_the_next_200_needs_a_read_in_sync_that_began_later(
    world: Simulation,
) -> None:
    world.host.is_cut = world.host.is_doubtful = True
    world.plan.change_sync(Sync.LATE)
    while not world.server.waits_in_sync:  # noqa: ASYNC110 (a world with its own clock)
        await asyncio.sleep(0.1)
    await asyncio.sleep(2.0)
    world.host.is_cut = False
    # The one that waited has been answered, and the next one waits.
    await asyncio.sleep(2.5)
    assert world.monitor.verdict().reason is Reason.CUT_OFF
    # Not only when its connections were lost ten seconds ago.
    await asyncio.sleep(3.0)
    assert world.monitor.verdict().available
    world.plan.change_sync(Sync.ANSWERED)
    world.host.is_doubtful = False


@in_calm_worlds
async def test_an_account_that_the_server_delays_after_refusals_gets_in_and_sees_what_follows(
    world: Simulation,
) -> None:
    world.server.refusal_seconds = 4.0
    world.plan.change_fate(Fate.DENIED)
    await asyncio.sleep(45.0)
    world.plan.change_fate(Fate.WELCOME)
    await world.until_settled()
    world.plan.change_fate(Fate.NO_THREAD)
    await asyncio.sleep(_SOON_SECONDS)
    world.plan.change_fate(Fate.WELCOME)


@in_calm_worlds
async def test_a_login_that_takes_two_seconds_is_one_even_without_a_session(
    world: Simulation,
) -> None:
    world.plan.change_fate(Fate.SLOW)
    for session in world.server.logged_in:
        world.promises.lose_session()
        session.end()
