"""A real Prometheus beside real nodes: the queries that people copy."""

import pytest

from harness.haproxy import WRITER
from harness.stack import Stack
from harness.waiting import NotInTimeError, wait_for
from tests.queries import of_the_dashboard

pytestmark = pytest.mark.long


def test_every_query_returns_data_while_one_node_is_desynced_and_one_is_dead(
    stack: Stack,
) -> None:
    prometheus = stack.start_prometheus()
    silent = of_the_dashboard()

    def all_answered() -> bool:
        for question in [
            question for question, query in silent.items() if prometheus.answers(query)
        ]:
            del silent[question]
        return not silent

    desynced, dead = stack.nodes[1:]
    with (
        stack.haproxy.connect(WRITER),
        desynced.setting("wsrep_desync", "ON", back="OFF"),
        stack.killed(dead),
    ):
        both = 'count(clustercheckd_reason{reason=~"desynced|unreachable"} == 1) == 2'
        wait_for("Prometheus to see both", lambda: prometheus.answers(both))
        try:
            wait_for("every query to return data", all_answered, seconds=60)
        except NotInTimeError:
            assert silent == {}
        finally:
            prometheus.process.kill()
