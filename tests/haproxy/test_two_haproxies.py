"""Two HAProxies with peers, as in docs/haproxy.md: one writer for both, whichever restarts."""

from collections.abc import Sequence

import pytest

from harness.haproxy import WRITER
from harness.ports import LOOPBACK, Ports
from harness.waiting import wait_for
from tests.haproxy.front import Front, MockNodes, cutting, switched, varied
from tests.haproxy.mock_node import CROWD, Client

pytestmark = pytest.mark.long


@pytest.fixture
def pair(nodes: MockNodes, ports: Ports) -> tuple[Front, Front]:
    """Start two HAProxies that know each other."""
    changed = {
        f"10.0.0.2{number}:10306": f"{LOOPBACK}:{ports.free()}" for number in (1, 2)
    }
    # On a machine that runs other tests, a peer may need more than 0.3 s to send its table.
    changed["inspect-delay 300ms"] = "inspect-delay 2s"
    one, two = (
        nodes.front(name, text=varied("Two HAProxies"), replace=changed)
        for name in ("lb1", "lb2")
    )
    assert one.writers.lands_on(1) == {"node1"}
    wait_for(
        "the peer to know the writer",
        lambda: "server_id=1" in two.haproxy.ask(f"show table {WRITER}"),
    )
    return one, two


def served(clients: Sequence[Client]) -> set[str | None]:
    """Name the nodes of those clients that were served."""
    return {client.node for client in clients} - {None}


def test_both_choose_alike_and_no_client_strays(
    pair: tuple[Front, Front],
) -> None:
    one, two = pair
    first, second, _ = one.nodes
    held = two.writers.open(5)
    with two.writers.arriving() as elsewhere:
        with switched(one, first), cutting("two HAProxies", held):
            first.become("non-primary")
        wait_for("the same choice", lambda: second.name in served(elsewhere))
    assert served(elsewhere) == {first.name, second.name}
    for front in pair:
        front.turn("synced", first, writer="UP")
    for front in pair:
        assert front.writers.lands_on() == {second.name}

    for again in (two.haproxy.reload, two.haproxy.restart):
        with one.writers.arriving() as here, two.writers.arriving() as there:
            again()
            back = len(there)
            # The function that ruff suspects runs before the next turn.
            wait_for("clients after it", lambda: len(there) > back + CROWD // 2)  # noqa: B023
        assert served(here) == served(there) == {second.name}, again.__name__
