"""Donors that keep up and donors that stall, on real nodes."""

import time
from pathlib import Path

from harness.galera import WRITE, Node
from harness.ports import Ports
from harness.service import service_beside
from harness.stack import Stack
from harness.waiting import wait_for
from tests.measured import STALLED, DisturbedError, within

LIMIT = 20


def test_a_node_bootstrapped_alone_is_unavailable_to_who_asks_for_more_members(
    lone: Node, stack: Stack, tmp_path: Path, ports: Ports
) -> None:
    with service_beside(lone, tmp_path, ports, MIN_CLUSTER_SIZE="2") as service:
        reply = service.wait_for_verdict(503, "cluster-too-small")
        assert "wsrep_cluster_size is 1; MIN_CLUSTER_SIZE=2" in reply.body
        assert service.get("/?min_cluster_size=1").reason == "synced"
    for least, reason in (("3", "synced"), ("4", "cluster-too-small")):
        assert stack.services[0].get(f"/?min_cluster_size={least}").reason == reason


def test_a_desynced_node_that_applies_stays_and_one_that_stalls_leaves_and_returns(
    stack: Stack,
) -> None:
    writer, node = stack.nodes[:2]
    service = stack.service(node, AVAILABLE_WHEN_DONOR="1", MAX_RECV_QUEUE=str(LIMIT))

    def queue_passes_the_limit() -> bool:
        writing.execute(WRITE)
        return int(node.status("wsrep_local_recv_queue") or 0) > LIMIT

    with (
        node.setting("wsrep_desync", "ON", back="OFF"),
        writer.connect_as_client() as client,
        client.cursor() as writing,
    ):
        service.wait_for_verdict(200, "donor")
        # Well over the limit's worth of write-sets are applied, and every answer meanwhile is good.
        for _ in range(10 * LIMIT):
            writing.execute(WRITE)
            reply = service.get()
            if reply.reason in STALLED:
                raise DisturbedError(reply.body)
            assert (reply.status, reply.reason) == (200, "donor")
        with node.stalled():
            wait_for("the queue to pass the limit", queue_passes_the_limit)
            passed_at = time.monotonic()
            reply = service.wait_for_verdict(503, "lagging")
            within(
                "a node over the limit is lagging", time.monotonic() - passed_at, 1.0
            )
            assert f"MAX_RECV_QUEUE={LIMIT}" in reply.body
        service.wait_for_verdict(200, "donor")
    service.wait_for_verdict(200, "synced")
