"""The monitor, with pollers that take their time and fail in ways no server can be brought to."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from app.monitor.monitor import IDLE_SECONDS, Monitor, Polling, oldest_usable_seconds
from app.service.log import LineFormatter
from app.verdict.node_state import NodeState, PollFailure
from app.verdict.reason import Reason
from app.verdict.rules import Policy, Switches, Verdict
from tests.unit.pages import blocks_under

INTERVAL_SECONDS = 0.01
DEADLINE_SECONDS = 0.3
MAX_AGE_SECONDS = 2.0
SYNCED = NodeState(
    wsrep_local_state=4,
    wsrep_cluster_status="Primary",
    wsrep_ready="ON",
    wsrep_connected="ON",
    wsrep_provider="x.so",
)
DONOR = replace(SYNCED, wsrep_local_state=2)
DESYNCED = replace(DONOR, wsrep_local_state_comment="Donor/Desynced", wsrep_desync="ON")
DOWN = PollFailure(Reason.UNREACHABLE, "cannot connect")


pytestmark = pytest.mark.anyio


Step = NodeState | PollFailure | Callable[[], Awaitable[NodeState | PollFailure]]


class ScriptedPoller:
    """Returns one result after the other, the last for ever. A step may be a function to await."""

    def __init__(self, *script: Step) -> None:
        self.script = list(script)
        self.calls = 0
        self.under_way = False

    async def poll(self) -> NodeState | PollFailure:
        """Play the next step."""
        self.calls += 1
        assert not self.under_way, "two polls at once"
        self.under_way = True
        try:
            step = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            return await step() if callable(step) else step
        finally:
            self.under_way = False


async def failing() -> NodeState:
    """Fail as no poller should."""
    raise RuntimeError("a fault in the poller")


async def hanging() -> NodeState:
    """Never come back, as no poller should."""
    await asyncio.Event().wait()
    raise AssertionError


def polling(
    poller: ScriptedPoller,
    interval_seconds: float = INTERVAL_SECONDS,
    max_age_seconds: float = MAX_AGE_SECONDS,
) -> Polling:
    """Poll by the script."""
    return Polling(
        poller.poll, interval_seconds, DEADLINE_SECONDS, max_age_seconds, Policy()
    )


@asynccontextmanager
async def running(
    poller: ScriptedPoller,
    *,
    interval_seconds: float = INTERVAL_SECONDS,
    max_age_seconds: float = MAX_AGE_SECONDS,
    **options: Any,  # noqa: ANN401 (those of Monitor)
) -> AsyncIterator[Monitor]:
    """Run a monitor on the poller."""
    monitor = Monitor(
        polling(poller, interval_seconds, max_age_seconds),
        switches=Switches,
        **options,
    )
    task = asyncio.create_task(monitor.run())
    try:
        yield monitor
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def reasons_of(monitor: Monitor) -> list[Reason]:
    """Return the reasons for all verdicts so far."""
    return [change.reason for change in monitor.changes]


async def test_a_503_waits_for_a_poll_for_50_ms_and_not_until_its_end() -> None:
    times = ScriptedPoller(DOWN, hanging)
    async with running(times, interval_seconds=0, max_age_seconds=200) as monitor:
        await until(lambda: times.calls == 2)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        verdict = await monitor.fresh_verdict()
        assert (verdict.reason, loop.time() - begun >= 0.05) == (
            Reason.UNREACHABLE,
            True,
        )


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 (any condition)
            await asyncio.sleep(0.002)


async def asked_until(monitor: Monitor, condition: Callable[[], bool]) -> None:
    """Ask for a verdict again and again, as a load balancer does, until a condition holds."""
    async with asyncio.timeout(5):
        while not condition():
            await monitor.fresh_verdict()
            await asyncio.sleep(INTERVAL_SECONDS)


async def test_before_the_first_poll_the_node_is_starting() -> None:
    async with running(ScriptedPoller(hanging)) as monitor:
        assert (await monitor.fresh_verdict()).reason is Reason.STARTING


async def test_all_that_ask_meanwhile_wait_for_one_poll() -> None:
    async def slowly() -> NodeState:
        await asyncio.sleep(0.1)
        return SYNCED

    # On a busy machine, a result would be too old for those who are woken late.
    now = 0.0
    poller = ScriptedPoller(SYNCED, slowly, DOWN)
    async with running(poller, clock=lambda: now) as monitor:
        await monitor.fresh_verdict()
        now = 2 * INTERVAL_SECONDS
        verdicts = await asyncio.gather(*(monitor.fresh_verdict() for _ in range(50)))
        assert poller.calls == 2
        assert {verdict.reason for verdict in verdicts} == {Reason.SYNCED}


# No parser makes such a state.
UNHEARD_OF = replace(SYNCED, wsrep_local_state="4")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("step", "event"), [(failing, "poller failed"), (UNHEARD_OF, "rule failed")]
)
async def test_a_fault_of_ours_is_an_error_logged_once_and_not_the_end(
    caplog: pytest.LogCaptureFixture, step: Step, event: str
) -> None:
    async with running(ScriptedPoller(SYNCED, step, step, step, SYNCED)) as monitor:
        await asked_until(monitor, lambda: monitor.verdict().reason is Reason.ERROR)
        await asked_until(monitor, lambda: monitor.verdict().available)
    assert [one.message for one in caplog.records if one.exc_info] == [event]


async def test_the_log_says_why_polling_has_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_: Verdict) -> None:
        raise RuntimeError("a fault in who is told")

    monitor = Monitor(
        polling(ScriptedPoller(SYNCED)), switches=Switches, on_verdict=fail
    )
    with pytest.raises(RuntimeError):
        await monitor.run()
    (record,) = (record for record in caplog.records if record.exc_info)
    assert (record.levelname, record.message) == ("ERROR", "polling ended")


async def test_each_policy_gets_its_own_verdict_of_the_latest_poll() -> None:
    donors = Policy(available_when_donor=True)
    async with running(ScriptedPoller(*[DONOR] * 9, DOWN)) as monitor:
        for _ in range(3):
            assert (await monitor.fresh_verdict(donors)).available
            assert not (await monitor.fresh_verdict()).available
        await asked_until(monitor, lambda: monitor.result is DOWN)
        for policy in (donors, None):
            assert (await monitor.fresh_verdict(policy)).reason is Reason.UNREACHABLE


@pytest.mark.parametrize("interval", [0.25, 2.0])
def test_two_slow_polls_in_a_row_are_no_reason_to_be_stale(interval: float) -> None:
    # The older one counts until the next has taken its time, even if nobody asks for it.
    assert max(interval, IDLE_SECONDS) + 0.8 < oldest_usable_seconds(interval, 0.8)


async def test_each_change_of_verdict_is_kept_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    poller = ScriptedPoller(SYNCED, SYNCED, DOWN, DOWN, DOWN, SYNCED)
    caplog.set_level(logging.INFO)
    async with running(poller) as monitor:
        await asked_until(monitor, lambda: poller.calls > 10)
        reasons = reasons_of(monitor)
    assert reasons == [Reason.SYNCED, Reason.UNREACHABLE, Reason.SYNCED]
    logged = [record.message for record in caplog.records]
    assert logged == ["available", "unavailable", "available"]


async def test_a_change_is_logged_as_the_page_shows_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with running(ScriptedPoller(SYNCED, DESYNCED)) as monitor:
        await asked_until(monitor, lambda: monitor.verdict().draining)
    shown = [
        block.text.strip()
        for language in ("text", "json")
        for block in blocks_under("docs/operations.md", "The log", language)
    ]
    del caplog.records[-1].message
    formats = [LineFormatter(), LineFormatter(as_json=True)]
    time = re.compile(r"[0-9T:.-]{23}Z")
    assert [time.sub("", line) for line in shown] == [
        time.sub("", one.format(caplog.records[-1])) for one in formats
    ]


async def test_who_waits_for_a_poll_when_the_polling_ends_is_answered_at_once() -> None:
    async with running(ScriptedPoller(SYNCED, hanging)) as monitor:
        await monitor.fresh_verdict()
        await asyncio.sleep(2 * INTERVAL_SECONDS)
        waiting = asyncio.create_task(monitor.fresh_verdict())
        await asyncio.sleep(INTERVAL_SECONDS)
        assert monitor.alive
    done, _ = await asyncio.wait([waiting], timeout=0)
    assert done
    assert (await waiting).reason is Reason.ERROR
    assert not monitor.alive


async def test_a_poll_that_does_not_end_is_noted_and_given_up_and_the_next_one_counts() -> (
    None
):
    poller = ScriptedPoller(SYNCED, hanging, SYNCED)
    async with running(poller, max_age_seconds=0.1) as monitor:
        await until(lambda: not monitor.alive)
        await asked_until(monitor, lambda: monitor.alive)
        assert reasons_of(monitor) == [Reason.SYNCED, Reason.STALE, Reason.SYNCED]


async def test_an_old_200_is_no_answer_of_a_poll_that_takes_too_long() -> None:
    now = 0.0
    poller = ScriptedPoller(SYNCED, hanging)
    async with running(poller, clock=lambda: now) as monitor:
        assert (await monitor.fresh_verdict()).available
        now = 2 * INTERVAL_SECONDS
        assert monitor.age_seconds < MAX_AGE_SECONDS
        assert (await monitor.fresh_verdict()).reason is Reason.STALE


@pytest.mark.parametrize("pauses", ["in the poll", "after it"])
async def test_a_pause_of_ours_costs_no_verdict_and_no_earlier_one_is_given(
    pauses: str,
) -> None:
    now = 0.0

    async def pausing() -> NodeState:
        nonlocal now
        now += 2 * MAX_AGE_SECONDS
        return SYNCED

    def pause(_: Verdict) -> None:
        nonlocal now
        now += 1.0 if poller.calls == 1 else 0.0

    first = pausing if pauses == "in the poll" else SYNCED
    poller = ScriptedPoller(first, DONOR)
    on_verdict = pause if pauses == "after it" else lambda _: None
    async with running(poller, clock=lambda: now, on_verdict=on_verdict) as monitor:
        # The second poll's, for the first one says what was.
        assert (await monitor.fresh_verdict()).reason is Reason.DONOR


async def test_before_the_first_poll_has_ended_there_is_a_change_and_nothing_is_told() -> (
    None
):
    told: list[Verdict] = []
    monitor = Monitor(
        polling(ScriptedPoller(SYNCED)), switches=Switches, on_verdict=told.append
    )
    monitor.note_change()
    assert reasons_of(monitor) == [Reason.STARTING]
    assert told == []
