"""HAProxy in front of mock nodes, with the example or a variation of it, and bounds of time."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.block import Block
from harness.haproxy import EXAMPLE, READER, WRITER, HAProxy
from harness.ports import Ports
from harness.waiting import wait_for
from tests.haproxy.mock_node import Client, Clients, MockNode
from tests.measured import within
from tests.unit.pages import blocks_under

SWITCH_SECONDS = 1.5
"""The most that a switch to the next node may take where the old node or its clustercheckd
answers."""

SILENT_SECONDS = 3.5
"""The most that a switch may take where HAProxy has to wait for an answer."""

AT_ONCE_SECONDS = 0.5
"""The most that a client may wait for what needs no waiting."""

CROWD = 100
"""How many clients connect at the same moment, to find one that strays."""

PAGE, VARIATIONS = "docs/haproxy.md", "docs/haproxy-variations.md"

_SAMPLE = 20


@dataclass(frozen=True)
class Front:
    """One HAProxy, and clients of both of its sections."""

    haproxy: HAProxy
    writers: Clients
    readers: Clients

    def fail_over(self, node: MockNode) -> str:
        """Have the writer fail and return, with a client meanwhile.

        Return the name of the node that took over.
        """
        node.become("non-primary")
        self.haproxy.wait_for_status(node, writer="DOWN")
        new = self.writers.lands_on()
        node.become("synced")
        self.haproxy.wait_for_status(node, writer="UP")
        return str(new)


class MockNodes(Block):
    """Three mock nodes, and any number of HAProxies before them."""

    def __init__(self, directory: Path, ports: Ports) -> None:
        self._directory = directory
        self._ports = ports
        self._haproxies: list[HAProxy] = []
        self.nodes = [MockNode(ports, f"node{number}") for number in (1, 2, 3)]

    def front(
        self,
        name: str = "lb1",
        *,
        text: str | None = None,
        replace: Mapping[str, str] | None = None,
    ) -> Front:
        """Start an HAProxy; it has checked every node when this returns.

        The arguments are those of `HAProxy`.
        """
        servers = [node.server for node in self.nodes]
        haproxy = HAProxy(
            self._directory, self._ports, servers, name=name, text=text, replace=replace
        )
        self._haproxies.append(haproxy)
        haproxy.start()

        def checked() -> bool:
            rows = [row for row in haproxy.servers().values() if row["check_status"]]
            return bool(rows) and all(row["check_status"] == "L7OK" for row in rows)

        wait_for("HAProxy to check every node", checked)
        return Front(
            haproxy, Clients(haproxy.ports[WRITER]), Clients(haproxy.ports[READER])
        )

    def close(self) -> None:
        """End the HAProxies and the mock nodes."""
        for haproxy in self._haproxies:
            haproxy.kill()
        for node in self.nodes:
            node.become("killed")

    def _start(self) -> None:
        for node in self.nodes:
            node.become("synced")


def cut_within(
    what: str, held: Sequence[Client], began_at: float, bound: float = SWITCH_SECONDS
) -> None:
    """Wait until these sessions have ended, and fail if that took longer than bound, in seconds."""
    wait_for(
        f"{what}: the sessions to end", lambda: all(client.ended_at for client in held)
    )
    within(
        f"{what}: sessions cut",
        max(client.ended_at for client in held) - began_at,
        bound,
    )


@contextmanager
def switched(
    front: Front, old: MockNode, bound: float = SWITCH_SECONDS
) -> Iterator[None]:
    """Have clients come and go while the block makes the writer fail.

    All must move to one other node within bound.
    """
    held = front.writers.open(_SAMPLE)
    assert {client.node for client in held} == {old.name}

    def elsewhere() -> list[Client]:
        return [client for client in came if client.node not in {old.name, None}]

    with front.writers.arriving() as came:
        wait_for("a client", lambda: came)
        failed_at = time.monotonic()
        yield
        cut_within("writer fails", held, failed_at, bound)
        wait_for("some clients on the next node", lambda: len(elsewhere()) > _SAMPLE)
    assert len({client.node for client in elsewhere()}) == 1
    first = min(elsewhere(), key=lambda client: client.asked_at)
    # Once a client is on the next node, no later one is on the old one.
    assert all(
        client.node != old.name for client in came if client.asked_at > first.asked_at
    )
    next_seconds = min(client.served_at for client in elsewhere()) - failed_at
    within("writer fails: next node serves", next_seconds, bound)


def varied(heading: str) -> str:
    """Apply the one diff under a heading of the page to the example.

    So there is no second copy of a variation.
    """
    (diff,) = blocks_under(VARIATIONS, heading, "diff")
    text = EXAMPLE.read_text()
    for hunk in diff.text.split("@@\n"):
        lines = hunk.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if not line.startswith("+"))
        new = "".join(line[1:] for line in lines if not line.startswith("-"))
        assert text.count(old) == 1, f"{heading}: not once in the file:\n{old}"
        text = text.replace(old, new)
    return text
