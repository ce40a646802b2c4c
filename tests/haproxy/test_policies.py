"""Drains, full nodes, lenient readers and the last resort, through a real HAProxy with haproxy.cfg.example."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pymysql
import pytest

from harness.galera import Cluster, Installation
from harness.haproxy import READER, WRITER, Backend, HAProxy
from harness.service import Service
from harness.stack import Stack
from harness.waiting import wait_for

SAMPLES = 6
DRAINS = {"CLUSTERCHECK_DRAIN_STATUS": "404"}


class Draining:
    """The shared cluster, behind checkers and an HAProxy of its own, where planned absences are a 404."""

    def __init__(self, stack: Stack, directory: Path, **environ: str) -> None:
        self.services = [stack.service(node, **DRAINS, **environ) for node in stack.nodes]
        backends = [Backend(*pair) for pair in zip(stack.nodes, self.services, strict=True)]
        self.haproxy = stack.haproxy_for(backends, directory)
        for section in (WRITER, READER):
            for node in stack.nodes:
                self.haproxy.wait_for_status(section, node, "UP")

    def stop(self) -> None:
        """End HAProxy and the checkers."""
        self.haproxy.process.kill()
        for service in self.services:
            service.stop()

    def landings(self, section: str) -> set[str | None]:
        """Name the nodes that a few new clients land on."""
        return {self.haproxy.lands_on(section) for _ in range(SAMPLES)}


@contextmanager
def draining(stack: Stack, directory: Path, **environ: str) -> Iterator[Draining]:
    """Run checkers and HAProxy of its own for a block."""
    running = Draining(stack, directory, **environ)
    try:
        yield running
    finally:
        running.stop()


def landed_on(session: "pymysql.Connection[pymysql.cursors.Cursor]") -> str:
    """Name the node a session is on."""
    with session.cursor() as cursor:
        cursor.execute("SELECT @@wsrep_node_name")
        row = cursor.fetchone()
        assert row is not None
        return str(row[0])


@pytest.mark.parametrize("section", [WRITER, READER])
def test_a_drained_node_keeps_its_sessions_and_gets_no_new_ones(stack: Stack, tmp_path: Path, section: str) -> None:
    with draining(stack, tmp_path) as running:
        node, service = stack.nodes[0], running.services[0]
        with running.haproxy.session_on(section, node) as held, held.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("INSERT INTO writes (node) VALUES (@@wsrep_node_name)")
            service.disabled_file.touch()
            running.haproxy.wait_for_status(section, node, "NOLB")
            # The writer's section asks writer_state as well, which takes a second check to say so.
            others = {"node2", "node3"}
            wait_for("new clients to land elsewhere", lambda: running.landings(section) <= others)
            cursor.execute("COMMIT")
            cursor.execute("INSERT INTO writes (node) VALUES (@@wsrep_node_name)")
            assert landed_on(held) == node.name
        before = running.landings(section)
        service.disabled_file.unlink()
        running.haproxy.wait_for_status(section, node, "UP")
        if section == WRITER:
            assert running.landings(section) == before


def test_a_planned_drain_loses_no_transaction(stack: Stack, tmp_path: Path) -> None:
    committed: list[str] = []
    failures: list[BaseException] = []
    stop = threading.Event()

    def write() -> None:
        try:
            while not stop.is_set():
                with running.haproxy.connect(WRITER) as session, session.cursor() as cursor:
                    cursor.execute("SET autocommit=0")
                    for _ in range(20):
                        cursor.execute("INSERT INTO writes (node) VALUES (@@wsrep_node_name)")
                        cursor.execute("SELECT @@wsrep_node_name")
                        row = cursor.fetchone()
                        session.commit()
                        committed.append(str(row[0]) if row else "?")
        except BaseException as fault:  # noqa: BLE001 (handed to the test)
            failures.append(fault)

    with draining(stack, tmp_path) as running:
        before = int(stack.nodes[2].sql("SELECT COUNT(*) FROM demo.writes")[0][0])
        writer = threading.Thread(target=write)
        writer.start()
        try:
            wait_for("writes on node1", lambda: "node1" in committed)
            running.services[0].disabled_file.touch()
            wait_for("writes elsewhere only", lambda: len(committed) > 100 and "node1" not in committed[-100:])
        finally:
            stop.set()
            writer.join(30)
            running.services[0].disabled_file.unlink(missing_ok=True)
        assert failures == []
        wait_for(
            "every committed row on the last node",
            lambda: int(stack.nodes[2].sql("SELECT COUNT(*) FROM demo.writes")[0][0]) - before == len(committed),
        )


def test_a_full_node_sends_new_clients_elsewhere_and_keeps_its_sessions(stack: Stack, tmp_path: Path) -> None:
    node = stack.nodes[0]
    # Two more of the same policy, from before: ours is open before the server is full.
    with draining(stack, tmp_path, AVAILABLE_WHEN_FULL="0") as running, ExitStack() as held:
        session = held.enter_context(running.haproxy.session_on(WRITER, node))
        node.sql("SET GLOBAL max_connections=12")
        held.callback(node.sql, "SET GLOBAL max_connections=151")
        while not node.refuses_clients():
            held.enter_context(node.connect_as_client())
        # The limit is for all but an administrator; ours of the writers' port is one of those counted.
        reply = running.services[0].wait_for_verdict(404, "full")
        assert "of max_connections 12; AVAILABLE_WHEN_FULL=0" in reply.body
        assert (stack.services[0].get().status, stack.services[0].get().reason) == (200, "synced")
        running.haproxy.wait_for_status(WRITER, node, "NOLB")
        wait_for("new clients to land elsewhere", lambda: running.landings(WRITER) <= {"node2", "node3"})
        assert landed_on(session) == node.name


def test_readers_stay_on_a_donor_that_keeps_up_and_writers_leave_it(stack: Stack) -> None:
    node = stack.nodes[1]
    node.sql("SET GLOBAL wsrep_desync=ON")
    try:
        stack.haproxy.wait_for_status(WRITER, node, "DOWN")
        assert stack.haproxy.server_status(READER, node) == "UP"
        assert "node2" in {stack.haproxy.lands_on(READER) for _ in range(SAMPLES)}
    finally:
        node.sql("SET GLOBAL wsrep_desync=OFF")


class TestLastResort:
    """Two nodes: while one gets its full state from the other, strictly nobody is available."""

    def test_traffic_flows_to_the_donor_instead_of_nowhere(self, installation: Installation, tmp_path: Path) -> None:
        cluster = Cluster(installation, 2)
        cluster.start()
        donor, joiner = cluster.nodes
        with ExitStack() as exits:
            exits.callback(donor.kill)
            exits.callback(joiner.kill)
            services: list[Service] = []
            for node in cluster.nodes:
                service = Service.of(node, tmp_path, installation.ports.free())
                exits.callback(service.stop)
                services.append(service)
            backends = [Backend(*pair) for pair in zip(cluster.nodes, services, strict=True)]
            haproxy = HAProxy(tmp_path, installation.ports, backends)
            exits.callback(haproxy.process.kill)
            haproxy.wait_until_up()
            for node in cluster.nodes:
                haproxy.wait_for_status(WRITER, node, "UP")
            joiner.stop()
            joiner.forget_position()
            cluster.start_node(joiner)
            with joiner.holding_up_transfer():
                services[0].wait_for_verdict(503, "donor")
                for node in cluster.nodes:
                    haproxy.wait_for_status(WRITER, node, "DOWN")
                assert [haproxy.lands_on(section) for section in (WRITER, READER)] == [donor.name, donor.name]
            joiner.wait_for_state("Synced")
            for node in cluster.nodes:
                haproxy.wait_for_status(WRITER, node, "UP")
            assert haproxy.lands_on(WRITER) == donor.name
