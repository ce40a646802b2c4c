"""Real nodes behind haproxy.cfg.example: where clients land as nodes come and go, and how soon."""

import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from harness.galera import Node
from harness.haproxy import WRITER
from harness.ports import LOOPBACK
from harness.stack import Stack
from harness.waiting import wait_for
from tests.haproxy.front import SILENT_SECONDS, SWITCH_SECONDS
from tests.measured import within

SAMPLES = 6


def writer(stack: Stack) -> Node:
    """Find the node that writes land on, once they land."""
    name = wait_for("a writer to land", lambda: stack.haproxy.lands_on(WRITER))
    return next(node for node in stack.nodes if node.name == name)


def killed(stack: Stack, node: Node) -> AbstractContextManager[None]:
    """Kill a node, which comes back with a donor that did not get the writes."""
    # The first two get them.
    donor = next(other.name for other in reversed(stack.nodes) if other is not node)
    return stack.killed(node, donor=donor)


# What a node that runs says of itself is tested with mock nodes.
@pytest.mark.parametrize(
    ("failing", "bound"),
    [
        (killed, SWITCH_SECONDS),
        (lambda _, node: node.process.paused(), SILENT_SECONDS),
    ],
    ids=["killed", "hung"],
)
def test_writes_move_to_one_other_node_in_time_and_stay_there(
    stack: Stack,
    failing: Callable[[Stack, Node], AbstractContextManager[None]],
    bound: float,
) -> None:
    old = writer(stack)
    with socket.create_connection((LOOPBACK, stack.haproxy.ports[WRITER])) as session:
        assert session.recv(1)  # the server's greeting
        session.settimeout(20)
        failed_at = time.monotonic()
        with failing(stack, old):
            while session.recv(1000):
                pass
            cut_seconds = time.monotonic() - failed_at
            new = writer(stack)
            next_seconds = time.monotonic() - failed_at
    assert new is not old
    within("real writer: session cut", cut_seconds, bound)
    within("real writer: next node serves", next_seconds, bound)
    stack.haproxy.wait_for_status(old, writer="UP")
    assert {writer(stack).name for _ in range(SAMPLES)} == {new.name}
