"""A real Prometheus beside real nodes: the queries that people copy."""

import shutil
from functools import partial
from pathlib import Path

import pytest

from harness.haproxy import WRITER
from harness.process import output_of
from harness.prometheus import CONTRIB
from harness.stack import Stack
from harness.waiting import wait_for
from tests.cluster.recording import SCENES, record
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


def test_real_nodes_raise_the_alerts_of_each_scene_and_no_others(
    stack: Stack, tmp_path: Path
) -> None:
    # As python -m tests.cluster.recording has recorded them for those who have no cluster.
    shutil.copy(CONTRIB / "alerts.yml", tmp_path)
    record(tmp_path / "recorded.yml", stack)
    told = output_of("promtool", "test", "rules", "recorded.yml", cwd=tmp_path)
    assert "SUCCESS" in told
    assert (tmp_path / "recorded.yml").read_text().count("- name: ") == len(SCENES)
