"""The decision table: named rows seen on real servers or thought up, and invariants over all combinations."""

import itertools
from dataclasses import replace

import pytest

from app.node_state import NOT_A_NUMBER, NodeState, PollFailure
from app.reason import PLANNED, POLL_FAILURES, Reason
from app.verdict import Policy, Switches, decide
from tests import real_rows

STRICT = Policy(max_age_seconds=1.15)
DONORS = replace(STRICT, available_when_donor=True)
WRITERS = replace(STRICT, available_when_readonly=False)
LIMITED = replace(STRICT, max_recv_queue=64)
NOT_FULL = replace(STRICT, available_when_full=False)
NO_SWITCH = Switches()

SYNCED = real_rows.parsed(real_rows.SYNCED)
DONOR = real_rows.parsed(real_rows.DONOR)
DESYNCED = real_rows.parsed(real_rows.DESYNCED)
JOINED = real_rows.parsed(real_rows.JOINED)


def cut_off(state: int, comment: str, cluster_status: str, *, connected: str = "ON") -> NodeState:
    """Give a node that is not ready."""
    return replace(
        SYNCED,
        wsrep_local_state=state,
        wsrep_local_state_comment=comment,
        wsrep_cluster_status=cluster_status,
        wsrep_ready="OFF",
        wsrep_connected=connected,
    )


def with_switch(name: str, state: str | None) -> NodeState:
    """Return a synced node with one switch in this state."""
    return replace(SYNCED, **{name: state})  # type: ignore[arg-type]


# name, node, policy, reason
ROWS = [
    # Seen on live MariaDB clusters.
    ("synced", SYNCED, STRICT, Reason.SYNCED),
    ("minority side of a partition", real_rows.parsed(real_rows.NON_PRIMARY), STRICT, Reason.NON_PRIMARY),
    ("synced but non-primary, shutting down", real_rows.parsed(real_rows.SHUTTING_DOWN), STRICT, Reason.NON_PRIMARY),
    ("non-primary spelt as in some documents", cut_off(4, "Synced", "Non-Primary"), STRICT, Reason.NON_PRIMARY),
    ("incremental transfer", real_rows.parsed(real_rows.JOINING), STRICT, Reason.JOINING),
    ("end of incremental transfer", real_rows.parsed(real_rows.JOINING_IN_PRIMARY), STRICT, Reason.JOINING),
    ("just before synced", cut_off(1, "Joining", "Primary"), STRICT, Reason.JOINING),
    ("donor", DONOR, STRICT, Reason.DONOR),
    ("donor, allowed", DONOR, DONORS, Reason.DONOR),
    ("desynced", DESYNCED, STRICT, Reason.DESYNCED),
    ("desynced, allowed", DESYNCED, DONORS, Reason.DONOR),
    (
        "first sample after an inconsistency vote",
        replace(SYNCED, wsrep_local_state=5, wsrep_local_state_comment="Inconsistent"),
        STRICT,
        Reason.INCONSISTENT,
    ),
    ("samples after it", cut_off(5, "Inconsistent", "Disconnected", connected="OFF"), STRICT, Reason.INCONSISTENT),
    ("bad cluster address", cut_off(0, "Initialized", "Disconnected", connected="OFF"), STRICT, Reason.DISCONNECTED),
    ("no galera", real_rows.parsed(real_rows.NOT_GALERA), STRICT, Reason.NOT_GALERA),
    ("no wsrep variable at all", NodeState(read_only="OFF", version="8.0.36"), STRICT, Reason.NOT_GALERA),
    (
        "rejecting queries, every status variable healthy",
        real_rows.parsed(real_rows.REJECTING),
        STRICT,
        Reason.REJECTS_QUERIES,
    ),
    ("rejecting queries and killing", replace(SYNCED, wsrep_reject_queries="ALL_KILL"), DONORS, Reason.REJECTS_QUERIES),
    # From documents and server sources.
    ("wsrep switched off", replace(SYNCED, wsrep_on="OFF"), STRICT, Reason.NOT_GALERA),
    ("provider none", replace(SYNCED, wsrep_provider="none"), STRICT, Reason.NOT_GALERA),
    ("wsrep_on without a global scope, as on PXC", replace(SYNCED, wsrep_on=None), STRICT, Reason.SYNCED),
    ("no networking", replace(SYNCED, skip_networking="ON"), DONORS, Reason.NO_NETWORKING),
    ("no networking on a donor", replace(DONOR, skip_networking="ON"), STRICT, Reason.NO_NETWORKING),
    (
        "no networking on a node that is not ready",
        replace(cut_off(0, "Initialized", "non-Primary"), skip_networking="ON"),
        STRICT,
        Reason.NON_PRIMARY,
    ),
    (
        "no networking in maintenance, which would keep sessions",
        replace(SYNCED, skip_networking="ON", pxc_maint_mode="MAINTENANCE"),
        STRICT,
        Reason.NO_NETWORKING,
    ),
    ("not connected", replace(SYNCED, wsrep_connected="OFF"), STRICT, Reason.DISCONNECTED),
    ("not ready", replace(SYNCED, wsrep_ready="OFF"), STRICT, Reason.NOT_READY),
    ("offline mode", replace(SYNCED, offline_mode="ON"), STRICT, Reason.OFFLINE),
    ("offline mode off", replace(SYNCED, offline_mode="OFF"), STRICT, Reason.SYNCED),
    ("pxc maintenance", replace(SYNCED, pxc_maint_mode="MAINTENANCE"), STRICT, Reason.MAINTENANCE),
    ("pxc shutting down", replace(SYNCED, pxc_maint_mode="SHUTDOWN"), STRICT, Reason.MAINTENANCE),
    ("pxc no maintenance", replace(SYNCED, pxc_maint_mode="DISABLED"), STRICT, Reason.SYNCED),
    (
        "partitioned pxc in maintenance",
        replace(cut_off(0, "Initialized", "non-Primary"), pxc_maint_mode="MAINTENANCE"),
        STRICT,
        Reason.NON_PRIMARY,
    ),
    (
        "donor that rejects queries",
        replace(DONOR, wsrep_sst_donor_rejects_queries="ON"),
        DONORS,
        Reason.DONOR_REJECTS_QUERIES,
    ),
    (
        "donor that rejects queries, donors not allowed",
        replace(DONOR, wsrep_sst_donor_rejects_queries="ON"),
        STRICT,
        Reason.DONOR_REJECTS_QUERIES,
    ),
    (
        "desynced by hand, would reject queries as a donor",
        replace(DONOR, wsrep_desync="ON", wsrep_sst_donor_rejects_queries="ON"),
        STRICT,
        Reason.DESYNCED,
    ),
    (
        "joined, rejects queries as a donor",
        replace(JOINED, wsrep_sst_donor_rejects_queries="ON"),
        STRICT,
        Reason.DONOR_REJECTS_QUERIES,
    ),
    (
        "synced, would reject queries as a donor",
        replace(SYNCED, wsrep_sst_donor_rejects_queries="ON"),
        DONORS,
        Reason.SYNCED,
    ),
    ("joined", JOINED, STRICT, Reason.JOINED),
    ("joined, ready, donors allowed", JOINED, DONORS, Reason.DONOR),
    ("joined, not ready, donors allowed", replace(JOINED, wsrep_ready="OFF"), DONORS, Reason.NOT_READY),
    ("read-only, allowed by default", real_rows.parsed(real_rows.READ_ONLY), STRICT, Reason.SYNCED),
    *((f"read_only {value}", replace(SYNCED, read_only=value), WRITERS, Reason.SYNCED) for value in ("OFF", "0", "no")),
    *(
        (f"read_only {value}", replace(SYNCED, read_only=value), WRITERS, Reason.READ_ONLY)
        for value in ("ON", "1", "NO_LOCK", "NO_LOCK_NO_ADMIN", "", None)
    ),
    ("queue at its limit", replace(SYNCED, wsrep_local_recv_queue=64), LIMITED, Reason.SYNCED),
    ("queue over its limit", replace(SYNCED, wsrep_local_recv_queue=65), LIMITED, Reason.LAGGING),
    (
        "donor with a queue over its limit",
        replace(DONOR, wsrep_local_recv_queue=65),
        replace(DONORS, max_recv_queue=64),
        Reason.LAGGING,
    ),
    ("queue unknown, limit set", replace(SYNCED, wsrep_local_recv_queue=None), LIMITED, Reason.LAGGING),
    ("queue unknown, no limit", replace(SYNCED, wsrep_local_recv_queue=None), STRICT, Reason.SYNCED),
    ("full, allowed by default", replace(SYNCED, threads_connected=151), STRICT, Reason.SYNCED),
    ("full", replace(SYNCED, threads_connected=151), NOT_FULL, Reason.FULL),
    ("one below full", replace(SYNCED, threads_connected=150), NOT_FULL, Reason.SYNCED),
    # Impossible values: never a guess in the node's favour.
    ("state 0 in a primary component", replace(SYNCED, wsrep_local_state=0), DONORS, Reason.UNKNOWN_STATE),
    ("state unreadable", replace(SYNCED, wsrep_local_state=NOT_A_NUMBER), DONORS, Reason.UNKNOWN_STATE),
    ("state 6", replace(SYNCED, wsrep_local_state=6), DONORS, Reason.INCONSISTENT),
    ("a cluster status nobody knows", replace(SYNCED, wsrep_cluster_status="Maybe"), DONORS, Reason.NON_PRIMARY),
    ("no cluster status", replace(SYNCED, wsrep_cluster_status=None), DONORS, Reason.NON_PRIMARY),
    ("no wsrep_ready", replace(SYNCED, wsrep_ready=None), DONORS, Reason.NOT_READY),
    ("no wsrep_connected", replace(SYNCED, wsrep_connected=None), DONORS, Reason.DISCONNECTED),
    ("wsrep_ready yes", replace(SYNCED, wsrep_ready="YES"), DONORS, Reason.NOT_READY),
    *(
        (f"wsrep_on {value!r}", replace(SYNCED, wsrep_on=value), DONORS, Reason.NOT_GALERA)
        for value in ("", "?", "0", "YES", "OFF?")
    ),
    *(
        (f"wsrep_provider {value!r}", replace(SYNCED, wsrep_provider=value), DONORS, Reason.NOT_GALERA)
        for value in (None, "", "?", "??/?", "NONE", "None")
    ),
    ("logins rejected", replace(SYNCED, rejects_logins="error 1135"), DONORS, Reason.REJECTS_LOGINS),
    ("logins rejected, and read-only", replace(SYNCED, rejects_logins=""), DONORS, Reason.REJECTS_LOGINS),
    (
        "logins rejected, outside a primary component",
        replace(SYNCED, rejects_logins="error 1135", wsrep_cluster_status="non-Primary"),
        DONORS,
        Reason.NON_PRIMARY,
    ),
    *(
        (f"{name} {state}, {reason}", with_switch(name, state), policy, reason)
        for name in ("super_read_only", "tx_read_only", "transaction_read_only")
        for state, policy, reason in (
            ("ON", STRICT, Reason.SYNCED),
            ("ON", WRITERS, Reason.READ_ONLY),
            (None, WRITERS, Reason.SYNCED),
            ("?", WRITERS, Reason.READ_ONLY),
        )
    ),
    *(
        (
            f"desynced by hand and donors that reject queries, state {node.wsrep_local_state}",
            replace(node, wsrep_desync="ON", wsrep_sst_donor_rejects_queries="ON"),
            DONORS,
            Reason.DONOR,
        )
        for node in (DONOR, JOINED)
    ),
    ("skip_networking unreadable", replace(SYNCED, skip_networking="?"), DONORS, Reason.NO_NETWORKING),
    ("reject_queries empty", replace(SYNCED, wsrep_reject_queries=""), DONORS, Reason.REJECTS_QUERIES),
]


@pytest.mark.parametrize(("node", "policy", "reason"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_table_row(node: NodeState, policy: Policy, reason: Reason) -> None:
    verdict = decide(node, 0.1, policy, NO_SWITCH)
    available = reason is Reason.SYNCED or (reason is Reason.DONOR and policy.available_when_donor)
    assert (available, reason) == (verdict.available, verdict.reason)


@pytest.mark.parametrize("cause", POLL_FAILURES)
def test_every_cause_of_an_unread_node_is_its_own_reason(cause: Reason) -> None:
    verdict = decide(PollFailure(cause, "why"), 0.1, DONORS, NO_SWITCH)
    assert (False, cause.value, "why") == (verdict.available, verdict.reason.value, verdict.detail)


def test_no_poll_is_starting() -> None:
    assert decide(None, 0.0, DONORS, NO_SWITCH).reason is Reason.STARTING


@pytest.mark.parametrize("age", [1.1500001, 60.0, float("inf"), float("nan")])
def test_a_poll_past_its_age_is_stale(age: float) -> None:
    verdict = decide(SYNCED, age, STRICT, NO_SWITCH)
    assert (verdict.available, verdict.reason) == (False, Reason.STALE)


def test_a_poll_at_its_age_still_counts() -> None:
    assert decide(SYNCED, 1.15, STRICT, NO_SWITCH).available


def test_the_disabled_file_goes_before_everything() -> None:
    verdict = decide(SYNCED, 0.1, STRICT, Switches(disabled_file="/x", shutting_down=True))
    assert (verdict.available, verdict.reason, verdict.draining) == (False, Reason.DISABLED, True)
    assert "/x" in verdict.detail


def test_shutting_down_goes_before_the_node() -> None:
    verdict = decide(SYNCED, 0.1, STRICT, Switches(shutting_down=True))
    assert (verdict.available, verdict.reason, verdict.draining) == (False, Reason.SHUTTING_DOWN, True)


def test_draining_is_unavailable_in_a_planned_way() -> None:
    for _, node, policy, _ in ROWS:
        verdict = decide(node, 0.1, policy, NO_SWITCH)
        assert (not verdict.available and verdict.reason in PLANNED) == verdict.draining


def test_a_donor_drains_until_it_is_synced_again_and_a_joiner_or_a_donor_that_rejects_queries_does_not() -> None:
    def drains(node: NodeState) -> bool:
        return decide(node, 0.1, STRICT, NO_SWITCH).draining

    assert drains(DONOR)
    assert drains(JOINED)
    assert not drains(replace(JOINED, wsrep_ready="OFF"))
    for node in (DONOR, JOINED):
        assert not drains(replace(node, wsrep_sst_donor_rejects_queries="ON"))


POLICIES = [
    Policy(1.0, donor, readonly, full, limit)
    for donor, readonly, full in itertools.product([False, True], repeat=3)
    for limit in (None, 10)
]
NODES = [
    NodeState(
        wsrep_local_state=state,
        wsrep_cluster_status=cluster_status,
        wsrep_ready=ready,
        wsrep_connected=connected,
        wsrep_provider="/usr/lib/galera/libgalera_smm.so",
        wsrep_local_recv_queue=queue,
        wsrep_reject_queries=reject,
        read_only=read_only,
        threads_connected=threads,
        max_connections=100,
        wsrep_desync=desync,
    )
    for state, cluster_status, ready, connected, queue, reject, read_only, threads, desync in itertools.product(
        [None, NOT_A_NUMBER, 0, 1, 2, 3, 4, 5, 6, 2**63],
        [None, "Primary", "non-Primary", "Disconnected", "?"],
        [None, "ON", "OFF"],
        ["ON", "OFF"],
        [None, 0, 11],
        ["NONE", "ALL"],
        ["OFF", "ON"],
        [5, 100],
        ["OFF", "ON"],
    )
]


def test_nothing_but_a_ready_member_of_a_primary_component_is_ever_available() -> None:
    loosest = Policy(1.0, available_when_donor=True)
    for node in NODES:
        if decide(node, 0.0, loosest, NO_SWITCH).available:
            assert node.wsrep_local_state in (2, 3, 4)
            assert (node.wsrep_cluster_status, node.wsrep_ready, node.wsrep_connected) == ("Primary", "ON", "ON")
            assert node.wsrep_reject_queries == "NONE"


def test_switching_an_allow_setting_off_or_a_limit_on_never_makes_a_node_available() -> None:
    stricter = [
        (loose, strict)
        for loose, strict in itertools.product(POLICIES, repeat=2)
        if strict.available_when_donor <= loose.available_when_donor
        and strict.available_when_readonly <= loose.available_when_readonly
        and strict.available_when_full <= loose.available_when_full
        and (loose.max_recv_queue is None or strict.max_recv_queue is not None)
    ]
    for node in NODES:
        available = {policy: decide(node, 0.0, policy, NO_SWITCH).available for policy in POLICIES}
        for loose, strict in stricter:
            assert available[loose] or not available[strict]


def test_nothing_stale_unread_or_switched_off_is_ever_available() -> None:
    for policy in POLICIES:
        assert not decide(None, 0.0, policy, NO_SWITCH).available
        for cause in POLL_FAILURES:
            assert not decide(PollFailure(cause, ""), 0.0, policy, NO_SWITCH).available
        for node in NODES[:: len(NODES) // 500]:
            assert not decide(node, 1.1, policy, NO_SWITCH).available
            assert not decide(node, 0.0, policy, Switches(disabled_file="/x")).available
            assert not decide(node, 0.0, policy, Switches(shutting_down=True)).available


def test_every_reason_is_reachable() -> None:
    reached = {decide(row[1], 0.1, row[2], NO_SWITCH).reason for row in ROWS}
    reached |= {decide(PollFailure(cause, ""), 0.1, STRICT, NO_SWITCH).reason for cause in POLL_FAILURES}
    reached |= {
        decide(None, 0.1, STRICT, NO_SWITCH).reason,
        decide(SYNCED, 9.0, STRICT, NO_SWITCH).reason,
        decide(SYNCED, 0.1, STRICT, Switches(disabled_file="/x")).reason,
        decide(SYNCED, 0.1, STRICT, Switches(shutting_down=True)).reason,
    }
    assert set(Reason) == reached


def test_the_setting_that_decided_is_named() -> None:
    named = {
        Reason.DONOR: (DONOR, STRICT, "AVAILABLE_WHEN_DONOR=0"),
        Reason.READ_ONLY: (replace(SYNCED, read_only="ON"), WRITERS, "AVAILABLE_WHEN_READONLY=0"),
        Reason.LAGGING: (SYNCED, replace(STRICT, max_recv_queue=-1), "MAX_RECV_QUEUE=-1"),
        Reason.FULL: (replace(SYNCED, threads_connected=151), NOT_FULL, "AVAILABLE_WHEN_FULL=0"),
    }
    for reason, (node, policy, setting) in named.items():
        verdict = decide(node, 0.1, policy, NO_SWITCH)
        assert verdict.reason is reason
        assert setting in verdict.detail
