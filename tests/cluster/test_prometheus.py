"""A real Prometheus beside real nodes: the queries that people copy."""

from pathlib import Path

import pytest

from harness.haproxy import EXAMPLE, WRITER
from harness.ports import LOOPBACK
from harness.service import Service
from harness.stack import Stack
from harness.waiting import NotInTimeError, wait_for
from tests.queries import of_the_dashboard, on_the_page

pytestmark = pytest.mark.long

EXPORTER = "    http-request use-service prometheus-exporter if { path /metrics }\n"


def of(services: list[Service], *values: float) -> dict[str, float]:
    """Give values by instance."""
    return {f"{LOOPBACK}:{service.port}": value for service, value in zip(services, values, strict=True)}


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
