"""What systemd is told, read from a real datagram socket in its place."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import async_solipsism
import pytest

from app.service.systemd import Systemd
from app.verdict.reason import Reason
from app.verdict.rules import Verdict
from harness.manager import Manager
from harness.network import RemoteHost
from harness.service import Service
from harness.waiting import wait_for
from tests.conftest import Services, settings_for
from tests.fake_mysql import FakeMySQL, error, galera, packet, says

SYNCED = Verdict(available=True, reason=Reason.SYNCED, detail="seen")


@pytest.fixture(params=["{}/notify", "@{}"])
def manager(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Manager]:
    """Listen in systemd's place, at a path and at an abstract address."""
    with closing(Manager(request.param.format(tmp_path))) as listening:
        yield listening


def start(
    services: Services, manager: Manager, node: FakeMySQL, **environ: str
) -> Service:
    """Start a service that a manager supervises."""
    return services.start(
        **settings_for(node), NOTIFY_SOCKET=manager.address, **environ
    )


def test_it_is_ready_once_it_has_a_verdict_and_tells_each_with_its_reason(
    services: Services, manager: Manager, node: FakeMySQL
) -> None:
    # A server that never greets keeps the first poll waiting.
    node.hang_all()
    service = start(services, manager, node, CLUSTERCHECK_DEADLINE="60")
    wait_for("the first poll", lambda: node.connections)
    assert manager.values("READY") == []
    node.behaviour = says(packet(0, error(1040)))
    node.drop_connections()
    # That a node cannot be read is a verdict as well.
    manager.wait_for("STATUS", "NOT available too-many-connections: ")
    node.behaviour = galera()
    manager.wait_for("STATUS", "available synced: wsrep_local_state is 4 (Synced)")
    assert "1" in manager.values("READY")
    service.disabled_file.touch()
    manager.wait_for("STATUS", f"draining {service.get().body.splitlines()[1]}")


def test_the_watchdog_is_fed_only_while_the_service_is_alive(
    manager: Manager,
) -> None:
    alive = [True, False, False, True]
    with asyncio.Runner(loop_factory=async_solipsism.EventLoop) as runner:
        # Without an answer left to pop, the feeding ends.
        with pytest.raises(IndexError):
            runner.run(Systemd(manager.address).feed_watchdog(alive.pop))
        assert runner.get_loop().time() == 4
    told = ["1", "1"]
    wait_for("both to be told", lambda: manager.values("WATCHDOG") == told)


def test_the_end_is_announced_with_the_time_that_the_drain_and_held_answers_take(
    services: Services, manager: Manager, node: FakeMySQL
) -> None:
    seconds = {"CLUSTERCHECK_DRAIN_SECONDS": "30", "CLUSTERCHECK_DEADLINE": "9"}
    service = start(services, manager, node, **seconds)
    assert manager.values("STOPPING") == []
    service.process.terminate()
    manager.wait_for("STOPPING", "1")
    assert int(manager.values("EXTEND_TIMEOUT_USEC")[0]) >= 39_000_000
    manager.wait_for("STATUS", "draining shutting-down: ")
    # A second signal ends it at once.
    assert service.process.stop(seconds=10) == 0


def test_without_a_manager_to_tell_everything_goes_on() -> None:
    systemd = Systemd("/no/such/socket")
    systemd.show(SYNCED)
    systemd.stopping(0)


def test_what_stands_for_systemd_ends_from_another_network(
    remote_host: RemoteHost,
) -> None:
    manager = Manager()
    # An abstract address is one network's: a thread elsewhere collects the garbage, now and then.
    with remote_host.entered():
        manager.close()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
        address = manager.address.replace("@", "\0")
        wait_for("nobody to listen", lambda: sending.connect_ex(address))
