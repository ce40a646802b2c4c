"""A cluster of one node, and the service beside it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.galera import Installation, Node
from harness.ports import Ports
from harness.service import Reply, Service, service_beside
from tests.http.test_metrics import wait_until_in_sync
from tests.measured import STALLED, DisturbedError, done_within


@contextmanager
def lone_node(installation: Installation, name: str, *options: str) -> Iterator[Node]:
    """Run a cluster of one."""
    node = installation.node(name, options)
    node.start_alone()
    try:
        yield node
    finally:
        node.kill()


@contextmanager
def watching(
    node: Node, directory: Path, ports: Ports, **environ: str
) -> Iterator[Service]:
    """Run a clustercheckd for a node, which has read in sync: no login is under way."""
    with service_beside(node, directory, ports, **environ) as service:
        wait_until_in_sync(service)
        yield service


def reasons_of(service: Service) -> list[str]:
    """Return the reasons of its verdicts, in order."""
    return [change["reason"] for change in service.status()["changes"]]


def check_undisturbed(service: Service, expected: str) -> None:
    """Check that the node is available under the configured policy, with this reason."""
    reply = service.get()
    if reply.reason in STALLED:
        raise DisturbedError(reply.body)
    assert (reply.status, reply.reason) == (200, expected)


def wait_until_shown(
    service: Service, verdict: str, seconds: float, *, target: str = "/"
) -> Reply:
    """Wait for what has just begun, or ended, to show; check that it came in time."""
    status, reason = verdict.split()
    with done_within(f"{verdict} shown", seconds):
        return service.wait_for_verdict(int(status), reason, target=target)
