"""The readers of haproxy.cfg.example with mock nodes."""

import time
from collections import Counter

from harness.waiting import wait_for
from tests.haproxy.front import AT_ONCE_SECONDS, CROWD, Front, MockNodes, cut_within
from tests.measured import record, within


def test_no_client_fails_where_a_reader_refuses_it(
    nodes: MockNodes, front: Front
) -> None:
    nodes.nodes[0].become("refusing")
    began_at = time.monotonic()
    landed = front.readers.landings(CROWD)
    within("reader refuses TCP", time.monotonic() - began_at, AT_ONCE_SECONDS)
    assert (landed[None], landed["node1"]) == (0, 0)


def test_a_drained_reader_keeps_its_sessions_and_gets_no_new_ones(
    nodes: MockNodes, front: Front
) -> None:
    node = nodes.nodes[0]
    held = [client for client in front.readers.open(9) if client.node == node.name]
    assert len(held) == 3
    node.become("disabled")
    front.haproxy.wait_for_status(node, readers="NOLB")
    assert front.readers.landings(CROWD)[node.name] == 0
    assert all(client.is_served for client in held)
    stopped_at = time.monotonic()
    node.become("killed")
    cut_within("drained reader stopped", held, stopped_at)


def test_a_donor_that_applies_stays_and_one_that_lags_leaves(
    nodes: MockNodes, front: Front
) -> None:
    node = nodes.nodes[0]
    held = [client for client in front.readers.open(9) if client.node == node.name]
    node.become("donor")
    asked = len(node.checks)
    wait_for("further checks", lambda: len(node.checks) > asked + 3)
    assert front.readers.landings(99)[node.name] > 20
    began_at = time.monotonic()
    node.become("lagging")
    cut_within("reader lagging", held, began_at)
    assert front.readers.landings(CROWD)[node.name] == 0


def test_a_reader_that_returns_is_warmed_up(nodes: MockNodes, front: Front) -> None:
    node = nodes.nodes[0]
    node.become("non-primary")
    front.haproxy.wait_for_status(node, readers="DOWN")
    held = front.readers.open(60)
    node.become("synced")
    front.haproxy.wait_for_status(node, readers="UP")
    landed = Counter(client.node for client in front.readers.open(30))
    record(
        f"reader back: {landed[node.name]} of 30 new clients (all 30 without slowstart)"
    )
    assert 0 < landed[node.name] <= 10
    assert all(client.is_served for client in held)
