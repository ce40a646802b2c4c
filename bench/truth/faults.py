"""The faults: how each one breaks a node, and how it is undone."""

import contextlib
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import pymysql

from harness.galera import Node
from harness.process import Process
from harness.stack import Stack
from harness.waiting import wait_for

_SHORTEST_SECONDS, _LONGEST_SECONDS = 2.0, 6.0
_FEW_CONNECTIONS, _USUAL_CONNECTIONS = 20, 151


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


@contextmanager
def _setting(node: Node, name: str, value: str, back: str) -> Iterator[None]:
    _set(node, name, value)
    try:
        yield
    finally:
        _set(node, name, back)


@contextmanager
def stopped(process: Process) -> Iterator[None]:
    """Stop a process for as long as the block runs: its sockets stay open and nothing answers."""
    process.send(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send(signal.SIGCONT)


def _set(node: Node, name: str, value: str) -> None:
    # The provider refuses some settings while the group agrees on a view.
    def done() -> bool:
        with contextlib.suppress(pymysql.MySQLError):
            node.sql(f"SET GLOBAL {name}={value}")
            return True
        return False

    wait_for(f"{node.name} to take {name}={value}", done)


@contextmanager
def _read_lock(_: Stack, node: Node) -> Iterator[None]:
    with node.connect() as connection, connection.cursor() as cursor:
        cursor.execute("FLUSH TABLES WITH READ LOCK")
        yield
        cursor.execute("UNLOCK TABLES")


@contextmanager
def _full(_: Stack, node: Node) -> Iterator[None]:
    # More than the limit, so that nobody gets in when another client leaves, not even the administrator.
    held = [node.connect_as_client() for _ in range(2 * _FEW_CONNECTIONS)]
    with node.connect() as administrator, administrator.cursor() as cursor:
        cursor.execute(f"SET GLOBAL max_connections={_FEW_CONNECTIONS}")
        yield
        cursor.execute(f"SET GLOBAL max_connections={_USUAL_CONNECTIONS}")
    for connection in held:
        connection.close()


@contextmanager
def _kill(stack: Stack, node: Node) -> Iterator[None]:
    node.kill()
    yield
    stack.restart_node(node)


@contextmanager
def _full_state_transfer(stack: Stack, node: Node) -> Iterator[None]:
    # There is too little data for a slow transfer, so hold it up at the receiving end.
    node.stop()
    node.forget_position()
    stack.cluster.start_node(node)
    with node.holding_up_transfer():
        yield
    node.wait_for_state("Synced")


PAUSED = "service paused"
NO_THREADS, BROKEN_INIT_CONNECT = "no more threads", "broken init_connect"

KINDS: dict[str, Callable[[Stack, Node], AbstractContextManager[None]]] = {
    "desync": lambda _, node: _setting(node, "wsrep_desync", "ON", "OFF"),
    "isolate": lambda _, node: _setting(node, "wsrep_provider_options", "'gmcast.isolate=1'", "'gmcast.isolate=0'"),
    "FTWRL": _read_lock,
    "reject queries": lambda _, node: _setting(node, "wsrep_reject_queries", "ALL", "NONE"),
    "read-only": lambda _, node: _setting(node, "read_only", "ON", "OFF"),
    "read-only transactions": lambda _, node: _setting(node, "tx_read_only", "ON", "OFF"),
    BROKEN_INIT_CONNECT: lambda _, node: _setting(node, "init_connect", "'this is no SQL'", "''"),
    NO_THREADS: lambda _, node: node.without_threads(),
    "max_connections": _full,
    "hung SHOW STATUS": lambda _, node: node.with_hanging_status(),
    "SIGSTOP": lambda _, node: stopped(node.process),
    PAUSED: lambda stack, node: stopped(stack.services[stack.nodes.index(node)].process),
    "kill -9": _kill,
    "full SST": _full_state_transfer,
}
