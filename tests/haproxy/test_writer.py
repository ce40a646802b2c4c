"""The writer of haproxy.cfg.example with mock nodes: one node for all clients, whatever happens."""

import socket
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import pytest

from harness.haproxy import READER, WRITER
from harness.network import RemoteHost
from harness.ports import LOOPBACK, Ports
from harness.waiting import wait_for
from tests.haproxy.front import AT_ONCE_SECONDS, SILENT_SECONDS, SWITCH_SECONDS, Front, MockNodes, switch
from tests.haproxy.variations import PAGE
from tests.measured import within
from tests.unit.pages import PAGES

CROWD = 100
GAP_SECONDS = 1.5
SLOW_SWITCH_SECONDS = 3.5


def fail_over(nodes: MockNodes, front: Front) -> None:
    """Have node1 fail and return, with clients meanwhile: node2 takes the writes and keeps them."""
    nodes.nodes[0].says = "non-primary"
    front.haproxy.wait_for_status(WRITER, nodes.nodes[0], "DOWN")
    assert front.writers.lands_on() == "node2"
    nodes.nodes[0].says = "synced"
    front.haproxy.wait_for_status(WRITER, nodes.nodes[0], "UP")


def test_a_table_of_one_entry_would_lose_the_writer(nodes: MockNodes) -> None:
    front = nodes.front(replace={"size 100k": "size 1"})
    fail_over(nodes, front)
    assert set(front.writers.landings(CROWD)) == {"node1", "node2"}


def test_a_writer_that_may_take_no_writes_hands_over_to_one_other_node(nodes: MockNodes, front: Front) -> None:
    for says in ("read-only", "disabled"):
        old = nodes.writer(front)
        new = switch(front, old, f"writer {says}", lambda: setattr(old, "says", says))  # noqa: B023 (runs in this turn)
        old.says = "synced"
        front.haproxy.wait_for_status(WRITER, old, "UP")
        # Nobody moves back, and none of a crowd at the same moment strays.
        assert front.writers.landings(CROWD) == Counter({new: CROWD})


def test_a_writer_whose_host_falls_silent_hands_over(tmp_path: Path, ports: Ports, remote_host: RemoteHost) -> None:
    with MockNodes(tmp_path, ports, remote=remote_host.address) as nodes:
        silent = nodes.nodes[0]
        with remote_host.entered():
            silent.start()
        front = nodes.front()
        with ExitStack() as network:
            cut_off = partial(network.enter_context, remote_host.cut_off())
            switch(front, silent, "writer's host silent", cut_off, SILENT_SECONDS)


def test_the_session_of_a_client_that_vanishes_ends(nodes: MockNodes, remote_host: RemoteHost) -> None:
    # 60 s and three times 10 s are long for a test.
    shorter = {"clitcpka-idle 60s": "clitcpka-idle 1s", "clitcpka-intvl 10s": "clitcpka-intvl 1s"}
    front = nodes.front(replace={f"bind {LOOPBACK}": "bind 0.0.0.0", **shorter})
    our_address = str(ip_address(remote_host.address) - 1)
    with remote_host.entered():
        client = socket.create_connection((our_address, front.haproxy.ports[WRITER]))
    with client:
        assert client.recv(100) == b"node1"
        with remote_host.cut_off():
            wait_for("the end of its session", lambda: nodes.nodes[0].sessions == 0, seconds=20)


def test_a_client_that_does_not_close_its_session_is_not_waited_for(nodes: MockNodes) -> None:
    front = nodes.front(replace={"client-fin 10s": "client-fin 1s"})
    with socket.create_connection((LOOPBACK, front.haproxy.ports[WRITER])) as client:
        assert client.recv(100) == b"node1"
        nodes.nodes[0].end_sessions()
        assert client.recv(100) == b""
        wait_for("HAProxy to forget it", lambda: front.haproxy.servers()[WRITER, "FRONTEND"]["scur"] == "0", seconds=5)


@pytest.mark.long
def test_slower_timers_survive_a_restart_without_the_socket_unit(nodes: MockNodes) -> None:
    advice = "fastinter 1s fall 3"
    assert advice in PAGES[PAGE].read_text()
    front = nodes.front(replace={"fastinter 100ms fall 2": advice})
    node = nodes.nodes[0]
    held = front.writers.open(5)
    node.refuse_checks()
    time.sleep(GAP_SECONDS)  # how long the port is closed is the fault itself
    node.accept_checks()
    asked = len(node.checks)
    wait_for("further checks", lambda: len(node.checks) > asked + 4)
    assert all(client.is_served for client in held)
    switch(front, node, "slower timers", partial(setattr, node, "says", "non-primary"), SLOW_SWITCH_SECONDS)


def test_maintenance_by_hand_switches_at_once_and_ready_does_not_switch_back(nodes: MockNodes, front: Front) -> None:
    first = nodes.nodes[0]
    maint = partial(front.haproxy.ask, f"set server {WRITER}/node1 state maint")
    new = switch(front, first, "writer in maint", maint, AT_ONCE_SECONDS)
    front.haproxy.ask(f"set server {WRITER}/node1 state ready")
    front.haproxy.wait_for_status(WRITER, first, "UP")
    assert front.writers.landings(CROWD) == Counter({new: CROWD})


def test_maintenance_that_no_client_meets_changes_nothing(nodes: MockNodes, front: Front) -> None:
    assert nodes.writer(front) is nodes.nodes[0]
    for state, status in (("maint", "MAINT"), ("ready", "UP")):
        front.haproxy.ask(f"set server {WRITER}/node1 state {state}")
        front.haproxy.wait_for_status(WRITER, nodes.nodes[0], status)
    assert nodes.writer(front) is nodes.nodes[0]


def test_haproxys_own_drain_moves_nobody_from_the_writer(nodes: MockNodes, front: Front) -> None:
    held = front.writers.open(5)
    front.haproxy.ask(f"set server {WRITER}/node1 state drain")
    front.haproxy.wait_for_status(WRITER, nodes.nodes[0], "DRAIN")
    assert front.writers.landings(CROWD) == Counter({"node1": CROWD})
    assert all(client.is_served for client in held)


def test_a_writer_that_refuses_clients_gets_no_second_writer_beside_it(nodes: MockNodes, front: Front) -> None:
    held = front.writers.open(5)
    nodes.nodes[0].refuse_clients()
    began_at = time.monotonic()
    assert front.writers.landings(CROWD) == Counter({None: CROWD})
    within(f"writer refuses TCP: {CROWD} clients closed", time.monotonic() - began_at, AT_ONCE_SECONDS)
    assert all(client.is_served for client in held)
    nodes.nodes[0].accept_clients()
    assert front.writers.landings(CROWD) == Counter({"node1": CROWD})


def test_the_sessions_of_a_reloads_old_process_end_although_it_checks_no_node(nodes: MockNodes, front: Front) -> None:
    old = nodes.nodes[0]
    held = front.writers.open(5)
    front.haproxy.reload()
    failed_at = time.monotonic()
    old.says = "non-primary"
    wait_for("the sessions to end", lambda: all(client.ended_at for client in held))
    within(
        "reload, then the writer fails: old sessions end",
        max(client.ended_at or 0.0 for client in held) - failed_at,
        SWITCH_SECONDS,
    )
    front.haproxy.wait_for_status(WRITER, old, "DOWN")
    assert nodes.writer(front).name == "node2"


def test_nobody_is_served_where_no_node_is_available(nodes: MockNodes, front: Front) -> None:
    for node in nodes.nodes:
        node.says = "non-primary"
    for node in nodes.nodes:
        front.haproxy.wait_for_status(WRITER, node, "DOWN")
        front.haproxy.wait_for_status(READER, node, "DOWN")
    began_at = time.monotonic()
    assert front.writers.landings(CROWD) == Counter({None: CROWD})
    assert front.readers.landings(CROWD) == Counter({None: CROWD})
    within(f"nobody available: 2 x {CROWD} clients closed", time.monotonic() - began_at, AT_ONCE_SECONDS)


def test_maxconn_serves_as_many_as_it_says_and_the_stats_page_besides(nodes: MockNodes) -> None:
    front = nodes.front(replace={"maxconn 2000": "maxconn 20"})
    served = front.writers.open(20, seconds=2)
    assert all(client.is_served for client in served)
    (waiting,) = front.writers.open(seconds=0.3)
    assert waiting.node is None
    assert "node3" in front.haproxy.stats_page()
    front.writers.leave(served[:1])
    wait_for("a free place", lambda: front.writers.lands_on() == "node1")
