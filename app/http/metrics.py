"""/metrics: the state and the counts of the service, in the text format of Prometheus.

This module measures nothing: the monitor, the guard and the fast path keep counts, and a scrape
reads them. A value that was not read from the node is left out. Names and units follow Prometheus'
conventions (prometheus.io/docs/practices/naming). No label value comes from a client.
"""

import math
import platform
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.registry import Collector

from app import __version__
from app.database.poller import Poller
from app.http.guard import ConnectionRegister
from app.http.health_checks import HealthCheckCounts
from app.http.sources import Reload, Sources
from app.monitor.monitor import Monitor
from app.verdict.node_state import NodeState
from app.verdict.reason import POLL_FAILURES, Reason

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


class _ProcessCollector(ProcessCollector):
    def _boot_time(self) -> float:
        """Return when the host booted, in Unix time.

        Not from /proc/stat, which ProcSubset=pid hides.
        """
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def registry_of(sources: Sources) -> CollectorRegistry:
    """Return a new registry with the service's metrics and the standard ones of a process."""
    registry = CollectorRegistry()
    registry.register(_Metrics(sources))
    _ProcessCollector(registry=registry)
    return registry


@dataclass(frozen=True, eq=False)
class _Metrics(Collector):
    sources: Sources

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, with their values at this moment."""
        sources, monitor = self.sources, self.sources.monitor
        yield from _verdict_metrics(monitor)
        disabled_at = monitor.switches().disabled_at
        if disabled_at is not None:
            yield _gauge(
                "disabled_timestamp_seconds",
                "When the disabled file was last changed, in Unix time; absent if there is none.",
                disabled_at,
            )
        seen = monitor.result
        # A stale poll says nothing about the node now.
        if (
            isinstance(seen, NodeState)
            and monitor.age_seconds <= monitor.polling.max_age_seconds
        ):
            yield from _node_metrics(seen)
        yield from _poll_metrics(monitor)
        yield from _login_metrics(sources.poller)
        yield _gauge(
            "poll_interval_seconds",
            "CLUSTERCHECK_POLL_INTERVAL.",
            sources.settings.clustercheck_poll_interval,
        )
        yield _gauge(
            "deadline_seconds",
            "CLUSTERCHECK_DEADLINE.",
            sources.settings.clustercheck_deadline,
        )
        yield from _reload_metrics(sources.last_reload)
        yield from _client_metrics(sources.health_checks, sources.connections)
        yield CounterMetricFamily(
            "clustercheckd_log_lines_dropped",
            "Log lines dropped because standard error did not accept them.",
            sources.log_lines_dropped(),
        )
        yield InfoMetricFamily(
            "clustercheckd_build",
            "The versions of clustercheckd and Python.",
            {"version": __version__, "python_version": platform.python_version()},
        )


def _reload_metrics(last: Reload) -> Iterator[Metric]:
    yield _gauge(
        "last_reload_successful",
        "1 if the latest reload took the new settings, 0 if it refused them; 1 after a start.",
        last.successful,
    )
    yield _gauge(
        "last_reload_timestamp_seconds",
        "When the latest reload, or the start, read the settings, in Unix time.",
        last.at.timestamp(),
    )


def _client_metrics(
    health_checks: HealthCheckCounts, register: ConnectionRegister
) -> Iterator[Metric]:
    checks = CounterMetricFamily(
        "clustercheckd_health_checks",
        "Health checks answered, by path and HTTP status.",
        labels=("path", "status"),
    )
    for (path, status), count in health_checks.items():
        checks.add_metric((path, str(status)), count)
    yield checks
    yield _gauge("connections", "Open connections of clients.", len(register))
    yield _labelled(
        CounterMetricFamily,
        "connections_closed",
        "Connections closed without an answer, by cause; malformed requests got a 400.",
        "cause",
        register.closed,
    )


def _verdict_metrics(monitor: Monitor) -> Iterator[Metric]:
    verdict = monitor.verdict()
    yield _gauge(
        "available",
        "1 if the node may take traffic under the configured policy, else 0.",
        verdict.available,
    )
    yield _gauge(
        "draining",
        "1 if the node is unavailable for a planned reason, else 0.",
        verdict.draining,
    )
    yield _labelled(
        GaugeMetricFamily,
        "reason",
        "1 for the reason of the verdict, 0 for all others.",
        "reason",
        {reason.value: reason is verdict.reason for reason in Reason},
    )
    yield _gauge(
        "verdict_changed_timestamp_seconds",
        "When the verdict last changed, in Unix time.",
        monitor.changes[-1].at,
    )
    yield _labelled(
        CounterMetricFamily,
        "verdict_changes",
        "Changes of the verdict, by the reason of the new one.",
        "reason",
        {reason.value: monitor.changes_to[reason] for reason in Reason},
    )


def _node_metrics(node: NodeState) -> Iterator[Metric]:
    for name, words in _NODE_VALUES.items():
        value = getattr(node, name)
        if isinstance(value, str):
            value = value.upper() in ("TRUE", "ON")
        if value is not None and value >= 0:
            yield _gauge(name, words, value)
    if node.wsrep_cluster_state_uuid is not None:
        yield InfoMetricFamily(
            "clustercheckd_cluster",
            "wsrep_cluster_state_uuid: which cluster's data the node has.",
            {"state_uuid": node.wsrep_cluster_state_uuid},
        )


def _poll_metrics(monitor: Monitor) -> Iterator[Metric]:
    yield _gauge(
        "poll_age_seconds",
        "Time since the latest completed poll began.",
        monitor.age_seconds,
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


def _login_metrics(poller: Poller) -> Iterator[Metric]:
    yield _outcomes(
        "logins",
        "Logins to the server, by outcome: accepted, or why the login failed.",
        "accepted",
        poller.login_counts,
    )
    yield _gauge(
        "login_refused",
        "1 if the latest login failed because of the account or the path to the server, else 0.",
        poller.logins.account_refused,
    )
    if poller.sync_wait_seconds is not None:
        yield _gauge(
            "sync_wait_seconds",
            "For how long no read in sync has been answered; 0 if the latest was.",
            poller.sync_wait_seconds,
        )


def _outcomes(
    name: str, words: str, success: str, counts: Counter[Reason | None]
) -> Metric:
    """Return the counts of what has ended well, under the word for that, or failed for a reason."""
    outcomes = {success: counts[None]} | {
        reason.value: counts[reason] for reason in POLL_FAILURES
    }
    return _labelled(CounterMetricFamily, name, words, "outcome", outcomes)


def _gauge(name: str, words: str, value: float) -> Metric:
    return GaugeMetricFamily(f"clustercheckd_{name}", words, value)


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
