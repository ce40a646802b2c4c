"""What is said when the monitor itself stops or stalls, by what answers health checks and to systemd."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from app.http.health_checks import HealthChecks, no_health_checks
from app.monitor import Monitor, oldest_usable_seconds
from app.node_state import NodeState
from app.systemd import Systemd
from app.verdict import Policy, Switches
from tests.http.test_systemd import Manager

INTERVAL_SECONDS, DEADLINE_SECONDS = 0.02, 0.1
SYNCED = NodeState(
    wsrep_local_state=4, wsrep_cluster_status="Primary", wsrep_ready="ON", wsrep_connected="ON", wsrep_provider="x.so"
)
STUCK = (503, "clustercheckd has stopped polling: restart it")


class StuckPoller:
    """Reads a Synced node until it is told to get stuck."""

    def __init__(self) -> None:
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def poll(self) -> NodeState:
        await self.may_go_on.wait()
        return SYNCED


class Watched:
    """A monitor that runs, and what answers health checks from it."""

    def __init__(self, poller: StuckPoller, directory: Path) -> None:
        self.systemd = Systemd({"NOTIFY_SOCKET": str(directory / "notify"), "WATCHDOG_USEC": "200000"})
        self.monitor = Monitor(
            poller,
            interval_seconds=INTERVAL_SECONDS,
            deadline_seconds=DEADLINE_SECONDS,
            policy=Policy(oldest_usable_seconds(INTERVAL_SECONDS, DEADLINE_SECONDS)),
            switches=Switches,
            on_change=self.systemd.changed,
        )
        self.polling = asyncio.create_task(self.monitor.run())
        self.feeding = asyncio.create_task(self.systemd.feed_watchdog(lambda: self.monitor.alive))
        self._health_checks = HealthChecks(self.monitor, self.not_found, (), no_health_checks())

    async def not_found(self, *_: object) -> None:
        """Fail: no path is passed on."""
        raise AssertionError

    async def ask(self, path: str) -> tuple[int, str]:
        """Give status and reason, or the body where there is no reason."""
        sent: list[Any] = []

        async def send(message: object) -> None:
            sent.append(message)

        await self._health_checks({"path": path, "query_string": b""}, None, send)  # type: ignore[arg-type]
        start, body = sent
        reason = dict(start["headers"]).get(b"x-clustercheck-reason", body["body"])
        return start["status"], reason.decode().strip()

    async def wait_for(self, path: str, expected: tuple[int, str]) -> None:
        """Ask until the answer is this one."""
        async with asyncio.timeout(10):
            while await self.ask(path) != expected:  # noqa: ASYNC110 (any answer)
                await asyncio.sleep(0.01)


@asynccontextmanager
async def watched(poller: StuckPoller, directory: Path) -> AsyncIterator[Watched]:
    """Run a monitor with this poller."""
    service = Watched(poller, directory)
    try:
        await service.wait_for("/", (200, "synced"))
        yield service
    finally:
        service.polling.cancel()
        service.feeding.cancel()
        await asyncio.gather(service.polling, service.feeding, return_exceptions=True)


async def reached(condition: Callable[[], bool]) -> None:
    """Wait for something that happens on this very event loop."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 (a socket)
            await asyncio.sleep(0.01)


def test_a_stalled_monitor_turns_stale_and_feeds_no_watchdog_until_it_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(manager: Manager) -> None:
        poller = StuckPoller()
        async with watched(poller, tmp_path) as service:
            poller.may_go_on.clear()
            # Nobody asks meanwhile: the monitor's own timer notes it.
            await reached(lambda: manager.values("STATUS")[-1].startswith("NOT available stale: "))
            assert await service.ask("/") == (503, "stale")
            # One late poll is no reason to restart anything.
            assert await service.ask("/livez") == (200, "alive")
            await service.wait_for("/livez", STUCK)
            fed = len(manager.values("WATCHDOG"))
            # Longer than the watchdog's whole time.
            await asyncio.sleep(0.3)
            assert len(manager.values("WATCHDOG")) == fed
            poller.may_go_on.set()
            await service.wait_for("/", (200, "synced"))
            assert await service.ask("/livez") == (200, "alive")
            await reached(lambda: len(manager.values("WATCHDOG")) > fed)

    with closing(Manager(str(tmp_path / "notify"))) as manager, caplog.at_level(logging.INFO, logger="app.monitor"):
        asyncio.run(scenario(manager))
    changes = [record for record in caplog.records if record.name == "app.monitor"]
    assert [(record.getMessage(), vars(record)["reason"]) for record in changes] == [
        ("available", "synced"),
        ("unavailable", "stale"),
        ("available", "synced"),
    ]


def test_a_monitor_that_has_ended_turns_livez_503_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with watched(StuckPoller(), tmp_path) as service:
            service.polling.cancel()
            await asyncio.wait([service.polling])
            assert await service.ask("/livez") == STUCK
            assert await service.ask("/") == (503, "error")

    asyncio.run(scenario())
