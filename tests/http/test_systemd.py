"""What systemd is told, read from a real datagram socket in its place."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.service.systemd import Systemd
from app.verdict.node_state import PollFailure
from app.verdict.reason import Reason
from app.verdict.rules import Verdict
from harness.service import Service
from harness.waiting import wait_for
from tests.conftest import Services, settings_for
from tests.fake_mysql import FakeMySQL, galera

WATCHDOG_SECONDS = 2.0
SYNCED = Verdict(available=True, reason=Reason.SYNCED, detail="seen")
NOT_AVAILABLE = Verdict(available=False, reason=Reason.ACCESS_DENIED, detail="seen")
FIRST = {"READY": "1", "STATUS": "available synced: seen"}


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

    def wait_for(self, name: str, value: str) -> None:
        """Wait until a value that begins so has been sent."""
        wait_for(
            f"{name}={value}",
            lambda: any(sent.startswith(value) for sent in self.values(name)),
            seconds=10,
        )


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    """Listen in systemd's place."""
    with closing(Manager(str(tmp_path / "notify"))) as listening:
        yield listening


def start(services: Services, node: FakeMySQL, **environ: str) -> Service:
    """Start a service that a manager supervises."""
    return services.start(
        **settings_for(node), NOTIFY_SOCKET=str(services.directory / "notify"), **environ
    )


def test_it_is_ready_once_it_has_a_verdict_and_tells_each_with_its_reason(
    services: Services, manager: Manager, node: FakeMySQL
) -> None:
    # A server that never greets keeps the first poll waiting.
    node.hang_all()
    service = start(services, node, CLUSTERCHECK_DEADLINE="60")
    wait_for("the first poll", lambda: node.connections)
    assert manager.values("READY") == []
    node.behaviour = galera()
    node.drop_connections()
    # That a node cannot be read is a verdict as well.
    manager.wait_for("STATUS", "NOT available connection-lost: ")
    manager.wait_for("STATUS", "available synced: wsrep_local_state is 4 (Synced)")
    service.disabled_file.touch()
    reason_and_detail = service.get().body.splitlines()[1]
    assert reason_and_detail.startswith("disabled: ")
    manager.wait_for("STATUS", f"draining {reason_and_detail}")
    assert manager.values("READY") == ["1"]


def test_the_watchdog_is_fed_while_polls_come_in_even_failed_ones(
    services: Services, manager: Manager, node: FakeMySQL
) -> None:
    start(services, node, WATCHDOG_USEC=str(round(WATCHDOG_SECONDS * 1e6)))
    node.hang_all()
    manager.wait_for("STATUS", "NOT available timeout: ")
    fed = len(manager.values("WATCHDOG"))
    wait_for(
        "two more", lambda: len(manager.values("WATCHDOG")) > fed + 1, seconds=WATCHDOG_SECONDS
    )


def test_the_watchdog_is_fed_only_while_the_service_is_alive_and_only_its_own(
    manager: Manager, tmp_path: Path
) -> None:
    environ = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "4000"}
    alive = [True, False, False, True]
    # Without an answer left to pop, the feeding ends.
    with pytest.raises(IndexError):
        asyncio.run(Systemd(environ).feed_watchdog(alive.pop))
    assert manager.values("WATCHDOG") == ["1", "1"]
    # That of another process.
    asyncio.run(Systemd({**environ, "WATCHDOG_PID": "1"}).feed_watchdog(lambda: True))
    assert len(manager.values("WATCHDOG")) == 2


def test_the_end_is_announced_with_the_time_that_the_drain_takes(
    services: Services, manager: Manager, node: FakeMySQL
) -> None:
    service = start(services, node, CLUSTERCHECK_DRAIN_SECONDS="30")
    assert manager.values("STOPPING") == []
    service.process.terminate()
    manager.wait_for("STOPPING", "1")
    assert int(manager.values("EXTEND_TIMEOUT_USEC")[0]) >= 30_000_000
    manager.wait_for("STATUS", "draining shutting-down: clustercheckd is shutting down")
    # A second signal ends it at once.
    service.process.terminate()
    wait_for("its end", lambda: service.process.exit_code is not None, seconds=10)
    assert service.process.exit_code == 0


def test_what_a_busy_manager_did_not_take_is_sent_again(manager: Manager, tmp_path: Path) -> None:
    systemd = Systemd({"NOTIFY_SOCKET": str(tmp_path / "notify")})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                other.sendto(b"FILLED=1", str(tmp_path / "notify"))
    systemd.show(SYNCED)
    assert set(manager.values("FILLED")) == {"1"}
    assert manager.values("READY") == []
    systemd.show(SYNCED)
    assert manager.read()[-1] == FIRST


def test_the_status_says_that_logins_fail_while_the_node_is_available(
    manager: Manager, tmp_path: Path
) -> None:
    systemd = Systemd({"NOTIFY_SOCKET": str(tmp_path / "notify")})
    refused = PollFailure(Reason.ACCESS_DENIED, "the server refused user someone")
    for verdict, failure in (
        (SYNCED, None),
        (SYNCED, refused),
        (SYNCED, refused),
        (NOT_AVAILABLE, refused),
    ):
        systemd.show(verdict, failure)
    assert manager.values("STATUS") == [
        "available synced: seen",
        "available synced: seen; its logins fail: access-denied: the server refused user someone",
        "NOT available access-denied: seen",
    ]


def test_a_socket_in_the_abstract_namespace_is_told_too() -> None:
    name = f"clustercheckd-test-{os.getpid()}"
    with closing(Manager(f"\0{name}")) as manager:
        Systemd({"NOTIFY_SOCKET": f"@{name}"}).show(SYNCED)
        assert manager.read() == [FIRST]


@pytest.mark.parametrize("address", ["", "vsock:2:1", "/no/such/socket"])
def test_without_a_manager_to_tell_everything_goes_on(address: str) -> None:
    systemd = Systemd({"NOTIFY_SOCKET": address})
    systemd.show(SYNCED)
    systemd.stopping(0)
