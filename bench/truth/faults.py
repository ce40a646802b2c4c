"""The faults: how each one breaks a node, and how it is undone."""

import contextlib
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import pymysql

from harness.galera import Node
from harness.stack import Stack
from harness.waiting import wait_for

_SHORTEST_SECONDS, _LONGEST_SECONDS = 2.0, 6.0
_FEW_CONNECTIONS, _USUAL_CONNECTIONS = 20, 151
_REFILL_SECONDS = 0.02


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


def _set(node: Node, name: str, value: str) -> None:
    # The provider refuses some settings while the group agrees on a view.
    def done() -> bool:
        with contextlib.suppress(pymysql.MySQLError):
            node.sql(f"SET GLOBAL {name}={value}")
            return True
        return False

    wait_for(f"{node.name} to take {name}={value}", done)


def _desync(_: Stack, node: Node) -> AbstractContextManager[None]:
    return _setting(node, "wsrep_desync", "ON", "OFF")


def _isolate(_: Stack, node: Node) -> AbstractContextManager[None]:
    return _setting(node, "wsrep_provider_options", "'gmcast.isolate=1'", "'gmcast.isolate=0'")


def _reject_queries(_: Stack, node: Node) -> AbstractContextManager[None]:
    return _setting(node, "wsrep_reject_queries", "ALL", "NONE")


def _read_only(_: Stack, node: Node) -> AbstractContextManager[None]:
    return _setting(node, "read_only", "ON", "OFF")


@contextmanager
def _read_lock(_: Stack, node: Node) -> Iterator[None]:
    with node.connect() as connection, connection.cursor() as cursor:
        cursor.execute("FLUSH TABLES WITH READ LOCK")
        yield
        cursor.execute("UNLOCK TABLES")


@contextmanager
def _full(_: Stack, node: Node) -> Iterator[None]:
    # When a session ends, its place becomes free, so fill the node again and again while the fault lasts.
    over, full = threading.Event(), threading.Event()
    held: list[pymysql.Connection[Any]] = []

    def fill() -> None:
        while not over.is_set():
            try:
                held.append(node.connect_as_client(seconds=1.0))
            except pymysql.MySQLError:
                full.set()
                over.wait(_REFILL_SECONDS)

    filler = threading.Thread(target=fill, daemon=True)
    with _setting(node, "max_connections", str(_FEW_CONNECTIONS), str(_USUAL_CONNECTIONS)):
        filler.start()
        try:
            wait_for(f"{node.name} to be full", full.is_set)
            yield
        finally:
            over.set()
            filler.join()
            for connection in held:
                with contextlib.suppress(pymysql.MySQLError):
                    connection.close()


@contextmanager
def _hang(_: Stack, node: Node) -> Iterator[None]:
    node.hang()
    try:
        yield
    finally:
        node.resume()


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


KINDS: dict[str, Callable[[Stack, Node], AbstractContextManager[None]]] = {
    "desync": _desync,
    "isolate": _isolate,
    "FTWRL": _read_lock,
    "reject queries": _reject_queries,
    "read-only": _read_only,
    "max_connections": _full,
    "SIGSTOP": _hang,
    "kill -9": _kill,
    "full SST": _full_state_transfer,
}
