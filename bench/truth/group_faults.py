"""Faults of a group: its network, disks, CPU, locks and members.

Which of them a node suffers alone, and which the whole group, is for the run to find out.
"""

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import pymysql

from bench.truth.statements import prepare, running
from harness.galera import DEMO, Node
from harness.network import dropping
from harness.process import with_system_path
from harness.quota import quota
from harness.stack import Stack
from harness.waiting import meanwhile, wait_for

OfNode = Callable[[Node], AbstractContextManager[None]]
OfStack = Callable[[Stack, Node], AbstractContextManager[None]]

_NOTIFYING = Path(tempfile.gettempdir(), f"clustercheckd-notifying-{os.getpid()}")
NOTIFY_OPTION = f"--wsrep-notify-cmd=while [ -e {_NOTIFYING} ]; do sleep 0.1; done; :"
"""Of each server: it appends what it tells, and waits for the end."""
MARIABACKUP_OPTION = f"--wsrep-sst-auth={DEMO}:{DEMO}"
_NOTIFY_SECONDS = 8.0
"""The new view comes some 6 s after a death."""

_SLOW_SYNC = ("fsync,fdatasync", 3000)
_SLOW_READ = ("pread64", 20)
"""System calls, and the milliseconds that each takes longer."""
_LITTLE_CPU = 0.05
_FLAP_SECONDS = 0.8
_PATIENT_SECONDS = 120.0

SEMI_SYNC = "semi-sync without a replica"
_ALL_SEMI_SYNC = f"{SEMI_SYNC}, all"
_BESIDE_READERS = "LOCK TABLES, beside readers"
ALL_CUT = "all cut from all"
_ALL_LOSE = "30 % lost by all"
_FULL_DISKS = "full disk under the binary log, all"
NETWORK = {
    "group cut": ("iifname NODE", "oifname NODE"),
    "cannot send": ("iifname NODE",),
    "cannot receive": ("oifname NODE",),
    "pair cut": ("iifname NODE oifname OTHER", "iifname OTHER oifname NODE"),
    "10 % lost": ("iifname NODE RARELY", "oifname NODE RARELY"),
    "30 % lost": ("iifname NODE OFTEN", "oifname NODE OFTEN"),
    _ALL_LOSE: ("meta l4proto tcp OFTEN",),
    "full-size packets lost": ("iifname NODE meta length > 1000",),
    ALL_CUT: ("meta l4proto tcp",),
}
"""What is dropped between hosts, for nft(8)."""

_FLAPPING, _LINK_DOWN = "flapping", "link down"


def broken_network(kind: str, stack: Stack, node: Node) -> AbstractContextManager[None]:
    """Drop packets between hosts while the block runs."""
    words = {
        "NODE": node.link,
        "OTHER": _other(stack, node).link,
        "RARELY": "numgen random mod 100 < 10",
        "OFTEN": "numgen random mod 100 < 30",
    }
    rules = [
        " ".join(words.get(word, word) for word in rule.split())
        for rule in NETWORK[kind]
    ]
    return dropping(*rules)


def _flapping(stack: Stack, node: Node) -> AbstractContextManager[None]:
    def flap(ending: threading.Event) -> None:
        with broken_network("group cut", stack, node):
            ending.wait(_FLAP_SECONDS)

    return meanwhile(flap, _FLAP_SECONDS)


def _link_down(_: Stack, node: Node) -> AbstractContextManager[None]:
    if node.host is None:
        raise RuntimeError(f"{node.name} has no host of its own")
    return node.host.cut_off()


def _little_cpu(node: Node) -> AbstractContextManager[None]:
    return quota(node.process.pid, _LITTLE_CPU)


@contextmanager
def _slow_disk(node: Node, calls: str, milliseconds: int) -> Iterator[None]:
    """Have system calls take longer, by strace(1)."""
    options = f"-qq -f -p {node.process.pid} -o /dev/null -e trace={calls}"
    inject = f"-e inject={calls}:delay_enter={milliseconds}ms"
    command = ["strace", *options.split(), *inject.split()]
    with subprocess.Popen(command, env=with_system_path({})) as tracer:
        try:
            yield
        finally:
            tracer.terminate()


def _on_all(fault: OfNode) -> OfStack:
    return lambda stack, _: stack.on_each_node(fault)


@contextmanager
def _lock_that_waits(node: Node) -> Iterator[None]:
    """Have FLUSH TABLES WITH READ LOCK wait for an UPDATE that takes as long as the block."""
    update = f"UPDATE {DEMO}.writes SET at=at WHERE SLEEP(1)=0 LIMIT 100"  # noqa: S608

    def run(*statements: str) -> None:
        with (
            node.connect(seconds=_PATIENT_SECONDS) as session,
            suppress(pymysql.MySQLError),  # the block's end kills it
        ):
            for statement in statements:
                session.query(statement)

    def sessions() -> list[int]:
        rows = node.sql("SHOW PROCESSLIST")
        return [row[0] for row in rows if row[7] in (update, lock)]

    lock = "FLUSH TABLES WITH READ LOCK"
    with ThreadPoolExecutor(2) as pool:
        pool.submit(run, "SET SESSION wsrep_on=OFF", update)
        wait_for("the update to run", sessions)
        pool.submit(run, lock)
        try:
            yield
        finally:
            for number in sessions():
                # The one may end because the other has.
                with suppress(pymysql.MySQLError):
                    node.sql(f"KILL {number}")


@contextmanager
def _voted_out(stack: Stack, node: Node) -> Iterator[None]:
    """Have the group find that the node cannot apply a write: it leaves by a vote."""
    table = f"{DEMO}.voted"
    other = _other(stack, node)
    other.sql(f"CREATE OR REPLACE TABLE {table} (id INT PRIMARY KEY, n INT)")
    other.sql(f"INSERT INTO {table} VALUES (1, 0)")  # noqa: S608
    wait_for("the row", lambda: node.sql(f"SELECT n FROM {table}"))  # noqa: S608
    with node.connect() as session:
        session.query("SET SESSION wsrep_on=OFF")
        session.query(f"DELETE FROM {table}")  # noqa: S608
    other.sql(f"UPDATE {table} SET n=1")  # noqa: S608
    yield
    with stack.killed(node):
        node.forget_position()


@contextmanager
def _leaving(stack: Stack, node: Node) -> Iterator[None]:
    """Stop the node in order, and start it again after the block."""
    node.stop()
    yield
    stack.restart_node(node)


@contextmanager
def _much_missed(stack: Stack, node: Node) -> Iterator[None]:
    """Have the node return by an incremental transfer of all that was written meanwhile."""
    other = _other(stack, node)
    table = f"{DEMO}.missed"
    other.sql(f"CREATE OR REPLACE TABLE {table} (n INT)")

    def write(ending: threading.Event) -> None:
        with other.connect() as session:
            while not ending.is_set():
                session.query(f"INSERT INTO {table} VALUES (1)")  # noqa: S608

    with _leaving(stack, node), meanwhile(write, 0.0):
        yield


def _transfer_by_mariabackup(stack: Stack, node: Node) -> AbstractContextManager[None]:
    """Have the node return by a copy of all, whose donor commits meanwhile."""
    user = f"{DEMO}@localhost"
    rights = "RELOAD, PROCESS, LOCK TABLES, BINLOG MONITOR"
    other = _other(stack, node)
    other.sql(f"CREATE USER IF NOT EXISTS {user} IDENTIFIED BY '{DEMO}'")
    other.sql(f"GRANT {rights} ON *.* TO {user}")
    return stack.cluster.full_transfer_to(node, "mariabackup")


@contextmanager
def _killed_and_all_notify(stack: Stack, node: Node) -> Iterator[None]:
    """Kill the node. Each other's wsrep_notify_cmd hangs from the new view on."""
    with stack.killed(node):
        _NOTIFYING.touch()
        try:
            yield
            time.sleep(_NOTIFY_SECONDS)
        finally:
            _NOTIFYING.unlink()


@contextmanager
def _joins_and_all_notify(stack: Stack, node: Node) -> Iterator[None]:
    """Have a member join. Each other's wsrep_notify_cmd hangs from the new view on."""
    node.stop()
    _NOTIFYING.touch()
    try:
        stack.cluster.start_node(node)
        yield
    finally:
        _NOTIFYING.unlink()


@contextmanager
def _slow_page_reads(stack: Stack, node: Node) -> Iterator[None]:
    """Have each page be read slowly, while rows are deleted by their key."""
    prepare(node, "DELETE, many rows")
    with stack.on_each_node(lambda one: _slow_disk(one, *_SLOW_READ)):
        delete = f"DELETE FROM {DEMO}.big WHERE id % 4000 = 0"  # noqa: S608
        with node.connect(seconds=_PATIENT_SECONDS) as session:
            session.query(delete)
        yield


def _reading(node: Node) -> AbstractContextManager[None]:
    """Have clients scan rows into temporary tables."""
    scan = f"SELECT SUM(seq) FROM {DEMO}.seq_1_to_200000 GROUP BY seq % 1000"  # noqa: S608
    return meanwhile(lambda _: node.sql(scan), 0.3)


@contextmanager
def _locked_beside_readers(node: Node) -> Iterator[None]:
    with node.holding(f"LOCK TABLES {DEMO}.writes WRITE"), _reading(node):
        yield


@contextmanager
def _update_beside_readers(stack: Stack, node: Node) -> Iterator[None]:
    prepare(node, "UPDATE, no key")
    with stack.on_each_node(_reading), running(node, "UPDATE, no key"):
        yield


def _other(stack: Stack, node: Node) -> Node:
    return stack.nodes[stack.nodes.index(node) - 1]


OF_NODE: dict[str, OfNode] = {
    "LOCK TABLES": lambda node: node.holding(f"LOCK TABLES {DEMO}.writes WRITE"),
    "LOCK TABLES, wsrep_on=OFF": Node.stuck,
    _BESIDE_READERS: _locked_beside_readers,
    "FLUSH TABLES FOR EXPORT": lambda node: node.holding(
        f"FLUSH TABLES {DEMO}.writes FOR EXPORT"
    ),
    "read lock that waits": _lock_that_waits,
    "slow disk": lambda node: _slow_disk(node, *_SLOW_SYNC),
    "5 % of a core": _little_cpu,
}
_RESTARTS: dict[str, OfStack] = {
    "voted out": _voted_out,
    # A server that finds no room may end.
    "full disk under the data, all": lambda stack, _: (
        stack.installation.with_full_disk()
    ),
    "incremental transfer of much": _much_missed,
    "full state transfer by mariabackup": _transfer_by_mariabackup,
    "kill -9, and all run a slow wsrep_notify_cmd": _killed_and_all_notify,
    "joins, and all run a slow wsrep_notify_cmd": _joins_and_all_notify,
}
RESTARTED = tuple(_RESTARTS)
OF_STACK: dict[str, OfStack] = {
    "slow disk, all": _on_all(lambda node: _slow_disk(node, *_SLOW_SYNC)),
    "slow page reads, all": _slow_page_reads,
    _ALL_SEMI_SYNC: _on_all(
        lambda node: node.setting("rpl_semi_sync_master_enabled", "ON", "OFF")
    ),
    "UPDATE, no key, beside readers": _update_beside_readers,
    _FULL_DISKS: _on_all(Node.with_full_disk),
    **_RESTARTS,
    "5 % of a core, all": _on_all(_little_cpu),
    "leaves in order": _leaving,
    _FLAPPING: _flapping,
    _LINK_DOWN: _link_down,
}
NEEDING_HOSTS = (*NETWORK, _FLAPPING, _LINK_DOWN)
ALL_ALONE = (ALL_CUT, _ALL_LOSE, _FULL_DISKS)
"""Those by which each node stands still for a cause of its own, and no client can use any."""
ALONE = (
    *(_LINK_DOWN, "group cut", "cannot send", "cannot receive"),
    *("LOCK TABLES", "LOCK TABLES, wsrep_on=OFF", "FLUSH TABLES FOR EXPORT"),
    _BESIDE_READERS,
)
"""Those by which the node stands still alone, and shows it. With semi-sync, the rows of its new
clients hide it."""
