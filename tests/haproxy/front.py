"""HAProxy in front of mock nodes, and the times that the tests measure there."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from harness.block import Block
from harness.haproxy import READER, WRITER, HAProxy
from harness.ports import Ports
from harness.waiting import wait_for
from tests.haproxy.mock_node import Client, Clients, Loop, MockNode
from tests.measured import within

SWITCH_SECONDS = 1.5
"""The most that a switch to the next node may take where the old node or its clustercheckd answers."""

SILENT_SECONDS = 3.5
"""The most that a switch may take where HAProxy has to wait for an answer."""

AT_ONCE_SECONDS = 0.5
"""The most that a client may wait for what needs no waiting."""

_SAMPLE = 20


@dataclass(frozen=True)
class Front:
    """One HAProxy, and clients of both of its sections."""

    haproxy: HAProxy
    writers: Clients
    readers: Clients

    def wait_until_checked(self) -> None:
        """Wait until HAProxy has checked every server and has it UP."""

        def checked() -> bool:
            rows = [row for row in self.haproxy.servers().values() if row["check_status"]]
            return bool(rows) and all((row["check_status"], row["status"]) == ("L7OK", "UP") for row in rows)

        wait_for("HAProxy to check every node", checked)


class MockNodes(Block):
    """Mock nodes, node1, node2, ..., and any number of HAProxies before them.

    remote: the address of node1, where that is another network namespace's; it is not started then.
    """

    def __init__(self, directory: Path, ports: Ports, *, size: int = 3, remote: str | None = None) -> None:
        self._directory = directory
        self._ports = ports
        self._size = size
        self._remote = remote
        self._exits = ExitStack()
        self.nodes: list[MockNode] = []

    def close(self) -> None:
        """End the HAProxies and the mock nodes."""
        self._exits.close()

    def front(self, name: str = "lb1", *, text: str | None = None, replace: Mapping[str, str] | None = None) -> Front:
        """Start an HAProxy; it has checked every node when this returns. The arguments are those of `HAProxy`."""
        servers = [node.server for node in self.nodes]
        haproxy = HAProxy(self._directory, self._ports, servers, name=name, text=text, replace=replace)
        self._exits.callback(haproxy.kill)
        haproxy.wait_until_up()
        front = Front(haproxy, Clients(self.loop, haproxy.ports[WRITER]), Clients(self.loop, haproxy.ports[READER]))
        front.wait_until_checked()
        return front

    def named(self, name: str | None) -> MockNode:
        """Find a node by its name."""
        return next(node for node in self.nodes if node.name == name)

    def writer(self, front: Front) -> MockNode:
        """Find the node that a new client of the writer lands on."""
        return self.named(front.writers.lands_on())

    def _start(self) -> None:
        self.loop = self._exits.enter_context(Loop())
        for number in range(1, self._size + 1):
            address = {"address": self._remote} if self._remote and number == 1 else {}
            node = MockNode(self.loop, self._ports, f"node{number}", **address)
            self._exits.callback(node.stop)
            if not address:
                node.start()
            self.nodes.append(node)


def switch(front: Front, old: MockNode, what: str, fault: Callable[[], object], bound: float = SWITCH_SECONDS) -> str:
    """Have the writer fail while clients come and go. All move to one other node, in time; return its name."""
    held = front.writers.open(_SAMPLE)
    assert {client.node for client in held} == {old.name}

    def elsewhere(came: Sequence[Client]) -> list[Client]:
        return [client for client in came if client.node not in {old.name, None}]

    with front.writers.arriving() as came:
        wait_for("a client", lambda: came)
        failed_at = time.monotonic()
        fault()
        wait_for("the sessions to end", lambda: all(client.ended_at for client in held))
        wait_for("some clients on the next node", lambda: len(elsewhere(came)) > _SAMPLE)
    new = elsewhere(came)
    (to,) = {client.node for client in new}
    # Once a client is on the next node, no later one is on the old one.
    first_at = min(client.asked_at for client in new)
    assert not [client for client in came if client.node == old.name and client.asked_at > first_at]
    within(f"{what}: sessions cut", max(client.ended_at or 0.0 for client in held) - failed_at, bound)
    within(f"{what}: next node serves", min(client.served_at or 0.0 for client in new) - failed_at, bound)
    return str(to)
