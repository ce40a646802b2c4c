"""A cluster of one node, and the service beside it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.galera import Installation, Node
from harness.ports import Ports
from harness.service import Service


@contextmanager
def lone_node(installation: Installation, name: str, *options: str) -> Iterator[Node]:
    """Run a cluster of one."""
    node = installation.node(name, options)
    start_alone(node)
    try:
        yield node
    finally:
        node.kill()


def start_alone(node: Node) -> None:
    """Start a node as a cluster of its own, and wait until it is Synced."""
    node.start(["--wsrep-new-cluster"], addresses=[])
    node.wait_for_state("Synced")


@contextmanager
def watching(node: Node, directory: Path, ports: Ports, **environ: str) -> Iterator[Service]:
    """Run a clustercheckd for a node."""
    service = Service.of(node, directory, ports.free(), **environ)
    try:
        service.wait_until_up()
        service.wait_for_verdict(200, "synced")
        yield service
    finally:
        service.process.kill()
