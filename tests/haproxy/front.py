"""HAProxy in front of mock nodes, with the example or a variation of it, and bounds of time."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from harness.haproxy import EXAMPLE, READER, WRITER, HAProxy
from harness.ports import Ports
from harness.waiting import wait_for
from tests.haproxy.mock_node import Client, Clients, MockNode
from tests.measured import done_within, within
from tests.unit.pages import blocks_under

SWITCH_SECONDS = 1.5
"""The most that a switch to the next node may take where the old node or its clustercheckd
answers."""

SILENT_SECONDS = 3.5
"""The most that a switch may take where HAProxy has to wait for an answer."""

AT_ONCE_SECONDS = 0.5
"""The most that a client may wait for what needs no waiting."""

PAGE, VARIATIONS = "docs/haproxy.md", "docs/haproxy-variations.md"

_SAMPLE = 20
_SECONDS = 30.0


@dataclass(frozen=True)
class Front:
    """One HAProxy, the nodes behind it, and clients of both of its sections."""

    haproxy: HAProxy
    nodes: Sequence[MockNode]
    writers: Clients
    readers: Clients

    def turn(self, state: str, *nodes: MockNode, **wanted: str) -> None:
        """Change the state of some nodes, and wait until HAProxy has noticed.

        wanted: HAProxy's status of each, by section, such as `writer="UP"`.
        """
        for node in nodes:
            node.become(state)
        for node in nodes:
            self.haproxy.wait_for_status(node, seconds=_SECONDS, **wanted)


class MockNodes:
    """Three mock nodes, and any number of HAProxies before them."""

    def __init__(self, directory: Path, ports: Ports, exits: ExitStack) -> None:
        self._directory = directory
        self._ports = ports
        self._exits = exits
        self.nodes = [MockNode(ports, f"node{number}") for number in (1, 2, 3)]
        for node in self.nodes:
            exits.callback(node.become, "killed")
            node.become("synced")

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
        self._exits.callback(haproxy.kill)
        haproxy.start()
        # What is no server has no check.
        wait_for(
            "HAProxy to check every node",
            lambda: (
                {row["check_status"] for row in haproxy.servers().values()}
                == {"", "L7OK"}
            ),
        )
        writers, readers = (Clients(haproxy.ports[name]) for name in (WRITER, READER))
        return Front(haproxy, self.nodes, writers, readers)


def at_once(what: str) -> AbstractContextManager[None]:
    """Fail if the block takes longer than `AT_ONCE_SECONDS`."""
    return done_within(what, AT_ONCE_SECONDS)


@contextmanager
def cutting(
    what: str, held: Sequence[Client], bound: float = SWITCH_SECONDS
) -> Iterator[None]:
    """Wait until what the block does has ended these sessions.

    Fail if that took longer than bound, in seconds.
    """
    began_at = time.monotonic()
    yield
    wait_for(
        f"{what}: the sessions to end", lambda: all(client.ended_at for client in held)
    )
    ended_at = max(client.ended_at for client in held)
    within(f"{what}: sessions cut", ended_at - began_at, bound)


@contextmanager
def switched(
    front: Front, old: MockNode, bound: float = SWITCH_SECONDS
) -> Iterator[None]:
    """Have clients come and go while the block makes the writer fail.

    All must move to one other node within bound.
    """
    held = front.writers.open(_SAMPLE)
    assert {client.node for client in held} == {old.name}

    def runs() -> list[list[Client]]:
        served = [client for client in came if client.node]
        return [list(run) for _, run in groupby(served, key=lambda one: one.node)]

    with front.writers.arriving() as came:
        wait_for("a client on the old node", runs)
        failed_at = time.monotonic()
        with cutting("writer fails", held, bound):
            yield
        wait_for(
            "some clients on the next node",
            lambda: any(len(run) > _SAMPLE for run in runs()[1:]),
        )
    # Once a client is on the next node, no later one is on another.
    assert [run[0].node for run in runs()[:-1]] == [old.name]
    next_seconds = min(client.served_at for client in runs()[-1]) - failed_at
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
