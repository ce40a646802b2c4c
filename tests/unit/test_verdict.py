"""The decision table: named rows seen on real servers or thought up, and the rules once more in
another form.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.verdict.node_state import (
    NOT_A_NUMBER,
    STATUS_VARIABLES,
    SYSTEM_VARIABLES,
    Cell,
    NodeState,
    PollFailure,
    parse_node_state,
)
from app.verdict.reason import POLL_FAILURES, Reason
from app.verdict.rules import Policy, Switches, decide
from tests import pxc, real_rows

STRICT = Policy(max_age_seconds=1.15)
DONORS = replace(STRICT, available_when_donor=True)
WRITERS = replace(STRICT, available_when_readonly=False)
IN_SYNC = replace(STRICT, max_sync_wait=1.0)
LIMITED = replace(STRICT, max_recv_queue=64)
READERS = replace(DONORS, max_recv_queue=200)
NOT_FULL = replace(STRICT, available_when_full=False)

SYNCED = real_rows.parsed(real_rows.SYNCED)
DONOR = real_rows.parsed(real_rows.DONOR)
DESYNCED = real_rows.parsed(real_rows.DESYNCED)
JOINED = real_rows.parsed(real_rows.JOINED)
NON_PRIMARY = real_rows.parsed(real_rows.NON_PRIMARY)

READ_ONLY_TOO = ("super_read_only", "tx_read_only", "transaction_read_only")

but = partial(replace, SYNCED)
donor_but = partial(replace, DONOR)
joined_but = partial(replace, JOINED)


def cut_off(state: int, cluster_status: str, connected: str = "ON") -> NodeState:
    """Return a node that is not ready."""
    return but(
        wsrep_local_state=state,
        wsrep_cluster_status=cluster_status,
        wsrep_ready="OFF",
        wsrep_connected=connected,
    )


class Row(NamedTuple):
    """What is decided on. An unavailable node is not draining unless the row says so."""

    name: str
    reason: Reason
    result: NodeState | PollFailure | None = SYNCED
    policy: Policy = STRICT
    age_seconds: float = 0.1
    switches: Switches = Switches()
    draining: bool = False
    detail: str = ""


ROWS = [
    Row("synced", Reason.SYNCED, detail="wsrep_local_state is 4 (Synced)"),
    # Seen on live MariaDB clusters.
    Row("minority side of a partition", Reason.NON_PRIMARY, NON_PRIMARY),
    Row("synced, shutting down", Reason.NON_PRIMARY, real_rows.parsed(real_rows.SHUTTING_DOWN)),
    Row("non-primary spelt as in some documents", Reason.NON_PRIMARY, cut_off(4, "Non-Primary")),
    Row("incremental transfer", Reason.JOINING, real_rows.parsed(real_rows.JOINING)),
    Row(
        "end of incremental transfer",
        Reason.JOINING,
        real_rows.parsed(real_rows.JOINING_IN_PRIMARY),
    ),
    Row("just before synced", Reason.JOINING, cut_off(1, "Primary")),
    Row("donor", Reason.DONOR, DONOR, draining=True, detail="AVAILABLE_WHEN_DONOR=0"),
    Row("donor, allowed", Reason.DONOR, DONOR, DONORS, detail="AVAILABLE_WHEN_DONOR=1"),
    Row("desynced", Reason.DESYNCED, DESYNCED, draining=True, detail="AVAILABLE_WHEN_DONOR=0"),
    Row("desynced, allowed", Reason.DONOR, DESYNCED, DONORS),
    Row("at once after an inconsistency vote", Reason.INCONSISTENT, but(wsrep_local_state=5)),
    Row("after an inconsistency vote", Reason.INCONSISTENT, cut_off(5, "Disconnected", "OFF")),
    Row("bad cluster address", Reason.DISCONNECTED, cut_off(0, "Disconnected", "OFF")),
    Row("no galera", Reason.NOT_GALERA, real_rows.parsed(real_rows.NOT_GALERA)),
    Row(
        "no wsrep variable at all", Reason.NOT_GALERA, NodeState(read_only="OFF", version="8.0.36")
    ),
    Row(
        "rejects queries, all else healthy",
        Reason.REJECTS_QUERIES,
        real_rows.parsed(real_rows.REJECTING),
    ),
    Row(
        "rejects queries and kills",
        Reason.REJECTS_QUERIES,
        but(wsrep_reject_queries="ALL_KILL"),
        DONORS,
    ),
    # From documents and server sources.
    Row("wsrep off", Reason.NOT_GALERA, but(wsrep_on="OFF")),
    Row("wsrep_on without a global scope, as on PXC", Reason.SYNCED, but(wsrep_on=None)),
    Row("not connected", Reason.DISCONNECTED, but(wsrep_connected="OFF")),
    Row("not ready", Reason.NOT_READY, but(wsrep_ready="OFF")),
    Row("offline mode", Reason.OFFLINE, but(offline_mode="ON")),
    Row("offline mode off", Reason.SYNCED, but(offline_mode="OFF")),
    Row("no networking", Reason.NO_NETWORKING, but(skip_networking="ON"), DONORS),
    Row("no networking on a donor", Reason.NO_NETWORKING, donor_but(skip_networking="ON")),
    Row(
        "no networking, not primary", Reason.NON_PRIMARY, replace(NON_PRIMARY, skip_networking="ON")
    ),
    Row(
        "no networking in maintenance, which would keep sessions",
        Reason.NO_NETWORKING,
        but(skip_networking="ON", pxc_maint_mode="MAINTENANCE"),
    ),
    Row("pxc maintenance", Reason.MAINTENANCE, but(pxc_maint_mode="MAINTENANCE"), draining=True),
    Row("pxc shutting down", Reason.MAINTENANCE, but(pxc_maint_mode="SHUTDOWN"), draining=True),
    Row("pxc no maintenance", Reason.SYNCED, but(pxc_maint_mode="DISABLED")),
    Row(
        "pxc maintenance, not primary",
        Reason.NON_PRIMARY,
        replace(NON_PRIMARY, pxc_maint_mode="MAINTENANCE"),
    ),
    Row("joined", Reason.JOINED, JOINED, draining=True, detail="AVAILABLE_WHEN_DONOR=0"),
    Row("joined, desynced", Reason.JOINED, joined_but(wsrep_desync="ON"), draining=True),
    Row("joined, donors allowed", Reason.DONOR, JOINED, DONORS),
    Row("joined, not ready", Reason.NOT_READY, joined_but(wsrep_ready="OFF"), DONORS),
    Row(
        "logins rejected",
        Reason.REJECTS_LOGINS,
        but(rejects_logins="error 1135"),
        DONORS,
        detail="error 1135",
    ),
    Row(
        "logins and queries rejected",
        Reason.REJECTS_LOGINS,
        but(rejects_logins="", wsrep_reject_queries="ALL"),
    ),
    Row(
        "logins rejected, not primary",
        Reason.NON_PRIMARY,
        replace(NON_PRIMARY, rejects_logins="error 1135"),
    ),
    Row("back from a hang", Reason.BLOCKED, but(returning=True), DONORS, detail="no read in sync"),
    Row("back from a hang, not primary", Reason.NON_PRIMARY, replace(NON_PRIMARY, returning=True)),
    Row(
        "back from a hang, logins rejected",
        Reason.REJECTS_LOGINS,
        but(returning=True, rejects_logins="error 1135"),
    ),
    Row(
        "back from a hang, rejects queries",
        Reason.BLOCKED,
        but(returning=True, wsrep_reject_queries="ALL"),
    ),
    # What a policy forbids.
    Row("read-only, allowed by default", Reason.SYNCED, but(read_only="ON")),
    *(
        Row(f"read_only {value}", Reason.SYNCED, but(read_only=value), WRITERS)
        for value in ("OFF", "0", "no")
    ),
    *(
        Row(
            f"read_only {value}",
            Reason.READ_ONLY,
            but(read_only=value),
            WRITERS,
            detail="AVAILABLE_WHEN_READONLY=0",
        )
        for value in ("ON", "1", "NO_LOCK", "NO_LOCK_NO_ADMIN", "", None)
    ),
    *(
        Row(f"{name} {value}, {reason}", reason, but(**{name: value}), policy)
        for name in READ_ONLY_TOO
        for value, policy, reason in (
            ("ON", STRICT, Reason.SYNCED),
            ("ON", WRITERS, Reason.READ_ONLY),
            (None, WRITERS, Reason.SYNCED),
            ("?", WRITERS, Reason.READ_ONLY),
        )
    ),
    Row("queue at its limit", Reason.SYNCED, but(wsrep_local_recv_queue=64), LIMITED),
    # Flow control of Percona XtraDB Cluster allows each of three nodes 173 write-sets. With 32
    # clients it was 177.
    Row("queue at flow control's limit", Reason.SYNCED, but(wsrep_local_recv_queue=177), READERS),
    Row(
        "queue over its limit",
        Reason.LAGGING,
        but(wsrep_local_recv_queue=65),
        LIMITED,
        detail="MAX_RECV_QUEUE=64",
    ),
    Row(
        "a donor's queue",
        Reason.LAGGING,
        donor_but(wsrep_local_recv_queue=65),
        replace(DONORS, max_recv_queue=64),
    ),
    Row("queue empty, none allowed", Reason.SYNCED, SYNCED, replace(STRICT, max_recv_queue=0)),
    Row(
        "queue unknown",
        Reason.LAGGING,
        but(wsrep_local_recv_queue=None),
        LIMITED,
        detail="is missing",
    ),
    Row(
        "queue unreadable",
        Reason.LAGGING,
        but(wsrep_local_recv_queue=NOT_A_NUMBER),
        LIMITED,
        detail="is unreadable",
    ),
    Row("queue unknown, no limit", Reason.SYNCED, but(wsrep_local_recv_queue=None)),
    Row("a read in sync waits, allowed by default", Reason.SYNCED, but(sync_wait_seconds=60.0)),
    Row(
        "a read in sync refused, allowed by default",
        Reason.SYNCED,
        but(sync_wait_seconds=60.0, sync_refused=True),
    ),
    Row(
        "a read in sync waits",
        Reason.BLOCKED,
        but(sync_wait_seconds=1.01),
        IN_SYNC,
        detail="MAX_SYNC_WAIT=1 s",
    ),
    Row(
        "a read in sync waits as long as it may", Reason.SYNCED, but(sync_wait_seconds=1.0), IN_SYNC
    ),
    Row(
        "a read in sync refused",
        Reason.BLOCKED,
        but(sync_wait_seconds=0.1, sync_refused=True),
        IN_SYNC,
    ),
    Row("no read in sync yet", Reason.SYNCED, but(sync_wait_seconds=None), IN_SYNC),
    Row(
        "a read in sync of no sensible time",
        Reason.BLOCKED,
        but(sync_wait_seconds=float("nan")),
        IN_SYNC,
    ),
    Row(
        "a donor that stands still",
        Reason.BLOCKED,
        donor_but(sync_wait_seconds=2),
        replace(DONORS, max_sync_wait=1),
    ),
    Row("full, allowed by default", Reason.SYNCED, but(threads_connected=151)),
    Row(
        "full",
        Reason.FULL,
        but(threads_connected=151),
        NOT_FULL,
        draining=True,
        detail="AVAILABLE_WHEN_FULL=0",
    ),
    Row("one below full", Reason.SYNCED, but(threads_connected=150), NOT_FULL),
    *(
        Row(f"{name} {value}", Reason.FULL, but(**{name: value}), NOT_FULL, draining=True)
        for name in ("threads_connected", "max_connections")
        for value in (None, NOT_A_NUMBER)
    ),
    # Impossible values: never a guess in the node's favour.
    Row("state 0 in a primary component", Reason.UNKNOWN_STATE, but(wsrep_local_state=0), DONORS),
    Row("state unreadable", Reason.UNKNOWN_STATE, but(wsrep_local_state=NOT_A_NUMBER), DONORS),
    Row("state 6", Reason.INCONSISTENT, but(wsrep_local_state=6), DONORS),
    *(
        Row(f"{name} {value!r}", reason, but(**{name: value}), DONORS)
        for name, values, reason in (
            ("wsrep_cluster_status", ("Maybe", "", None), Reason.NON_PRIMARY),
            ("wsrep_ready", ("YES", "", None), Reason.NOT_READY),
            ("wsrep_connected", ("YES", "", None), Reason.DISCONNECTED),
            ("wsrep_on", ("", "?", "0", "YES", "OFF?"), Reason.NOT_GALERA),
            ("wsrep_provider", (None, "", "?", "??/?", "NONE", "None"), Reason.NOT_GALERA),
            ("skip_networking", ("", "?"), Reason.NO_NETWORKING),
            ("offline_mode", ("", "?"), Reason.OFFLINE),
            ("wsrep_reject_queries", ("", "?"), Reason.REJECTS_QUERIES),
        )
        for value in values
    ),
    # Whatever the node says.
    *(
        Row(f"not read, {cause}", cause, PollFailure(cause, "why"), DONORS, detail="why")
        for cause in POLL_FAILURES
    ),
    Row("no poll yet", Reason.STARTING, None, DONORS),
    Row("at the age limit", Reason.SYNCED, age_seconds=1.15),
    *(
        Row(f"{age} s old", Reason.STALE, age_seconds=age)
        for age in (1.1500001, 60.0, float("inf"), float("nan"))
    ),
    Row(
        "an old failure",
        Reason.STALE,
        PollFailure(Reason.TIMEOUT, "why"),
        age_seconds=2.0,
        detail="1.15 s ago",
    ),
    Row(
        "disabled",
        Reason.DISABLED,
        switches=Switches("/x", shutting_down=True),
        draining=True,
        detail="/x",
    ),
    Row(
        "disabled before the first poll",
        Reason.DISABLED,
        None,
        switches=Switches("/x"),
        draining=True,
    ),
    Row(
        "shutting down", Reason.SHUTTING_DOWN, switches=Switches(shutting_down=True), draining=True
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_table_row(row: Row) -> None:
    verdict = decide(row.result, row.age_seconds, row.policy, row.switches)
    available = row.reason is Reason.SYNCED or (
        row.reason is Reason.DONOR and row.policy.available_when_donor
    )
    assert (available, row.reason, row.draining) == (
        verdict.available,
        verdict.reason,
        verdict.draining,
    )
    assert row.detail in verdict.detail


def test_every_reason_is_in_the_table() -> None:
    assert set(Reason) == {row.reason for row in ROWS}


DUMPS = pxc.dumps()


@pytest.mark.parametrize("dump", DUMPS, ids=[dump.name for dump in DUMPS])
def test_a_published_dump_of_another_server_gives_the_reason_of_its_situation(
    dump: pxc.Dump,
) -> None:
    verdict = decide(real_rows.parsed(dump.filled_in()), 0.1, STRICT, Switches())
    assert (dump.reason, dump.reason is Reason.SYNCED) == (verdict.reason, verdict.available)


HEALTHY: Mapping[str, Cell] = real_rows.SYNCED | pxc.VARIABLES
cells = st.one_of(
    st.none(),
    st.binary(max_size=80),
    st.text(max_size=80),
    st.integers(),
    st.floats(),
    st.sampled_from(["ON", "OFF", "4", "2", "NONE", b"4", b"ON", "18446744073709551615"]),
    st.sampled_from(
        ["0", "1", "3", "5", "151", "152", "Disconnected", "non-Primary", "ALL", "none"]
    ),
)
names = st.sampled_from([*STATUS_VARIABLES, *SYSTEM_VARIABLES])
any_rows = st.lists(
    st.tuples(names | cells, cells) | st.lists(cells, max_size=4).map(tuple), max_size=40
)
policies = st.builds(
    Policy,
    max_age_seconds=st.just(1.0),
    available_when_donor=st.booleans(),
    available_when_readonly=st.booleans(),
    available_when_full=st.booleans(),
    max_recv_queue=st.none() | st.integers(0, 200),
)


@st.composite
def nearly_healthy_rows(draw: st.DrawFn) -> list[tuple[Cell, ...]]:
    """Draw the rows of a healthy node or a donor, a few of them missing, replaced or sent twice."""
    rows: list[tuple[Cell, ...]] = list(
        {**HEALTHY, "wsrep_local_state": draw(st.sampled_from("4423"))}.items()
    )
    for name in draw(st.lists(st.sampled_from(list(HEALTHY)), max_size=4)):
        fault = draw(st.sampled_from(["missing", "replaced", "twice"]))
        if fault != "twice":
            rows = [row for row in rows if row[0] != name]
        if fault != "missing":
            spellings: list[Cell] = [name, name.upper(), name.encode()]
            rows.append((draw(st.sampled_from(spellings)), draw(cells)))
    return draw(st.permutations(rows))


def no_rule_refuses(node: NodeState, age_seconds: float, policy: Policy) -> bool:
    """Say by the rules in another form than verdict.py has them whether a node may be available."""
    # No text that was parsed holds the character of the word for what is missing.
    seen = {name: getattr(node, name) for name in NodeState.__dataclass_fields__}
    text = {name: "<" if value is None else str(value).upper() for name, value in seen.items()}
    queue, connected, most = (
        node.wsrep_local_recv_queue,
        node.threads_connected,
        node.max_connections,
    )
    off = ("OFF", "0", "NO")
    return bool(
        age_seconds <= policy.max_age_seconds
        and (
            node.wsrep_local_state == 4
            or (node.wsrep_local_state in (2, 3) and policy.available_when_donor)
        )
        and (text["wsrep_cluster_status"], text["wsrep_ready"], text["wsrep_connected"])
        == ("PRIMARY", "ON", "ON")
        and text["wsrep_on"] in ("<", "ON")
        and re.search("[A-Z0-9]", text["wsrep_provider"])
        and text["wsrep_provider"] != "NONE"
        and {text["skip_networking"], text["offline_mode"]} <= {"<", *off}
        and text["wsrep_reject_queries"] in ("<", "NONE")
        and text["pxc_maint_mode"] in ("<", "DISABLED")
        and (
            policy.available_when_readonly
            or (text["read_only"] in off and {text[name] for name in READ_ONLY_TOO} <= {"<", *off})
        )
        and (
            policy.max_recv_queue is None
            or (queue is not None and 0 <= queue <= policy.max_recv_queue)
        )
        and (
            policy.available_when_full
            or (connected is not None and most is not None and 0 <= connected < most)
        )
    )


@settings(max_examples=300, deadline=None)
@given(
    nearly_healthy_rows() | any_rows,
    policies,
    st.sampled_from([0.0, 0.0, 1.0, 1.01, float("nan"), float("inf")]),
)
def test_a_node_is_available_exactly_where_no_rule_refuses(
    rows: list[tuple[Cell, ...]], policy: Policy, age_seconds: float
) -> None:
    state = parse_node_state(rows)
    verdict = decide(state, age_seconds, policy, Switches())
    assert verdict.available == (
        isinstance(state, NodeState) and no_rule_refuses(state, age_seconds, policy)
    )
    assert (verdict.detail.isprintable(), verdict.detail.isascii()) == (True, True)
