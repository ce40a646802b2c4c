"""`clustercheckd status` on real nodes: what it says of a cluster that is split, or that waits."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from harness.galera import ACCOUNT, PASSWORD, Cluster, Installation, Node
from harness.ports import Ports
from harness.service import Service
from harness.waiting import wait_for
from tests.http.test_process import run

HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")


class Three:
    """Three nodes, and a service for each. All services have one port, as on three hosts."""

    def __init__(self, installation: Installation, directory: Path, port: int) -> None:
        self.cluster = Cluster(installation)
        self.nodes = self.cluster.nodes = [
            installation.node(
                f"whole{number}", [f"--wsrep-node-incoming-address={host}:3306"]
            )
            for number, host in enumerate(HOSTS, 1)
        ]
        self.addresses = [f"{host}:{port}" for host in HOSTS]
        self._directory, self._port = directory, port

    def start_service(self, node: Node, host: str) -> Service:
        settings = {
            "MYSQL_SOCKET": str(node.socket),
            "MYSQL_USERNAME": ACCOUNT,
            "MYSQL_PASSWORD": PASSWORD,
            "CLUSTERCHECK_HOST": host,
            # A node that stands still stays, or there were no time to look at the set.
            "MAX_STALL": "0",
        }
        return Service(self._directory, self._port, settings, name=node.name)

    def status(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Return the exit status of `clustercheckd status`, and its document."""
        done = run("status", "--json", *(arguments or self.addresses))
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def wait_until_whole(self) -> None:
        def is_whole() -> bool:
            code, document = self.status()
            return code == 0 and all(
                one["status"]["node"]["sync_wait_seconds"] == 0
                for one in document["nodes"]
            )

        wait_for("one healthy cluster", is_whole, seconds=60)

    def wait_for_fault(self, word: str) -> str:
        """Wait until all nodes are available, and this word says what is wrong with the set."""

        def said() -> str:
            code, document = self.status()
            available = [one["status"]["available"] for one in document["nodes"]]
            found: str = document["cluster"].get(word, "")
            return found if (code, available) == (3, 3 * [True]) else ""

        return wait_for(f"status to say {word}", said, seconds=60)


@pytest.fixture(scope="module")
def running(
    installation: Installation, ports: Ports, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Three]:
    """Start them."""
    three = Three(installation, tmp_path_factory.mktemp("three"), ports.free())
    with ExitStack() as exits:
        for node in three.nodes:
            exits.callback(node.kill)
        three.cluster.start()
        for node, host in zip(three.nodes, HOSTS, strict=True):
            exits.callback(three.start_service(node, host).process.kill)
        yield three


@pytest.fixture
def three(running: Three) -> Three:
    """Return them, as one healthy cluster."""
    running.wait_until_whole()
    return running


def options(node: Node, text: str) -> None:
    """Set options of the provider."""
    node.sql(f"SET GLOBAL wsrep_provider_options='{text}'")


def test_a_healthy_cluster_is_found_from_any_member(three: Three) -> None:
    for address in three.addresses:
        code, document = three.status("--all", address)
        assert (code, document["cluster"]) == (0, {})
        assert sorted(one["target"] for one in document["nodes"]) == three.addresses
    code, document = three.status(three.addresses[0])
    assert (code, list(document["cluster"])) == (0, ["not-asked"])


def test_a_node_that_was_cut_off_and_bootstrapped_is_a_split(three: Three) -> None:
    node, names = three.nodes[2], three.addresses
    options(node, "gmcast.isolate=1")
    wait_for(
        "it to be cut off", lambda: node.status("wsrep_cluster_status") == "non-Primary"
    )
    wait_for(
        "the others",
        lambda: three.nodes[0].status("wsrep_cluster_size") == "2",
        seconds=30,
    )
    code, document = three.status()
    # It is told by its row.
    assert (code, document["cluster"]) == (1, {})

    def is_bootstrapped() -> bool:
        # In the middle of a change of its view, a node ignores it without an error.
        options(node, "pc.bootstrap=1")
        return node.status("wsrep_cluster_status") == "Primary"

    wait_for("a cluster of its own", is_bootstrapped)
    seen = three.wait_for_fault("split")
    assert seen.startswith(
        f"each side takes writes; {names[0]}, {names[1]}: wsrep_cluster_size 2, "
    )
    assert f"; {names[2]}: wsrep_cluster_size 1, " in seen
    node.kill()
    three.cluster.start_node(node)
    three.cluster.wait_until_synced(node)


def test_a_node_that_holds_up_all_writes_is_named(three: Three) -> None:
    node, name = three.nodes[1], three.addresses[1]
    with node.stuck():
        assert three.nodes[0].commits()
        assert three.wait_for_fault("held-up").startswith(
            f"reads in sync wait on {name}; "
        )
        while three.nodes[0].commits():
            pass
        flow_control = f"; flow control waits for the receive queue on {name}; "
        wait_for(
            "flow control", lambda: flow_control in three.wait_for_fault("held-up")
        )
