"""The readers of haproxy.cfg.example with mock nodes."""

from harness.waiting import wait_for
from tests.haproxy.front import Front, at_once, cutting
from tests.measured import record


def test_no_client_fails_where_a_reader_refuses_it(
    front: Front,
) -> None:
    front.nodes[0].become("refusing")
    with at_once("reader refuses TCP"):
        assert front.readers.lands_on() == {"node2", "node3"}


def test_a_drained_reader_keeps_its_sessions_and_gets_no_new_ones(
    front: Front,
) -> None:
    node = front.nodes[0]
    held = [client for client in front.readers.open(9) if client.node == node.name]
    assert len(held) == 3
    front.turn("disabled", node, readers="NOLB")
    assert node.name not in front.readers.lands_on()
    assert all(client.is_served for client in held)
    with cutting("drained reader stopped", held):
        node.become("killed")


def test_a_donor_that_applies_stays_and_one_that_lags_leaves(
    front: Front,
) -> None:
    node = front.nodes[0]
    held = [client for client in front.readers.open(9) if client.node == node.name]
    node.become("donor")
    asked = len(node.checks)
    wait_for("further checks", lambda: len(node.checks) > asked + 3)
    assert front.readers.landings()[node.name] > 20
    with cutting("reader lagging", held):
        node.become("lagging")
    assert node.name not in front.readers.lands_on()


def test_a_reader_that_returns_is_warmed_up(front: Front) -> None:
    node = front.nodes[0]
    front.turn("non-primary", node, readers="DOWN")
    held = front.readers.open(60)
    front.turn("synced", node, readers="UP")
    landed = sum(client.node == node.name for client in front.readers.open(30))
    record(f"reader back: {landed} of 30 new clients (all 30 without slowstart)")
    assert 0 < landed <= 10
    assert all(client.is_served for client in held)
