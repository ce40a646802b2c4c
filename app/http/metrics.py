"""/metrics: the state and the counts of the service, in the text format of Prometheus.

This module measures nothing: others keep counts, and a scrape reads them. Names and units follow
prometheus.io/docs/practices/naming. No label value comes from a client.
"""

import math
import platform
import time
from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client import Metric, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)

from app import __version__
from app.http.sources import Sources
from app.verdict.node_state import NOT_A_NUMBER, NodeState
from app.verdict.reason import POLL_FAILURES, Reason
from app.verdict.rules import Verdict

_NODE_VALUES = {
    "wsrep_local_state": "wsrep_local_state: 1 joining, 2 donor, 3 joined, 4 synced, 5 aborting.",
    "wsrep_cluster_size": "wsrep_cluster_size: the number of members in the node's component.",
    "wsrep_cluster_conf_id": "wsrep_cluster_conf_id: counts the changes of the node's component.",
    "wsrep_local_index": "wsrep_local_index: the index of the node in its component, from 0.",
    "wsrep_local_recv_queue": "wsrep_local_recv_queue: write-sets received but not yet applied.",
    "threads_connected": "Threads_connected: the open sessions on the node.",
    "max_connections": "max_connections: the most sessions that the node allows.",
    "wsrep_flow_control_active": "1 while the node obeys a pause of flow control, else 0.",
    "wsrep_flow_control_status": "1 while this node asks for a pause of flow control, else 0.",
}


class Metrics(ProcessCollector):
    """The service's metrics, and the standard ones of a process."""

    def __init__(self, sources: Sources) -> None:
        super().__init__(registry=None)
        self._sources = sources

    def _boot_time(self) -> float:
        """Return when the host booted, in Unix time.

        Not from /proc/stat, which ProcSubset=pid hides.
        """
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics. A value that was not read from the node is left out."""
        monitor = self._sources.monitor
        verdict, node = monitor.verdict(), monitor.result
        # A stale poll says nothing about the node now.
        is_stale = monitor.age_seconds > monitor.polling.max_age_seconds
        if is_stale or not isinstance(node, NodeState):
            node = NodeState()
        for name, words, value in _gauges(self._sources, verdict, node):
            if value is not None:
                yield GaugeMetricFamily(f"clustercheckd_{name}", words, value)
        if uuid := node.wsrep_cluster_state_uuid:
            yield InfoMetricFamily(
                "clustercheckd_cluster",
                "wsrep_cluster_state_uuid: which cluster's data the node has.",
                {"state_uuid": uuid},
            )
        yield InfoMetricFamily(
            "clustercheckd_build",
            "The versions of clustercheckd and Python.",
            {"version": __version__, "python_version": platform.python_version()},
        )
        yield from _counts(self._sources, verdict)
        yield from super().collect()


def _gauges(
    sources: Sources, verdict: Verdict, node: NodeState
) -> list[tuple[str, str, float | None]]:
    """Return name, description and value of each metric that has no labels."""
    monitor = sources.monitor
    return [
        (
            "available",
            "1 if the node may take traffic under the configured policy, else 0.",
            verdict.available,
        ),
        (
            "draining",
            "1 if the node is unavailable for a planned reason, else 0.",
            verdict.draining,
        ),
        (
            "verdict_changed_timestamp_seconds",
            "When the verdict last changed, in Unix time.",
            monitor.changes[-1].at,
        ),
        (
            "disabled_timestamp_seconds",
            "When the disabled file was last changed, in Unix time; absent if there is none.",
            monitor.switches().disabled_at,
        ),
        *(
            (name, words, _number(getattr(node, name)))
            for name, words in _NODE_VALUES.items()
        ),
        (
            "poll_age_seconds",
            "Time since the latest completed poll began.",
            monitor.age_seconds,
        ),
        (
            "poll_interval_seconds",
            "CLUSTERCHECK_POLL_INTERVAL.",
            monitor.polling.interval_seconds,
        ),
        (
            "deadline_seconds",
            "CLUSTERCHECK_DEADLINE.",
            monitor.polling.deadline_seconds,
        ),
        (
            "sync_wait_seconds",
            "For how long no read in sync has been answered; 0 if the latest was.",
            sources.poller.sync_wait_seconds,
        ),
        (
            "login_refused",
            "1 if the latest login failed for the account or the path to the server, else 0.",
            sources.poller.logins.account_refused,
        ),
        (
            "last_reload_successful",
            "1 if the latest reload took the new settings, 0 if it refused them; 1 after a start.",
            sources.last_reload.successful,
        ),
        (
            "last_reload_timestamp_seconds",
            "When the latest reload, or the start, read the settings, in Unix time.",
            sources.last_reload.at.timestamp(),
        ),
        ("connections", "Open connections of clients.", sources.connections.open),
    ]


def _number(value: str | int | None) -> int | None:
    """Return a value of the node; None if it was not read."""
    if isinstance(value, str):
        return value.upper() in ("TRUE", "ON")
    return None if value == NOT_A_NUMBER else value


def _counts(sources: Sources, verdict: Verdict) -> Iterator[Metric]:
    monitor = sources.monitor
    yield _labelled(
        GaugeMetricFamily,
        "reason",
        "1 for the reason of the verdict, 0 for all others.",
        "reason",
        {reason: reason is verdict.reason for reason in Reason},
    )
    yield _labelled(
        CounterMetricFamily,
        "verdict_changes",
        "Changes of the verdict, by the reason of the new one.",
        "reason",
        {reason: monitor.changes.counts[reason] for reason in Reason},
    )
    yield _outcomes(
        "polls",
        "Polls of the node, by outcome: read, or why the node could not be read.",
        "read",
        monitor.polls,
    )
    yield HistogramMetricFamily(
        "clustercheckd_poll_duration_seconds",
        "How long polls took, failed ones included.",
        [
            ("+Inf" if bound == math.inf else str(bound), count)
            for bound, count in monitor.durations.items()
        ],
        monitor.duration_seconds,
    )
    yield _outcomes(
        "logins",
        "Logins to the server, by outcome: accepted, or why the login failed.",
        "accepted",
        sources.poller.login_counts,
    )
    yield _labelled(
        CounterMetricFamily,
        "connections_closed",
        "Connections closed without an answer, by cause; malformed requests got a 400.",
        "cause",
        sources.connections.closed,
    )
    checks = CounterMetricFamily(
        "clustercheckd_health_checks",
        "Health checks answered, by path and HTTP status.",
        labels=("path", "status"),
    )
    for (path, status), count in sources.health_checks.items():
        checks.add_metric((path, str(status)), count)
    yield checks
    yield CounterMetricFamily(
        "clustercheckd_log_lines_dropped",
        "Log lines dropped because standard error did not accept them.",
        sources.log_lines_dropped(),
    )


def _outcomes(
    name: str, words: str, success: str, counts: Counter[Reason | None]
) -> Metric:
    outcomes = {success: counts[None]} | {
        reason: counts[reason] for reason in POLL_FAILURES
    }
    return _labelled(CounterMetricFamily, name, words, "outcome", outcomes)


def _labelled(
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    words: str,
    label: str,
    values: Mapping[str, float],
) -> Metric:
    family = kind(f"clustercheckd_{name}", words, labels=(label,))
    for key, value in values.items():
        family.add_metric((key,), value)
    return family
