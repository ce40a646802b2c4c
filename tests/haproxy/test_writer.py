"""The writer of haproxy.cfg.example with mock nodes: one node for all clients, whatever happens."""

import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace

from harness.haproxy import WRITER
from harness.network import RemoteHost
from harness.waiting import wait_for
from tests.haproxy.front import (
    AT_ONCE_SECONDS,
    CROWD,
    SILENT_SECONDS,
    Front,
    MockNodes,
    switched,
)
from tests.measured import within


def test_a_writer_that_may_take_no_writes_hands_over_to_one_other_node(
    nodes: MockNodes, front: Front
) -> None:
    first, second, _ = nodes.nodes
    for old, state, new in (
        (first, "read-only", "node2"),
        (second, "disabled", "node1"),
    ):
        with switched(front, old):
            old.become(state)
        old.become("synced")
        front.haproxy.wait_for_status(old, writer="UP")
        # Nobody moves back, and none of a crowd at the same moment strays.
        assert front.writers.landings(CROWD) == Counter({new: CROWD})


def test_a_writer_whose_host_falls_silent_hands_over(
    nodes: MockNodes, remote_host: RemoteHost
) -> None:
    silent = nodes.nodes[0]
    silent.become("killed")
    silent.server = replace(silent.server, address=remote_host.address)
    with remote_host.entered():
        silent.become("synced")
    front = nodes.front()
    with ExitStack() as network, switched(front, silent, SILENT_SECONDS):
        network.enter_context(remote_host.cut_off())


def test_maintenance_by_hand_switches_at_once_and_ready_does_not_switch_back(
    nodes: MockNodes, front: Front
) -> None:
    with switched(front, nodes.nodes[0], AT_ONCE_SECONDS):
        front.haproxy.ask(f"set server {WRITER}/node1 state maint")
    front.haproxy.ask(f"set server {WRITER}/node1 state ready")
    front.haproxy.wait_for_status(nodes.nodes[0], writer="UP")
    assert front.writers.landings(CROWD) == Counter({"node2": CROWD})


def test_a_writer_that_refuses_clients_gets_no_second_writer_beside_it(
    nodes: MockNodes, front: Front
) -> None:
    held = front.writers.open(5)
    nodes.nodes[0].become("refusing")
    began_at = time.monotonic()
    assert front.writers.landings(CROWD) == Counter({None: CROWD})
    within(f"{CROWD} clients turned away", time.monotonic() - began_at, AT_ONCE_SECONDS)
    assert all(client.is_served for client in held)
    nodes.nodes[0].become("synced")
    assert front.writers.landings(CROWD) == Counter({"node1": CROWD})


def test_nobody_is_served_where_no_node_is_available(
    nodes: MockNodes, front: Front
) -> None:
    for node in nodes.nodes:
        node.become("non-primary")
    for node in nodes.nodes:
        front.haproxy.wait_for_status(node, writer="DOWN", readers="DOWN")
    began_at = time.monotonic()
    assert (front.writers.lands_on(), front.readers.lands_on()) == (None, None)
    within(
        "clients of no node turned away", time.monotonic() - began_at, AT_ONCE_SECONDS
    )


def test_maxconn_serves_as_many_as_it_says_and_the_stats_page_besides(
    nodes: MockNodes,
) -> None:
    front = nodes.front(replace={"maxconn 2000": "maxconn 20"})
    served = front.writers.open(20, seconds=2)
    assert all(client.is_served for client in served)
    (waiting,) = front.writers.open(seconds=0.3)
    assert waiting.node is None
    assert "node3" in front.haproxy.stats()
    served[0].leave()
    wait_for("a free place", lambda: front.writers.lands_on() == "node1")
