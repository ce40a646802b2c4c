"""Donors that keep up and donors that stall, on real nodes."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from harness.galera import WRITE, Node
from harness.haproxy import READER_QUESTION
from harness.stack import Stack
from harness.waiting import wait_for
from tests.http.test_metrics import scrape
from tests.measured import STALLED, DisturbedError, within

LIMIT = 20
CLIENTS = 8


@contextmanager
def clients_that_write(node: Node) -> Iterator[None]:
    """Have clients write to a node, as fast as it allows them to."""
    ended = threading.Event()

    def write() -> None:
        with node.connect_as_client(seconds=60) as client, client.cursor() as cursor:
            while not ended.is_set():
                cursor.execute(WRITE)

    threads = [threading.Thread(target=write) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


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
            within("a node over the limit is lagging", time.monotonic() - passed_at, 1.0)
            assert f"MAX_RECV_QUEUE={LIMIT}" in reply.body
        service.wait_for_verdict(200, "donor")
    service.wait_for_verdict(200, "synced")


def test_a_synced_node_that_has_all_that_flow_control_allows_in_its_queue_still_serves_readers(
    stack: Stack,
) -> None:
    writer, slow, third = stack.nodes
    options = "wsrep_provider_options"
    with ExitStack() as exits:
        for node in stack.nodes:
            # The default of Percona XtraDB Cluster, and that of MariaDB.
            exits.enter_context(
                node.setting(options, "'gcs.fc_limit=100'", back="'gcs.fc_limit=16'")
            )
        # The clients wait for flow control until the lock below is gone.
        exits.enter_context(clients_that_write(writer))
        exits.enter_context(slow.stuck())
        wait_for("flow control", lambda: third.status("wsrep_flow_control_active") == "true")
        assert int(slow.status("wsrep_local_recv_queue") or 0) > int(100 * 3**0.5)
        wait_for("a poll of it", lambda: scrape(stack.services[1])["wsrep_local_recv_queue"] > 100)
        stack.services[1].wait_for_verdict(200, "synced", target=READER_QUESTION)
        stack.services[1].wait_for_verdict(503, "lagging", target="/?max_recv_queue=100")
    stack.wait_until_whole()
