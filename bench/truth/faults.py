"""The faults: how each one breaks a node, and how it is undone."""

import contextlib
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from harness.galera import Node
from harness.stack import Stack

_SHORTEST_SECONDS, _LONGEST_SECONDS = 2.0, 6.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of the plan. node: the index of its node. seconds: how long it lasts."""

    kind: str
    node: int
    seconds: float


def plan(seed: int, nodes: int) -> Iterator[Fault]:
    """Yield faults without end: all kinds in random order, then all again in a new random order."""
    chance = random.Random(seed)  # noqa: S311 (no secret)
    while True:
        for kind in chance.sample(sorted(KINDS), len(KINDS)):
            yield Fault(kind, chance.randrange(nodes), round(chance.uniform(_SHORTEST_SECONDS, _LONGEST_SECONDS), 1))


def inject(fault: Fault, stack: Stack) -> AbstractContextManager[None]:
    """Break the node for as long as the block runs."""
    return KINDS[fault.kind](stack, stack.nodes[fault.node])


def rebuild(stack: Stack) -> None:
    """Kill all nodes and form a new cluster from the first node's data."""
    for node in stack.nodes:
        node.kill()
        # Without this, a node that died with the cluster may refuse to bootstrap a new one.
        with contextlib.suppress(FileNotFoundError):
            node.forget_position()
    stack.cluster.start()


PAUSED = "service paused"
NO_THREADS, BROKEN_INIT_CONNECT = "no more threads", "broken init_connect"

KINDS: dict[str, Callable[[Stack, Node], AbstractContextManager[None]]] = {
    "desync": lambda _, node: node.setting("wsrep_desync", "ON", "OFF"),
    "isolate": lambda _, node: node.setting("wsrep_provider_options", "'gmcast.isolate=1'", "'gmcast.isolate=0'"),
    "FTWRL": lambda _, node: node.stalled(),
    "reject queries": lambda _, node: node.setting("wsrep_reject_queries", "ALL", "NONE"),
    "read-only": lambda _, node: node.setting("read_only", "ON", "OFF"),
    "read-only transactions": lambda _, node: node.setting("tx_read_only", "ON", "OFF"),
    BROKEN_INIT_CONNECT: lambda _, node: node.setting("init_connect", "'this is no SQL'", "''"),
    NO_THREADS: lambda _, node: node.without_threads(),
    "max_connections": lambda _, node: node.full(),
    "hung SHOW STATUS": lambda _, node: node.with_hanging_status(),
    "SIGSTOP": lambda _, node: node.process.paused(),
    PAUSED: lambda stack, node: stack.services[stack.nodes.index(node)].process.paused(),
    "kill -9": Stack.killed,
    "full SST": lambda stack, node: stack.cluster.full_transfer_to(node),
}
