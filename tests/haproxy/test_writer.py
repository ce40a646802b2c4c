"""The writer of haproxy.cfg.example with mock nodes: one node for all clients, whatever happens."""

from contextlib import ExitStack

from harness.haproxy import WRITER
from harness.network import RemoteHost
from harness.waiting import wait_for
from tests.haproxy.front import (
    AT_ONCE_SECONDS,
    SILENT_SECONDS,
    Front,
    MockNodes,
    at_once,
    switched,
)
from tests.haproxy.mock_node import CROWD


def test_a_writer_that_may_take_no_writes_hands_over_to_one_other_node(
    front: Front,
) -> None:
    first, second, _ = front.nodes
    for old, state, new in (
        (first, "read-only", "node2"),
        (second, "disabled", "node1"),
    ):
        with switched(front, old):
            old.become(state)
        front.turn("synced", old, writer="UP")
        # Nobody moves back, and none of a crowd at the same moment strays.
        assert front.writers.lands_on() == {new}


def test_a_writer_whose_host_falls_silent_hands_over(
    nodes: MockNodes, remote_host: RemoteHost
) -> None:
    silent = nodes.nodes[0]
    silent.become("killed")
    silent.server = silent.server._replace(address=remote_host.address)
    with remote_host.entered():
        silent.become("synced")
    front = nodes.front()
    with ExitStack() as network, switched(front, silent, SILENT_SECONDS):
        network.enter_context(remote_host.cut_off())


def test_maintenance_by_hand_switches_at_once_and_ready_does_not_switch_back(
    front: Front,
) -> None:
    first = front.nodes[0]
    with switched(front, first, AT_ONCE_SECONDS):
        front.haproxy.ask(f"set server {WRITER}/node1 state maint")
    front.haproxy.ask(f"set server {WRITER}/node1 state ready")
    front.haproxy.wait_for_status(first, writer="UP")
    assert front.writers.lands_on() == {"node2"}


def test_a_writer_that_refuses_clients_gets_no_second_writer_beside_it(
    front: Front,
) -> None:
    first = front.nodes[0]
    held = front.writers.open(5)
    first.become("refusing")
    with at_once(f"{CROWD} clients turned away"):
        assert front.writers.lands_on() == {None}
    assert all(client.is_served for client in held)
    first.become("synced")
    assert front.writers.lands_on() == {"node1"}


def test_nobody_is_served_where_no_node_is_available(front: Front) -> None:
    front.turn("non-primary", *front.nodes, writer="DOWN", readers="DOWN")
    with at_once("clients of no node turned away"):
        assert front.writers.lands_on(1) == front.readers.lands_on(1) == {None}


def test_maxconn_serves_as_many_as_it_says_and_the_stats_page_besides(
    nodes: MockNodes,
) -> None:
    front = nodes.front(replace={"maxconn 2000": "maxconn 20"})
    served = front.writers.open(20)
    assert all(client.is_served for client in served)
    waiting = front.writers.connect()
    assert not waiting.knows.wait(0.3)
    assert "node3" in front.haproxy.stats()
    served[0].leave()
    wait_for("a free place", lambda: waiting.node == "node1")
