"""Donors that keep up and donors that stall, on real nodes."""

from harness.galera import WRITE
from harness.stack import Stack
from harness.waiting import wait_for
from tests.cluster.lone import check_undisturbed, wait_until_shown

LIMIT = 20


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
            check_undisturbed(service, "donor")
        with node.stalled():
            wait_for("the queue to pass the limit", queue_passes_the_limit)
            reply = wait_until_shown(service, "503 lagging", 1.0)
            assert f"MAX_RECV_QUEUE={LIMIT}" in reply.body
        service.wait_for_verdict(200, "donor")
    service.wait_for_verdict(200, "synced")
