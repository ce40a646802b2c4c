"""docs/operations.md brings back a cluster whose servers are all down: its commands, in order."""

import re
import shlex
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from harness.galera import Cluster, Installation, Node
from harness.process import output_of
from harness.waiting import wait_for
from tests.measured import for_seconds
from tests.unit.pages import blocks_under

pytestmark = pytest.mark.long

PAGE, RUNBOOK = "docs/operations.md", "Runbook: all servers are down"
DATA = "/var/lib/mysql"
KEPT_SECONDS = 2.0
"""After a power cut, the nodes may lose the commits of a second: they flush as often."""


START, _, KILL, READ, RECOVER, MARK, BOOTSTRAP, JOIN, FORGET = re.findall(
    r"^db\d# (.+?)(?:  #.*)?$",
    "".join(block.text for block in blocks_under(PAGE, RUNBOOK, "console")),
    re.MULTILINE,
)
"""The commands of the runbook. The second watches what the first does."""


class Hosts:
    """Three nodes, run as Debian's unit does: each start is given what galera_recovery prints."""

    def __init__(self, installation: Installation) -> None:
        self.cluster = Cluster(installation)
        self.nodes = self.cluster.nodes

    def run(self, line: str, node: Node) -> str:
        """Run a command of the page on a node, and return what it prints."""
        words = shlex.split(line.replace(DATA, str(node.data)))
        match words:
            case ["systemctl", "start", *_]:
                self.cluster.start_node(node, options=node.recover())
            case ["systemctl", "stop", *_] if line.endswith(
                "systemctl kill -s KILL mariadb"
            ):
                node.kill()
            case ["galera_new_cluster"]:
                self.cluster.start_node(node, bootstrap=True, options=node.recover())
            case ["galera_recovery"]:
                return " ".join(node.recover())
            case ["cat" | "sed" | "rm", *_]:
                return output_of(*words)
            case _:
                raise AssertionError(line)
        return ""

    def kill_all_under_writes(self) -> frozenset[int]:
        """Kill all servers while each commits; return the rows that must not be lost."""
        kept = rows_of(self.nodes[0])
        for _ in for_seconds(KEPT_SECONDS):
            assert all(node.commits() for node in self.nodes)
        for node in self.nodes:
            # All at once, before the others notice.
            node.process.send(signal.SIGKILL)
        for node in self.nodes:
            node.kill()
        return kept

    def wait_until_whole(self, kept: frozenset[int] = frozenset()) -> None:
        """Wait for one cluster of three, which has the same rows on each node, and these."""
        for node in self.nodes:
            node.wait_until_synced()
        size = "wsrep_cluster_size"
        wait_for("three", lambda: {node.status(size) for node in self.nodes} == {"3"})
        rows = [rows_of(node) for node in self.nodes]
        assert rows[0] == rows[1] == rows[2] >= kept


@pytest.fixture
def hosts(installation: Installation) -> Iterator[Hosts]:
    three = Hosts(installation)
    three.cluster.start()
    yield three
    for node in three.nodes:
        node.kill()


def test_after_a_power_cut_it_is_enough_to_start_all(hosts: Hosts) -> None:
    kept = hosts.kill_all_under_writes()
    start_all(hosts)
    hosts.wait_until_whole(kept)


def start_all(hosts: Hosts) -> None:
    for node in hosts.nodes:
        hosts.run(START, node)


def test_without_one_node_the_most_advanced_begins_and_the_third_joins_later(
    hosts: Hosts,
) -> None:
    kept = hosts.kill_all_under_writes()
    *two, _ = hosts.nodes
    for node in two:
        hosts.run(START, node)
    # They wait for the third, and nobody can log in.
    for _ in for_seconds(10):
        assert all(
            node.process.check() and node.status("Uptime") is None for node in two
        )
        time.sleep(0.5)
    follow_the_runbook(hosts, two)
    hosts.wait_until_whole(kept)


def test_a_lost_node_that_has_more_than_the_first_takes_a_full_copy(
    hosts: Hosts,
) -> None:
    *two, lost = hosts.nodes
    assert lost.commits()
    wait_for(
        "the same rows", lambda: all(rows_of(node) == rows_of(lost) for node in two)
    )
    lost.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
    with ExitStack() as locks:
        for node in two:
            session = locks.enter_context(node.connect())
            session.cursor().execute("FLUSH TABLES WITH READ LOCK")
        assert lost.commits()
        rows = rows_of(lost)
        for node in hosts.nodes:
            node.kill()
    follow_the_runbook(hosts, two)
    assert all(rows_of(node) < rows for node in hosts.nodes)


def test_after_an_orderly_end_the_node_that_was_last_begins(hosts: Hosts) -> None:
    for node in hosts.nodes:
        node.stop()
    *_, last = hosts.nodes
    start_all(hosts)
    follow_the_runbook(hosts, hosts.nodes, last=last)


def test_a_node_that_has_more_than_the_first_aborts(hosts: Hosts) -> None:
    ahead, behind, third = hosts.nodes
    third.stop()
    behind.stop()
    wait_for("commits of the last", ahead.commits)
    assert all(ahead.commits() for _ in range(10))
    ahead.kill()
    hosts.run(MARK, behind)
    hosts.run(BOOTSTRAP, behind)
    behind.wait_until_synced()
    hosts.run(JOIN, ahead)
    wait_for("the end", lambda: ahead.process.exit_code is not None, seconds=60)
    assert "Reversing history" in ahead.log.read_text()


def rows_of(node: Node) -> frozenset[int]:
    return frozenset(row for (row,) in node.sql("SELECT id FROM demo.writes"))


def highest(positions: dict[Node, str]) -> Node:
    """Return the node with the highest SEQNO."""
    assert len({position.rpartition(":")[0] for position in positions.values()}) == 1
    return max(positions, key=lambda node: int(positions[node].rpartition(":")[2]))


def follow_the_runbook(
    hosts: Hosts, found: Sequence[Node], *, last: Node | None = None
) -> None:
    """Do what the page says where it is not enough to start all.

    found: the nodes that can be reached. last: the one that was stopped last, in order.
    """
    for node in found:
        hosts.run(KILL, node)
    marked = [node for node in found if "safe_to_bootstrap: 1" in hosts.run(READ, node)]
    assert marked == ([last] if last else [])
    first = last or highest({node: hosts.run(RECOVER, node) for node in found})
    hosts.run(MARK, first)
    hosts.run(BOOTSTRAP, first)
    first.wait_until_synced()
    for node in hosts.nodes:
        if node is not first:
            if node not in found:
                hosts.run(FORGET, node)
            hosts.run(JOIN, node)
            node.wait_until_synced()
    hosts.wait_until_whole()
