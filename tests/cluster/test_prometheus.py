"""A real Prometheus beside real nodes: the queries that people copy."""

from functools import partial

import pytest

from harness.haproxy import WRITER
from harness.stack import Stack
from harness.waiting import wait_for
from tests.queries import of_the_dashboard

pytestmark = pytest.mark.long


def test_every_query_returns_data_while_one_node_is_desynced_and_one_is_dead(
    stack: Stack,
) -> None:
    prometheus = stack.start_prometheus()
    desynced, dead = stack.nodes[1:]
    with (
        stack.haproxy.connect(WRITER),
        desynced.setting("wsrep_desync", "ON", back="OFF"),
        stack.killed(dead),
    ):
        both = 'count(clustercheckd_reason{reason=~"desynced|unreachable"} == 1) == 2'
        wait_for("Prometheus to see both", lambda: prometheus.answers(both))
        for panel, query in of_the_dashboard().items():
            wait_for(f"data of {panel}", partial(prometheus.answers, query), seconds=60)
    prometheus.process.kill()
