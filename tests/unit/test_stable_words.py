"""The words that users match on, in scripts, alerts and dashboards.

From 1.1.0 on, none of them goes or changes.

To add one is fine: add it here too. To remove or rename one needs a new major version, and a line
in the changelog.
"""

import re
from dataclasses import fields

import pytest

from app.commands.parser import COMMANDS
from app.http.api import Status, StatusConnections
from app.http.connections import ConnectionRegister
from app.http.reload_outcome import ReloadOutcome
from app.monitor.changes import Change
from app.settings.settings import TABLE
from app.verdict.node_state import NodeState, PollFailure
from app.verdict.reason import PLANNED, Reason
from app.verdict.rules import Policy
from tests.queries import PAGE, metrics_on_the_page
from tests.unit.manifests import ROOT

REASONS = (ROOT / "docs" / "reference" / "reasons.md").read_text()
LOG_PAGE = PAGE.partition("\n## The log\n")[2].partition("\n## ")[0]


def names(model: type) -> set[str]:
    """Return the names of the fields of a dataclass."""
    return {field.name for field in fields(model)}


def words_for_a_cluster() -> set[str]:
    """Return the words of the page's list."""
    section = REASONS.partition("\n## The cluster\n")[2]
    return set(re.findall(r"^- `([a-z-]+)`: ", section, re.MULTILINE))


STABLE = {
    "reasons": (
        """
            access-denied blocked cluster-too-small connection-lost cut-off desynced disabled disconnected
            disk-full donor error
            full host-blocked inconsistent joined joining lagging maintenance no-networking
            non-primary not-galera not-ready offline read-only rejects-logins rejects-queries
            shutting-down stale stalled starting synced timeout too-many-connections unknown-state
            unreachable
        """,
        set(Reason),
    ),
    "planned reasons": (
        "desynced disabled donor full joined maintenance shutting-down",
        set(PLANNED),
    ),
    "settings": (
        """
            AVAILABLE_WHEN_DONOR AVAILABLE_WHEN_FULL AVAILABLE_WHEN_READONLY CLUSTERCHECK_ALLOW_FROM
            CLUSTERCHECK_ANY_PATH CLUSTERCHECK_DEADLINE CLUSTERCHECK_DISABLED_FILE
            CLUSTERCHECK_DRAIN_SECONDS CLUSTERCHECK_DRAIN_STATUS CLUSTERCHECK_HOST
            CLUSTERCHECK_LOGIN_INTERVAL CLUSTERCHECK_LOG_FORMAT CLUSTERCHECK_LOG_LEVEL
            CLUSTERCHECK_POLL_INTERVAL CLUSTERCHECK_PORT DEFAULTS_EXTRA_FILE MAX_RECV_QUEUE
            MAX_STALL MAX_SYNC_WAIT MIN_CLUSTER_SIZE MYSQL_HOST MYSQL_PASSWORD MYSQL_PASSWORD_FILE MYSQL_PORT MYSQL_SOCKET
            MYSQL_SSL MYSQL_SSL_CA
            MYSQL_SSL_CERT MYSQL_SSL_KEY MYSQL_SSL_VERIFY MYSQL_USERNAME
        """,
        {name.upper() for name in TABLE},
    ),
    # Another test compares the page's table with what /metrics sends.
    "metrics": (
        """
            available build_info connections_closed_total deadline_seconds disabled_timestamp_seconds draining
            health_checks_total last_reload_successful login_refused logins_total max_connections
            poll_duration_seconds polls_total read_only reason server_uptime_seconds
            sync_wait_seconds threads_connected wsrep_desync wsrep_ready
            verdict_changed_timestamp_seconds verdict_changes_total wsrep_cluster_size
            wsrep_flow_control_active wsrep_flow_control_status wsrep_local_recv_queue wsrep_local_state
        """,
        set(metrics_on_the_page()),
    ),
    "causes of a closed connection": (
        "evicted http2 no-request parameter proxy-header refused timed-out tls too-long",
        set(ConnectionRegister().closed),
    ),
    "fields of /status": (
        """
            age_seconds also answered available changes connections detail draining failure
            last_reload login_failure node otherwise pid policy reason settings since version
        """,
        set(Status.model_fields),
    ),
    "fields of connections": (
        "closed latest",
        set(StatusConnections.model_fields),
    ),
    "fields of a reload": (
        "at complaints env_file failure shut_out warnings",
        names(ReloadOutcome),
    ),
    "fields of a change": (
        "at available detail reason",
        names(Change),
    ),
    "fields of a failure": ("detail reason", names(PollFailure)),
    "fields of the policy": (
        """
            available_when_donor available_when_full available_when_readonly
            max_recv_queue max_stall max_sync_wait min_cluster_size
        """,
        names(Policy),
    ),
    "fields of the node": (
        """
            elsewhere max_connections max_user_connections offline_mode pxc_maint_mode read_only rejects_logins
            returning
            skip_networking stall stall_seconds super_read_only sync_refused sync_wait_seconds threads_connected
            transaction_read_only tx_read_only uptime version wsrep_osu_method
            wsrep_cluster_conf_id wsrep_cluster_size wsrep_cluster_state_uuid wsrep_cluster_status
            wsrep_connected wsrep_desync
            wsrep_flow_control_active wsrep_flow_control_status wsrep_last_committed
            wsrep_incoming_addresses wsrep_local_index wsrep_local_recv_queue wsrep_local_state
            wsrep_local_state_comment wsrep_node_name wsrep_on wsrep_provider wsrep_ready
            wsrep_flow_control_recv wsrep_flow_control_sent wsrep_reject_queries
        """,
        names(NodeState),
    ),
    # Another test compares them with what the command says.
    "words for a cluster": (
        "held-up no-logins nobody not-asked same-server split",
        words_for_a_cluster(),
    ),
    "commands": ("check drain reload serve status undrain", set(COMMANDS)),
}


EVENTS = set(
    """
another host
available
client refused
draining
in sync again
log lines dropped
login failed
login works again
malformed request
not in sync
not reloaded
poller failed
polling ended
reloaded
rule failed
setting ignored
started
stopping
unavailable
""".strip().splitlines()
)


@pytest.mark.parametrize("kind", STABLE)
def test_the_words_are_those_of_1_0(kind: str) -> None:
    words, there = STABLE[kind]
    assert set(words.split()) == there


def test_the_log_has_the_events_of_1_0() -> None:
    listed = LOG_PAGE.partition("\n- ")[2]
    assert set(re.findall(r"`([a-z ]+)`", listed)) == EVENTS
    sources = "".join(path.read_text() for path in (ROOT / "app").rglob("*.py"))
    logged = re.findall(
        r'_log\.(?:info|warning|error|exception)\(\s*"([a-z ]+)"', sources
    )
    # Other events are chosen as the program runs.
    chosen = ["available", "draining", "reloaded", "started", "stopping", "unavailable"]
    assert {*logged, *chosen, "client refused", "malformed request"} == EVENTS


def test_the_page_has_each_cause_of_a_closed_connection() -> None:
    _, _, listed = PAGE.partition("- `connections_closed_total`: by `cause`: ")
    causes = re.findall(r"`([a-z0-9-]+)`", listed.partition("\n\n")[0])
    assert sorted(causes) == sorted(ConnectionRegister().closed)
