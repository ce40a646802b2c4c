"""Databases that fail and come back: the right reason in time, and nothing left behind.

The promise: what fails shows with its reason within interval + deadline, and what is back shows
within a second. That the server never sees more than three sessions is in test_logins.py.
"""

import signal
from pathlib import Path

from harness.galera import ACCOUNT, PASSWORD, Installation
from harness.network import RemoteHost
from harness.ports import Ports
from harness.service import Service
from harness.waiting import wait_for
from tests.cluster.lone import lone_node, reasons_of, wait_until_shown, watching
from tests.measured import let_pass

# What a busy machine may add to the asking itself.
BUSY_SECONDS = 0.5
SHOWN_SECONDS = 0.25 + 0.8 + BUSY_SECONDS
BACK_SECONDS = 1.0 + BUSY_SECONDS
# The kernel repeats a connection attempt into the void after 1 and 3 s; we begin one after 5 s.
NETWORK_BACK_SECONDS = 2.0 + BUSY_SECONDS
MOST_SESSIONS = 3


def wait_for_descriptors(service: Service, count: int) -> None:
    """Wait until the service has no more descriptors open than before."""
    wait_for(
        "the descriptors back", lambda: service.process.descriptors <= count, seconds=5
    )


def test_a_server_that_is_killed_or_stopped_is_unreachable_and_back_after_its_restart(
    installation: Installation, ports: Ports, tmp_path: Path
) -> None:
    with (
        lone_node(installation, "restarted") as node,
        watching(node, tmp_path, ports) as service,
    ):
        descriptors = service.process.descriptors
        for number in (signal.SIGKILL, signal.SIGTERM):
            node.process.stop(number)
            wait_until_shown(service, "503 unreachable", SHOWN_SECONDS)
            node.start_alone()
            wait_until_shown(service, "200 synced", BACK_SECONDS)
        assert not {"stale", "error"} & set(reasons_of(service))
        wait_for_descriptors(service, descriptors)


def test_a_network_that_is_cut_is_a_timeout_and_back_within_a_second(
    remote_host: RemoteHost, installation: Installation, ports: Ports, tmp_path: Path
) -> None:
    node = installation.node("remote", [f"--bind-address={remote_host.address}"])
    over_network = {
        "MYSQL_SOCKET": "",
        "MYSQL_HOST": remote_host.address,
        "MYSQL_PORT": str(node.port),
    }
    with remote_host.entered():
        node.start_alone()
    node.sql(f"CREATE USER {ACCOUNT}@'%' IDENTIFIED BY '{PASSWORD}'")
    with watching(node, tmp_path, ports, **over_network) as service:
        descriptors = service.process.descriptors
        before = reasons_of(service)
        with remote_host.cut_off():
            wait_until_shown(service, "503 timeout", SHOWN_SECONDS)
            # Several attempts to connect, each into the void.
            let_pass(2.0)
            assert service.get().reason == "timeout"
        wait_until_shown(service, "200 synced", NETWORK_BACK_SECONDS)
        reasons = reasons_of(service)[len(before) :]
        # After a hang, the node is available when it has answered a read in sync.
        assert reasons in (["timeout", "synced"], ["timeout", "blocked", "synced"])
        wait_for_descriptors(service, descriptors)
        # A session that was cut off is the server's until its own time-out, half a minute later.
        assert (node.sessions_of(ACCOUNT) or 9) <= MOST_SESSIONS + 2
    node.kill()
