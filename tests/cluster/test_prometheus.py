"""A real Prometheus beside real nodes: a fault's course as its query API tells it, and the queries that people copy."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.haproxy import EXAMPLE, WRITER
from harness.ports import LOOPBACK
from harness.prometheus import Prometheus
from harness.service import Service
from harness.stack import Stack
from harness.waiting import NotInTimeError, wait_for
from tests.measured import undisturbed
from tests.queries import of_the_dashboard, on_the_page

pytestmark = pytest.mark.long

EXPORTER = "    http-request use-service prometheus-exporter if { path /metrics }\n"


@pytest.fixture
def watched(stack: Stack) -> list[Service]:
    """Give the services of two nodes."""
    return stack.services[:2]


@pytest.fixture
def prometheus(stack: Stack, watched: list[Service], tmp_path: Path) -> Iterator[Prometheus]:
    """Run a Prometheus that has scraped both."""
    running = stack.prometheus_for(watched, tmp_path)
    wait_for("both to be available", lambda: running.query("clustercheckd_available") == of(watched, 1, 1))
    yield running
    running.process.kill()


def of(services: list[Service], *values: float) -> dict[str, float]:
    """Give values by instance."""
    return {f"{LOOPBACK}:{service.port}": value for service, value in zip(services, values, strict=True)}


def test_the_course_of_faults_can_be_read_afterwards(
    stack: Stack, watched: list[Service], prometheus: Prometheus
) -> None:
    node, service = stack.nodes[1], watched[1]
    began = time.time()

    def wait_for_availability(value: int) -> None:
        expected = of(watched, 1, value)
        wait_for("Prometheus to know", lambda: prometheus.query("clustercheckd_available") == expected)

    def course(name: str, of_service: Service = service) -> list[float]:
        return prometheus.course(f'{name}{{instance="{LOOPBACK}:{of_service.port}"}}', began)

    with undisturbed(*watched):
        # As planned.
        node.sql("SET GLOBAL wsrep_desync=ON")
        wait_for_availability(0)
        node.sql("SET GLOBAL wsrep_desync=OFF")
        wait_for_availability(1)
        assert course("clustercheckd_available") == [1, 0, 1]
        assert course("clustercheckd_draining") == [0, 1, 0]
        states = course("clustercheckd_wsrep_local_state")
        # It may be seen on its way through 3.
        assert (states[:2], states[-1]) == ([4, 2], 4)
        assert course("clustercheckd_available", watched[0]) == [1]

        # Not planned, and with nothing left to read.
        began = time.time()
        node.kill()
        wait_for_availability(0)
        reason = 'clustercheckd_reason{reason="unreachable"} == 1'
        wait_for("the reason", lambda: prometheus.query(reason) == of(watched[1:], 1))
        assert prometheus.query("clustercheckd_wsrep_local_state").keys() == of(watched[:1], 4).keys()
        assert course("clustercheckd_draining") == [0]
        pending = 'ALERTS{alertname="GaleraNodeUnavailable",alertstate="pending"}'
        wait_for("the alert", lambda: prometheus.query(pending) == of(watched[1:], 1))
        stack.restart_node(node)
        stack.wait_until_whole()
        wait_for_availability(1)
        assert course("clustercheckd_available") == [1, 0, 1]


def test_every_query_returns_data_while_one_node_is_desynced_and_one_is_dead(stack: Stack, tmp_path: Path) -> None:
    example = EXAMPLE.read_text().replace("    stats enable\n", f"{EXPORTER}    stats enable\n")
    haproxy = stack.haproxy_for(stack.backends, tmp_path, example)
    for backend in stack.backends:
        haproxy.wait_for_status(WRITER, backend.node, "UP")
    running = stack.prometheus_for(stack.services, tmp_path, haproxy.ports["stats"])
    silent = {**of_the_dashboard(), **on_the_page()}

    def all_answered() -> bool:
        # A health check for a path that does not exist, as one of the queries counts.
        stack.services[0].get("/mistyped")
        for question in [question for question, query in silent.items() if running.answers(query)]:
            del silent[question]
        return not silent

    desynced, dead = stack.nodes[1:]
    with haproxy.connect(WRITER):
        desynced.sql("SET GLOBAL wsrep_desync=ON")
        dead.kill()
        seen = 'clustercheckd_reason{reason=~"desynced|unreachable"} == 1'
        wait_for("Prometheus to see both", lambda: running.query(seen) == of(stack.services[1:], 1, 1))
        try:
            wait_for("every query to return data", all_answered, seconds=60)
        except NotInTimeError:
            assert silent == {}
        finally:
            desynced.sql("SET GLOBAL wsrep_desync=OFF")
            running.process.kill()
            haproxy.kill()
