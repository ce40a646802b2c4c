"""What systemd is told, read from a real datagram socket in its place."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.monitor import Monitor, longest_silence_seconds
from app.reason import Reason
from app.switches import ManualSwitches
from app.systemd import Systemd
from app.verdict import Policy, Verdict
from harness.ports import LOOPBACK
from harness.service import Service
from harness.waiting import wait_for
from tests.conftest import Services
from tests.fake_mysql import Behaviour, FakeMySQL, Peer, fake_mysql, galera
from tests.http.test_watchdog import StuckPoller

WATCHDOG_SECONDS = 2.0
# Three turns of a monitor with these take 0.6 s: far below what is left of the watchdog's time.
QUICK = {"CLUSTERCHECK_POLL_INTERVAL": "0.05", "CLUSTERCHECK_DEADLINE": "0.05"}


class Manager:
    """What a service sends to its manager, datagram by datagram, each as its NAME=value lines."""

    def __init__(self, address: str) -> None:
        self.told: list[dict[str, str]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.settimeout(0)

    def close(self) -> None:
        self._socket.close()

    def read(self) -> list[dict[str, str]]:
        """Take in what has come by now; return all there was so far."""
        while True:
            try:
                lines = self._socket.recv(65536).decode().splitlines()
            except BlockingIOError:
                return self.told
            self.told.append(dict(line.split("=", 1) for line in lines))

    def values(self, name: str) -> list[str]:
        """Return all values sent for a name so far, oldest first."""
        return [told[name] for told in self.read() if name in told]

    def wait_for(self, name: str, value: str, seconds: float = 10.0) -> None:
        """Wait until a value that begins so has been sent."""
        wait_for(
            f"{name}={value}",
            lambda: any(sent.startswith(value) for sent in self.values(name)),
            seconds=seconds,
        )


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    """Listen in systemd's place."""
    with closing(Manager(str(tmp_path / "notify"))) as listening:
        yield listening


def start(services: Services, node: FakeMySQL, **environ: str) -> Service:
    """Start a service that a manager supervises; it may not be ready yet."""
    return services.start_unasked(
        NOTIFY_SOCKET=str(services.directory / "notify"),
        MYSQL_HOST=LOOPBACK,
        MYSQL_PORT=str(node.port),
        MYSQL_USERNAME="someone",
        **environ,
    )


async def reached(condition: Callable[[], bool]) -> None:
    """Wait for something that happens on this very event loop."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 (a socket, a clock)
            await asyncio.sleep(0.01)


def test_it_is_ready_only_once_the_first_verdict_is_there(services: Services, manager: Manager) -> None:
    # A server that never greets keeps the first poll waiting, longer than the start waits for it.
    with fake_mysql(Peer.hang) as node:
        service = start(services, node, CLUSTERCHECK_DEADLINE="60")
        service.wait_until_up()
        assert service.get().reason == "starting"
        assert manager.values("READY") == []
        node.behaviour = galera()
        node.drop_connections()
        manager.wait_for("READY", "1")
        # A node that could not be read is a verdict as well.
        assert service.status()["changes"][0]["reason"] == "connection-lost"


@pytest.mark.parametrize("behaviour", [galera(), galera({"wsrep_ready": "OFF"}), Peer.hang])
def test_any_first_verdict_makes_it_ready_once(services: Services, manager: Manager, behaviour: "Behaviour") -> None:
    with fake_mysql(behaviour) as node:
        service = start(services, node)
        manager.wait_for("READY", "1")
        told = len(manager.read())
        service.disabled_file.touch()
        wait_for("a later message", lambda: len(manager.read()) > told)
    assert manager.values("READY") == ["1"]


def test_the_status_is_the_verdict_with_its_reason(services: Services, manager: Manager) -> None:
    with fake_mysql(galera()) as node:
        service = start(services, node)
        manager.wait_for("STATUS", "available synced: wsrep_local_state is 4 (Synced)")
        service.disabled_file.touch()
        reason_and_detail = service.get().body.splitlines()[1]
        assert reason_and_detail.startswith("disabled: ")
        manager.wait_for("STATUS", f"draining {reason_and_detail}")


def test_the_watchdog_is_fed_while_polls_come_in_even_failed_ones(services: Services, manager: Manager) -> None:
    with fake_mysql(galera()) as node:
        start(services, node, WATCHDOG_USEC=str(round(WATCHDOG_SECONDS * 1e6)), **QUICK)
        wait_for("two feedings", lambda: len(manager.values("WATCHDOG")) > 1, seconds=10)
        node.hang_all()
        manager.wait_for("STATUS", "NOT available timeout: ")
        fed = len(manager.values("WATCHDOG"))
        wait_for("two more", lambda: len(manager.values("WATCHDOG")) > fed + 1, seconds=2 * WATCHDOG_SECONDS)
        assert manager.values("WATCHDOG_USEC") == []


def test_a_monitor_that_stalls_feeds_no_more_and_shows_stale(manager: Manager, tmp_path: Path) -> None:
    policy = Policy(max_age_seconds=0.1)
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "500000"}

    async def scenario() -> None:
        poller = StuckPoller()
        systemd = Systemd(environ, longest_silence_seconds(policy))
        monitor = Monitor(
            poller,
            interval_seconds=0.02,
            policy=policy,
            switches=ManualSwitches(str(tmp_path / "disabled")),
            on_poll=systemd.polled,
            on_change=systemd.changed,
        )
        polling = asyncio.create_task(monitor.run())
        try:
            await reached(lambda: len(manager.values("WATCHDOG")) > 1)
            poller.may_go_on.clear()
            await reached(lambda: manager.values("STATUS")[-1].startswith("NOT available stale: "))
            fed = len(manager.values("WATCHDOG"))
            # Longer than the whole of the watchdog's time: systemd would have ended the service by now.
            await reached(lambda: monitor.age_seconds > 1)
            assert len(manager.values("WATCHDOG")) == fed
            poller.may_go_on.set()
            await reached(lambda: len(manager.values("WATCHDOG")) > fed)
        finally:
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)

    asyncio.run(scenario())


def test_a_watchdog_shorter_than_slow_polls_take_is_raised(services: Services, manager: Manager) -> None:
    with fake_mysql(galera()) as node:
        start(services, node, WATCHDOG_USEC="2000000", CLUSTERCHECK_DEADLINE="10")
        manager.wait_for("WATCHDOG", "1")
    (raised,) = manager.values("WATCHDOG_USEC")
    # Three polls in a row may use up their deadline.
    assert int(raised) > 3 * 10e6


def test_another_processs_watchdog_is_not_fed(services: Services, manager: Manager) -> None:
    with fake_mysql(galera()) as node:
        start(services, node, WATCHDOG_USEC="2000000", WATCHDOG_PID=str(os.getpid()))
        manager.wait_for("READY", "1")
        service_told = len(manager.read())
        node.drop_connections()
        node.behaviour = galera({"wsrep_ready": "OFF"})
        wait_for("another message", lambda: len(manager.read()) > service_told)
    assert manager.values("WATCHDOG") == []


@pytest.mark.parametrize("drain_seconds", [0, 30])
def test_the_end_is_announced_with_the_time_that_the_drain_takes(
    services: Services, manager: Manager, drain_seconds: int
) -> None:
    with fake_mysql(galera()) as node:
        service = start(services, node, CLUSTERCHECK_DRAIN_SECONDS=str(drain_seconds))
        manager.wait_for("READY", "1")
        assert manager.values("STOPPING") == []
        service.process.send(signal.SIGTERM)
        manager.wait_for("STOPPING", "1")
        assert int(manager.values("EXTEND_TIMEOUT_USEC")[0]) >= drain_seconds * 1_000_000
        if drain_seconds:
            manager.wait_for("STATUS", "draining shutting-down: clustercheckd is shutting down")
            service.process.send(signal.SIGTERM)
        wait_for("its end", lambda: service.process.exit_code is not None, seconds=10)
    assert service.process.exit_code == 0


def test_what_a_busy_manager_did_not_take_is_sent_again(manager: Manager, tmp_path: Path) -> None:
    systemd = Systemd({"NOTIFY_SOCKET": str(tmp_path / "notify")}, longest_silence_seconds=1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                other.sendto(b"FILLED=1", str(tmp_path / "notify"))
    systemd.polled()
    systemd.changed(Verdict(available=True, reason=Reason.SYNCED, detail="seen"))
    assert set(manager.values("FILLED")) == {"1"}
    assert manager.values("READY") == []
    systemd.polled()
    assert manager.read()[-1] == {"READY": "1", "STATUS": "available synced: seen"}


def test_a_socket_in_the_abstract_namespace_is_told_too() -> None:
    name = f"clustercheckd-test-{os.getpid()}"
    with closing(Manager(f"\0{name}")) as manager:
        Systemd({"NOTIFY_SOCKET": f"@{name}"}, longest_silence_seconds=1).polled()
        assert manager.read() == [{"READY": "1"}]


@pytest.mark.parametrize("address", ["", "vsock:2:1", "/no/such/socket"])
def test_without_a_manager_to_tell_everything_goes_on(services: Services, address: str) -> None:
    with fake_mysql(galera()) as node:
        service = services.start(
            NOTIFY_SOCKET=address, MYSQL_HOST=LOOPBACK, MYSQL_PORT=str(node.port), MYSQL_USERNAME="someone"
        )
        service.wait_for_verdict(200, "synced")
        assert service.stop() == 0
