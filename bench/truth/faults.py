"""The faults: how each one breaks a node, and how it is undone."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from bench.truth import statements
from bench.truth.group_faults import (
    NETWORK,
    OF_NODE,
    OF_STACK,
    SEMI_SYNC,
    broken_network,
)
from bench.truth.statements import STATEMENTS
from harness.galera import Node
from harness.stack import Stack

_SHORTEST_SECONDS, _LONGEST_SECONDS = 2.0, 10.0
"""Some hangs and cuts end before the group has excluded the node (5 s), and some last longer than
that."""


class Fault(NamedTuple):
    """One fault of the plan.

    node: the index of its node. seconds: how long it lasts; 0 if it ends by itself.
    """

    kind: str
    node: int
    seconds: float


def plan(seed: int, nodes: int, kinds: Sequence[str]) -> Iterator[Fault]:
    """Yield faults without end: all kinds in random order, then all again in a new random order."""
    chance = random.Random(seed)  # noqa: S311 (no secret)
    while True:
        for kind in chance.sample(kinds, len(kinds)):
            seconds = chance.uniform(_SHORTEST_SECONDS, _LONGEST_SECONDS)
            yield Fault(
                kind,
                chance.randrange(nodes),
                0 if kind in STATEMENTS else round(seconds, 1),
            )


def inject(fault: Fault, stack: Stack) -> AbstractContextManager[None]:
    """Break the node for as long as the block runs."""
    node = stack.nodes[fault.node]
    if fault.kind in _SETTINGS:
        return node.setting(*_SETTINGS[fault.kind])
    if fault.kind in STATEMENTS:
        return statements.running(node, fault.kind)
    if fault.kind in NETWORK:
        return broken_network(fault.kind, stack, node)
    if fault.kind in _OF_NODE:
        return _OF_NODE[fault.kind](node)
    return _OF_STACK[fault.kind](stack, node)


def rebuild(stack: Stack) -> None:
    """Kill all nodes and form a new cluster from the first node's data."""
    for node in stack.nodes:
        node.kill()
        # Without this, a node that died with the cluster may refuse to bootstrap a new one.
        node.forget_position()
    stack.cluster.start()


ISOLATION, KILL, SIGSTOP, PAUSED = "isolation", "kill -9", "SIGSTOP", "service paused"
BOTH_PAUSED, HUNG_STATUS = "SIGSTOP, service too", "hung SHOW STATUS"
NO_THREADS, BROKEN_INIT_CONNECT = "no more threads", "broken init_connect"
ALTER, FULL_DISK, FULL_TRANSFER = (
    "long ALTER TABLE",
    "full disk under the binary log",
    "full state transfer",
)


@contextmanager
def _both_paused(stack: Stack, node: Node) -> Iterator[None]:
    """Pause a server and its service, as in a machine that stands still."""
    with (
        stack.services[stack.nodes.index(node)].process.paused(),
        node.process.paused(),
    ):
        yield


_SETTINGS = {
    "desync": ("wsrep_desync", "ON", "OFF"),
    ISOLATION: ("wsrep_provider_options", "'gmcast.isolate=1'", "'gmcast.isolate=0'"),
    "reject queries": ("wsrep_reject_queries", "ALL", "NONE"),
    "read-only": ("read_only", "ON", "OFF"),
    "read-only transactions": ("tx_read_only", "ON", "OFF"),
    SEMI_SYNC: ("rpl_semi_sync_master_enabled", "ON", "OFF"),
    BROKEN_INIT_CONNECT: ("init_connect", "'this is no SQL'", "''"),
}
"""Variables, with their value during the fault and after it."""

_OF_NODE: dict[str, Callable[[Node], AbstractContextManager[None]]] = {
    "FLUSH TABLES WITH READ LOCK": Node.stalled,
    "BACKUP STAGE BLOCK_COMMIT": Node.without_commits,
    FULL_DISK: Node.with_full_disk,
    NO_THREADS: Node.without_threads,
    "max_connections": Node.full,
    HUNG_STATUS: Node.with_hanging_status,
    SIGSTOP: lambda node: node.process.paused(),
    **OF_NODE,
}

_OF_STACK: dict[str, Callable[[Stack, Node], AbstractContextManager[None]]] = {
    ALTER: lambda stack, node: stack.cluster.altering(node),
    PAUSED: lambda stack, node: stack.services[
        stack.nodes.index(node)
    ].process.paused(),
    BOTH_PAUSED: _both_paused,
    KILL: Stack.killed,
    FULL_TRANSFER: lambda stack, node: stack.cluster.full_transfer_to(node),
    **OF_STACK,
}

KINDS = sorted(
    [*STATEMENTS, *NETWORK, *_SETTINGS, *_OF_NODE, *_OF_STACK], key=str.lower
)
_OF_GROUP = {*OF_NODE, *OF_STACK, *NETWORK, SEMI_SYNC}
SETS = {
    "statements": list(STATEMENTS),
    "group": [kind for kind in KINDS if kind in _OF_GROUP],
    "node": [kind for kind in KINDS if kind not in {*STATEMENTS, *_OF_GROUP}],
}
"""KINDS in parts."""
