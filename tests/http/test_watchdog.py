"""What is said when the monitor itself stops or stalls, on a real server around a monitor that is really stuck."""

import asyncio
import logging
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest

from app.http.api import PATHS, create_application
from app.http.guard import ConnectionRegister
from app.http.health_checks import HealthCheckCounts, HealthChecks
from app.http.server import Server, listening_sockets
from app.http.sources import Sources
from app.monitor import Monitor
from app.node_state import NodeState
from app.reason import Reason
from app.switches import ManualSwitches
from app.verdict import Policy
from harness.ports import LOOPBACK
from harness.waiting import wait_for
from tests.conftest import Services
from tests.fake_mysql import fake_mysql, galera

INTERVAL_SECONDS, MAX_AGE_SECONDS = 0.02, 0.3
SYNCED = NodeState(
    wsrep_local_state=4, wsrep_cluster_status="Primary", wsrep_ready="ON", wsrep_connected="ON", wsrep_provider="x.so"
)


class StuckPoller:
    """Reads a Synced node until it is told to get stuck."""

    def __init__(self) -> None:
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def poll(self) -> NodeState:
        await self.may_go_on.wait()
        return SYNCED


class Watched:
    """A server, its monitor's task, and the way to ask it."""

    def __init__(self, monitor: Monitor, port: int) -> None:
        self.monitor = monitor
        self.polling = asyncio.create_task(monitor.run())
        self._port = port

    async def ask(self, path: str) -> tuple[int, str]:
        """Give status and reason, or the body where there is no reason."""
        reader, writer = await asyncio.open_connection(LOOPBACK, self._port)
        with closing(writer):
            writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
        reason = head.partition("x-clustercheck-reason: ")[2].partition("\r\n")[0]
        return int(head.split()[1]), reason or body.strip()

    async def wait_for(self, path: str, expected: tuple[int, str], seconds: float) -> None:
        """Ask until the answer is this one."""
        async with asyncio.timeout(seconds):
            while await self.ask(path) != expected:  # noqa: ASYNC110 (an answer over a socket)
                await asyncio.sleep(0.01)


@asynccontextmanager
async def watched(poller: StuckPoller, directory: Path) -> AsyncIterator[Watched]:
    """Serve a monitor with this poller."""
    switches = ManualSwitches(str(directory / "disabled"))
    monitor = Monitor(poller, interval_seconds=INTERVAL_SECONDS, policy=Policy(MAX_AGE_SECONDS), switches=switches)
    register = ConnectionRegister()
    counts = HealthCheckCounts()
    sources = Sources(monitor, register, counts, switches, INTERVAL_SECONDS, MAX_AGE_SECONDS, lambda: 0)
    health_checks = HealthChecks(monitor, create_application(sources), PATHS, counts)
    server = Server(health_checks, register, switches, 0, give_up=lambda: None)
    sockets = listening_sockets(LOOPBACK, 0)
    service = Watched(monitor, sockets[0].getsockname()[1])
    serving = asyncio.create_task(server.serve(sockets))
    try:
        await service.wait_for("/", (200, "synced"), 5)
        yield service
    finally:
        service.polling.cancel()
        server.handle_exit(signal.SIGTERM, None)
        await asyncio.gather(service.polling, serving, return_exceptions=True)


def polling(directory: Path, scenario: Callable[[StuckPoller, Watched], Awaitable[None]]) -> None:
    """Run a scenario."""

    async def running() -> None:
        poller = StuckPoller()
        async with watched(poller, directory) as service:
            await scenario(poller, service)

    asyncio.run(running())


STUCK = (503, "clustercheckd has stopped polling: restart it")


def test_a_stalled_monitor_turns_stale_and_livez_turns_503_until_it_goes_on(tmp_path: Path) -> None:
    async def scenario(poller: StuckPoller, service: Watched) -> None:
        began = time.monotonic()
        poller.may_go_on.clear()
        await service.wait_for("/", (503, "stale"), MAX_AGE_SECONDS + 0.5)
        # One late poll is no reason to restart anything.
        assert await service.ask("/livez") == (200, "alive")
        await service.wait_for("/livez", STUCK, 3 * MAX_AGE_SECONDS + 1)
        assert time.monotonic() - began > 2 * MAX_AGE_SECONDS
        poller.may_go_on.set()
        await service.wait_for("/", (200, "synced"), 1)
        await service.wait_for("/livez", (200, "alive"), 1)

    polling(tmp_path, scenario)


def test_a_monitor_that_has_ended_turns_livez_503_at_once(tmp_path: Path) -> None:
    async def scenario(_: StuckPoller, service: Watched) -> None:
        service.polling.cancel()
        await asyncio.wait([service.polling])
        assert await service.ask("/livez") == STUCK
        assert await service.ask("/") == (503, "error")

    polling(tmp_path, scenario)


@pytest.mark.parametrize("way", ["stalls", "ends"])
def test_the_change_to_stale_is_noted_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    async def scenario(poller: StuckPoller, service: Watched) -> None:
        poller.may_go_on.clear()
        if way == "ends":
            service.polling.cancel()
        # Nobody asks meanwhile: it is the monitor's own timer that sees it.
        while service.monitor.age_seconds < 4 * MAX_AGE_SECONDS:  # noqa: ASYNC110 (time itself)
            await asyncio.sleep(0.01)
        assert [change.verdict.reason for change in service.monitor.changes] == [Reason.SYNCED, Reason.STALE]

    with caplog.at_level(logging.INFO, logger="app.change_log"):
        polling(tmp_path, scenario)
    changes = [record for record in caplog.records if record.name == "app.change_log"]
    assert [(record.getMessage(), vars(record)["reason"]) for record in changes] == [
        ("available", "synced"),
        ("unavailable", "stale"),
    ]


@contextmanager
def waiting_checks(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Send health checks to a service that is stopped, to be answered once it goes on."""
    checks = [socket.create_connection((LOOPBACK, port), timeout=5) for _ in range(count)]
    try:
        for check in checks:
            check.sendall(b"GET / HTTP/1.0\r\n\r\n")
        yield checks
    finally:
        for check in checks:
            check.close()


def test_the_first_answers_after_the_whole_service_was_stopped_are_no_old_200(services: Services) -> None:
    with fake_mysql(galera()) as server:
        service = services.start(MYSQL_HOST=LOOPBACK, MYSQL_PORT=str(server.port), MYSQL_USERNAME="someone")
        service.wait_for_verdict(200, "synced")
        service.process.send(signal.SIGSTOP)
        stopped_at = time.monotonic()
        server.behaviour = galera({"wsrep_ready": "OFF"})
        server.drop_connections()
        with waiting_checks(service.port, 20) as checks:
            wait_for("the reading to be too old", lambda: time.monotonic() - stopped_at > 1.3)
            service.process.send(signal.SIGCONT)
            answers = [check.recv(4096) for check in checks]
        assert {answer.partition(b"\r\n")[0] for answer in answers} == {b"HTTP/1.1 503 Service Unavailable"}
        assert service.get("/livez").status == 200
        service.wait_for_verdict(503, "not-ready", seconds=2)
