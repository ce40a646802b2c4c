"""/metrics: the state and the counts of the service, in the text format of Prometheus.

This module measures nothing: others keep counts, and a scrape reads them. Names and units follow
prometheus.io/docs/practices/naming. Of what clients send, a dozen paths with parameters become
label values.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import Metric, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector

from app import __version__
from app.http.sources import Sources
from app.verdict.node_state import NOT_A_NUMBER, NodeState
from app.verdict.reason import POLL_FAILURES, Reason

_NODE_VALUES = {
    "wsrep_local_state": "wsrep_local_state: 1 joining, 2 donor, 3 joined, 4 synced, 5 aborting.",
    "wsrep_cluster_size": "wsrep_cluster_size: the number of members in the node's component.",
    "wsrep_local_recv_queue": "wsrep_local_recv_queue: write-sets received but not yet applied.",
    "threads_connected": "Threads_connected: the open sessions on the node.",
    "max_connections": "max_connections: the most sessions that the node allows.",
    "wsrep_flow_control_active": "1 while the node obeys a pause of flow control, else 0.",
    "wsrep_flow_control_status": "1 while this node asks for a pause of flow control, else 0.",
    "wsrep_ready": "1 if wsrep_ready is ON, else 0.",
    "wsrep_desync": "1 if wsrep_desync is ON, else 0.",
    "read_only": "0 if read_only is OFF, else 1.",
}


class Metrics(Collector):
    """The service's metrics."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics. A value that was not read from the node is left out."""
        for name, words, value, *labels in _rows(self._sources):
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = kind(f"clustercheckd_{name}", words, labels=labels)
            for key, number in (value if labels else {"": value}).items():
                if number is not None:
                    # A path may have any other blank.
                    family.add_metric(key.split(" "), number)
            yield family
        monitor = self._sources.monitor
        yield HistogramMetricFamily(
            "clustercheckd_poll_duration_seconds",
            "How long polls took, failed ones included.",
            [
                ("+Inf" if bound == math.inf else str(bound), count)
                for bound, count in monitor.durations.items()
            ],
            monitor.duration_seconds,
        )
        yield from ProcessCollector(registry=None).collect()


def _rows(sources: Sources) -> list[tuple[Any, ...]]:
    """Return each metric: name, description, value.

    Or a table of values by the values of labels, separated by a space, and the labels.
    """
    monitor = sources.monitor
    verdict, node = monitor.verdict(), monitor.result
    changes = monitor.changes
    # A stale poll says nothing about the node now.
    is_stale = monitor.age_seconds > monitor.polling.max_age_seconds
    if is_stale or not isinstance(node, NodeState):
        node = NodeState()
    return [
        *(
            (name, words, _number(getattr(node, name)))
            for name, words in _NODE_VALUES.items()
        ),
        (
            "build_info",
            "The version of clustercheckd that runs.",
            {__version__: 1},
            "version",
        ),
        (
            "server_uptime_seconds",
            "Uptime: for how long the server has run.",
            _number(node.uptime),
        ),
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
            changes[-1].at.timestamp(),
        ),
        (
            "disabled_timestamp_seconds",
            "When the disabled file was last changed, in Unix time; absent if there is none.",
            monitor.switches().disabled_at,
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
            not sources.last_reload.complaints,
        ),
        (
            "reason",
            "1 for the reason of the verdict, 0 for all others.",
            {reason: reason is verdict.reason for reason in Reason},
            "reason",
        ),
        (
            "verdict_changes_total",
            "Changes of the verdict, by the reason of the new one.",
            {reason: changes.counts[reason] for reason in Reason},
            "reason",
        ),
        (
            "polls_total",
            "Polls of the node, by outcome: read, or why the node could not be read.",
            _outcomes("read", monitor.polls),
            "outcome",
        ),
        (
            "logins_total",
            "Logins to the server, by outcome: accepted, or why the login failed.",
            _outcomes("accepted", sources.poller.login_counts),
            "outcome",
        ),
        (
            "connections_closed_total",
            "Connections closed without an answer, by cause; malformed requests got a 400.",
            sources.connections.closed,
            "cause",
        ),
        (
            "health_checks_total",
            "Health checks answered, by path and HTTP status.",
            sources.health_checks,
            "path",
            "status",
        ),
    ]


def _number(value: str | int | None) -> int | None:
    """Return a value of the node; None if it was not read."""
    if isinstance(value, str):
        # MariaDB 12 has more values of read_only than ON.
        return value.upper() not in ("FALSE", "OFF", "")
    return None if value == NOT_A_NUMBER else value


def _outcomes(success: str, counts: Counter[Reason | None]) -> Mapping[str, int]:
    return {
        success: counts[None],
        **{reason: counts[reason] for reason in POLL_FAILURES},
    }
