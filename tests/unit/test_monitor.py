"""The loop, with hand-written pollers that fail in ways no server can be brought to."""

import asyncio
import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from app.monitor import IN_DOUBT_SECONDS, Monitor, boot_seconds, oldest_usable_seconds
from app.node_state import NodeState, PollFailure
from app.reason import Reason
from app.verdict import Policy, Switches
from tests.measured import within

INTERVAL_SECONDS = 0.01
MAX_AGE_SECONDS = 0.3
SYNCED = NodeState(
    wsrep_local_state=4, wsrep_cluster_status="Primary", wsrep_ready="ON", wsrep_connected="ON", wsrep_provider="x.so"
)
DOWN = PollFailure(Reason.UNREACHABLE, "cannot connect")


class ScriptedPoller:
    """Gives one poll after the other, the last for ever; runs those that are functions."""

    def __init__(self, *script: NodeState | PollFailure | Callable[[], Awaitable[NodeState | PollFailure]]) -> None:
        self.script = list(script)
        self.calls = 0
        self.under_way = 0
        self.most_under_way = 0

    async def poll(self) -> NodeState | PollFailure:
        self.calls += 1
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(0)
            step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            return await step() if callable(step) else step
        finally:
            self.under_way -= 1


async def failing() -> NodeState:
    """Fail as no poller should."""
    message = "a fault in the poller"
    raise RuntimeError(message)


async def hanging() -> NodeState:
    """Never come back, as no poller should."""
    await asyncio.Event().wait()
    raise AssertionError


@asynccontextmanager
async def running(
    poller: ScriptedPoller,
    switches: Callable[[], Switches] = Switches,
    max_age_seconds: float = MAX_AGE_SECONDS,
) -> AsyncIterator[Monitor]:
    """Run a monitor on the poller."""
    monitor = Monitor(poller, interval_seconds=INTERVAL_SECONDS, policy=Policy(max_age_seconds), switches=switches)
    task = asyncio.create_task(monitor.run())
    try:
        yield monitor
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (any condition)
            await asyncio.sleep(0.002)


def test_before_the_first_poll_the_node_is_starting() -> None:
    async def scenario() -> None:
        async with running(ScriptedPoller(hanging)) as monitor:
            await asyncio.sleep(0)
            assert monitor.verdict().reason is Reason.STARTING
            assert not monitor.polled.is_set()

    asyncio.run(scenario())


def test_a_fault_of_the_poller_is_an_error_and_not_the_end(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        poller = ScriptedPoller(SYNCED, failing, failing, failing, SYNCED)
        async with running(poller) as monitor:
            await until(lambda: monitor.verdict().reason is Reason.ERROR)
            await until(lambda: monitor.verdict().available)

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())
    assert len([record for record in caplog.records if record.exc_info]) == 1


def test_one_poll_is_under_way_at_a_time() -> None:
    async def slowly() -> NodeState:
        await asyncio.sleep(3 * INTERVAL_SECONDS)
        return SYNCED

    poller = ScriptedPoller(slowly)

    async def scenario() -> None:
        async with running(poller):
            await until(lambda: poller.calls > 5)

    asyncio.run(scenario())
    assert poller.most_under_way == 1


def test_an_poll_that_is_followed_by_none_turns_stale() -> None:
    async def scenario() -> None:
        async with running(ScriptedPoller(SYNCED, hanging)) as monitor:
            await until(lambda: monitor.verdict().available)
            began = time.monotonic()
            await until(lambda: not monitor.verdict().available)
            assert monitor.verdict().reason is Reason.STALE
            within("stale", time.monotonic() - began, MAX_AGE_SECONDS + 0.1)

    asyncio.run(scenario())


def test_what_was_read_before_a_sleep_of_the_machine_is_not_served_after_it() -> None:
    asleep_seconds = 0.0

    async def scenario() -> None:
        nonlocal asleep_seconds
        monitor = Monitor(
            ScriptedPoller(SYNCED),
            interval_seconds=60,
            policy=Policy(max_age_seconds=61),
            switches=Switches,
            clock=lambda: boot_seconds() + asleep_seconds,
        )
        task = asyncio.create_task(monitor.run())
        await monitor.polled.wait()
        assert monitor.verdict().available
        assert not monitor.in_doubt
        asleep_seconds = 60.5
        assert monitor.in_doubt
        asleep_seconds = 3600.0
        assert monitor.verdict().reason is Reason.STALE
        task.cancel()

    asyncio.run(scenario())


def test_an_poll_is_in_doubt_from_a_tenth_of_a_second_after_the_next_one_is_due() -> None:
    passed_seconds = 0.0

    async def scenario() -> None:
        nonlocal passed_seconds
        poller = ScriptedPoller(SYNCED, hanging)
        monitor = Monitor(
            poller, interval_seconds=1, policy=Policy(100), switches=Switches, clock=lambda: passed_seconds
        )
        task = asyncio.create_task(monitor.run())
        await monitor.polled.wait()
        passed_seconds = 1 + IN_DOUBT_SECONDS
        assert not monitor.in_doubt
        passed_seconds += 0.001
        assert monitor.in_doubt
        assert monitor.verdict().available
        task.cancel()

    asyncio.run(scenario())


@pytest.mark.parametrize("taken", [0.0, 0.3, 0.79])
def test_two_slow_polls_in_a_row_are_no_reason_to_be_stale(taken: float) -> None:
    interval, deadline = 0.25, 0.8
    # The older one is served until the next has taken its time.
    assert max(taken, interval) + deadline < oldest_usable_seconds(interval, deadline)


def test_failures_that_each_take_long_keep_their_reason_in_between() -> None:
    async def slowly() -> PollFailure:
        await asyncio.sleep(MAX_AGE_SECONDS)
        return DOWN

    poller = ScriptedPoller(slowly)

    async def scenario() -> None:
        # Two in a row are nearly as old as a poll may be.
        async with running(poller, max_age_seconds=2.5 * MAX_AGE_SECONDS) as monitor:
            await until(lambda: poller.calls > 4)
            assert [change.verdict.reason for change in monitor.changes] == [Reason.UNREACHABLE]

    asyncio.run(scenario())


def test_each_change_of_verdict_is_kept_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    poller = ScriptedPoller(SYNCED, SYNCED, DOWN, DOWN, DOWN, SYNCED)

    async def scenario() -> list[Reason]:
        async with running(poller) as monitor:
            await until(lambda: poller.calls > 10)
            return [change.verdict.reason for change in monitor.changes]

    with caplog.at_level(logging.INFO):
        reasons = asyncio.run(scenario())
    assert reasons == [Reason.SYNCED, Reason.UNREACHABLE, Reason.SYNCED]
    changes = [record for record in caplog.records if record.name == "app.change_log"]
    assert [(record.levelname, record.getMessage(), vars(record)["reason"]) for record in changes] == [
        ("INFO", "available", "synced"),
        ("WARNING", "unavailable", "unreachable"),
        ("INFO", "available", "synced"),
    ]


def test_a_switch_counts_at_once() -> None:
    switched: list[str] = []

    async def scenario() -> None:
        switches = lambda: Switches(disabled_file=switched[0] if switched else None)  # noqa: E731
        async with running(ScriptedPoller(SYNCED), switches) as monitor:
            await until(lambda: monitor.verdict().available)
            switched.append("/file")
            assert monitor.verdict().reason is Reason.DISABLED

    asyncio.run(scenario())


def test_a_policy_of_one_request_decides_instead_of_the_configured_one() -> None:
    async def scenario() -> None:
        async with running(ScriptedPoller(dataclasses.replace(SYNCED, read_only="ON"))) as monitor:
            await until(lambda: monitor.verdict().available)
            stricter = dataclasses.replace(monitor.policy, available_when_readonly=False)
            assert monitor.verdict(stricter).reason is Reason.READ_ONLY
            assert (await monitor.next_verdict(stricter)).reason is Reason.READ_ONLY
            assert monitor.verdict().available

    asyncio.run(scenario())


def test_no_verdict_outlives_the_poll_it_rests_on() -> None:
    async def scenario() -> None:
        async with running(ScriptedPoller(SYNCED, *[DOWN] * 20, SYNCED)) as monitor:
            await until(lambda: monitor.verdict().available)
            await until(lambda: monitor.verdict().reason is Reason.UNREACHABLE)
            await until(lambda: monitor.verdict().available)
        # Stopped.
        assert monitor.verdict().reason is Reason.ERROR

    asyncio.run(scenario())
