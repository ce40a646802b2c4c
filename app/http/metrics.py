"""/metrics: the state and the counts of the service, in the text format of Prometheus.

This module measures nothing: others keep counts, and a scrape reads them. Names and units follow
prometheus.io/docs/practices/naming. No label value comes from a client.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client import Metric, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.utils import floatToGoString

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
}

_Row = tuple[str, str, str, Mapping[str, float]]
"""Name, description, labels, and values by the values of the labels; a space between two."""


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
        for name, words, value in _values(self._sources):
            if value is not None:
                yield _family(name, words, "", {"": value})
        for row in _tables(self._sources):
            yield _family(*row)
        yield HistogramMetricFamily(
            "clustercheckd_poll_duration_seconds",
            "How long polls took, failed ones included.",
            [
                (floatToGoString(bound), count)
                for bound, count in monitor.durations.items()
            ],
            monitor.duration_seconds,
        )
        yield from super().collect()


def _family(
    name: str, words: str, labels: str, values: Mapping[str, float]
) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    family = kind(f"clustercheckd_{name}", words, labels=labels.split())
    for key, value in values.items():
        family.add_metric(key.split(), value)
    return family


def _values(sources: Sources) -> Iterator[tuple[str, str, float | None]]:
    """Return name, description and value of each metric that has no labels."""
    monitor = sources.monitor
    verdict, node = monitor.verdict(), monitor.result
    # A stale poll says nothing about the node now.
    is_stale = monitor.age_seconds > monitor.polling.max_age_seconds
    if is_stale or not isinstance(node, NodeState):
        node = NodeState()
    for name, words in _NODE_VALUES.items():
        yield name, words, _number(getattr(node, name))
    yield (
        "available",
        "1 if the node may take traffic under the configured policy, else 0.",
        verdict.available,
    )
    yield (
        "draining",
        "1 if the node is unavailable for a planned reason, else 0.",
        verdict.draining,
    )
    yield (
        "verdict_changed_timestamp_seconds",
        "When the verdict last changed, in Unix time.",
        monitor.changes[-1].at,
    )
    yield (
        "disabled_timestamp_seconds",
        "When the disabled file was last changed, in Unix time; absent if there is none.",
        monitor.switches().disabled_at,
    )
    yield (
        "deadline_seconds",
        "CLUSTERCHECK_DEADLINE.",
        monitor.polling.deadline_seconds,
    )
    yield (
        "sync_wait_seconds",
        "For how long no read in sync has been answered; 0 if the latest was.",
        sources.poller.sync_wait_seconds,
    )
    yield (
        "login_refused",
        "1 if the latest login failed for the account or the path to the server, else 0.",
        sources.poller.logins.account_refused,
    )
    yield (
        "last_reload_successful",
        "1 if the latest reload took the new settings, 0 if it refused them; 1 after a start.",
        sources.last_reload.successful,
    )


def _number(value: str | int | None) -> int | None:
    """Return a value of the node; None if it was not read."""
    if isinstance(value, str):
        return value.upper() in ("TRUE", "ON")
    return None if value == NOT_A_NUMBER else value


def _tables(sources: Sources) -> Iterator[_Row]:
    """Return the metrics that have labels."""
    monitor = sources.monitor
    verdict, changes = monitor.verdict(), monitor.changes.counts
    yield (
        "reason",
        "1 for the reason of the verdict, 0 for all others.",
        "reason",
        {reason: reason is verdict.reason for reason in Reason},
    )
    yield (
        "verdict_changes_total",
        "Changes of the verdict, by the reason of the new one.",
        "reason",
        {reason: changes[reason] for reason in Reason},
    )
    yield (
        "polls_total",
        "Polls of the node, by outcome: read, or why the node could not be read.",
        "outcome",
        _outcomes("read", monitor.polls),
    )
    yield (
        "logins_total",
        "Logins to the server, by outcome: accepted, or why the login failed.",
        "outcome",
        _outcomes("accepted", sources.poller.login_counts),
    )
    yield (
        "connections_closed_total",
        "Connections closed without an answer, by cause; malformed requests got a 400.",
        "cause",
        sources.connections.closed,
    )
    yield (
        "health_checks_total",
        "Health checks answered, by path and HTTP status.",
        "path status",
        sources.health_checks,
    )


def _outcomes(success: str, counts: Counter[Reason | None]) -> Mapping[str, int]:
    return {
        success: counts[None],
        **{reason: counts[reason] for reason in POLL_FAILURES},
    }
