"""Donors that keep up and donors that stall, on real nodes."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pymysql

from harness.galera import Node
from harness.stack import Stack
from harness.waiting import wait_for
from tests.measured import undisturbed, within

LIMIT = 20


@contextmanager
def writing(node: Node) -> Iterator[None]:
    """Write on a node without a pause for as long as the block runs."""
    stop = threading.Event()

    def write() -> None:
        # A stalled member may hold the others up by flow control: a write that takes too long is tried again.
        while not stop.is_set():
            try:
                with node.connect_as_client(seconds=5) as connection, connection.cursor() as cursor:
                    while not stop.is_set():
                        cursor.execute("INSERT INTO writes (node) VALUES (@@wsrep_node_name)")
            except pymysql.MySQLError:
                continue

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join(30)


def queue_of(node: Node) -> int:
    """Read a node's receive queue."""
    return int(node.status("wsrep_local_recv_queue") or 0)


def test_a_desynced_node_that_applies_stays_and_one_that_stalls_leaves_and_returns(stack: Stack) -> None:
    node = stack.nodes[1]
    service = stack.service(node, AVAILABLE_WHEN_DONOR="1", MAX_RECV_QUEUE=str(LIMIT))
    with writing(stack.nodes[0]):
        node.sql("SET GLOBAL wsrep_desync=ON")
        try:
            service.wait_for_verdict(200, "donor")
            received = int(node.status("wsrep_received") or 0)
            # Well over the limit's worth of write-sets are applied, and every answer meanwhile is good.
            with undisturbed(service):
                while int(node.status("wsrep_received") or 0) <= received + 10 * LIMIT:
                    assert (service.get().status, service.get().reason) == (200, "donor")
            with node.connect() as locking, locking.cursor() as cursor:
                cursor.execute("FLUSH TABLES WITH READ LOCK")
                wait_for("the queue to pass the limit", lambda: queue_of(node) > LIMIT)
                passed_at = time.monotonic()
                reply = service.wait_for_verdict(503, "lagging")
                within("a node over the limit is lagging", time.monotonic() - passed_at, 1.0)
                assert f"MAX_RECV_QUEUE={LIMIT}" in reply.body
                cursor.execute("UNLOCK TABLES")
            service.wait_for_verdict(200, "donor")
        finally:
            node.sql("SET GLOBAL wsrep_desync=OFF")
    service.wait_for_verdict(200, "synced")
