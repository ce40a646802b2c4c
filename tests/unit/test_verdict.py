"""The decision table: named rows, their order, and whatever else a server may send."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.database.rows import Cell
from app.verdict.node_state import NOT_A_NUMBER, NodeState, PollFailure
from app.verdict.reason import PLANNED, POLL_FAILURES, Reason
from app.verdict.rules import Policy, Switches, decide, status_of, verdicts
from tests import pxc, real_rows

MAX_AGE_SECONDS = 1.15
STRICT = Policy()
DONORS = replace(STRICT, available_when_donor=True)
WRITERS = replace(STRICT, available_when_readonly=False)
IN_SYNC = replace(STRICT, max_sync_wait=1.0)
ALONE = replace(STRICT, max_stall=0.0)
NAN = float("nan")
LIMITED = replace(STRICT, max_recv_queue=64)
THREE = replace(STRICT, min_cluster_size=3)
NOT_FULL = replace(STRICT, available_when_full=False)

SYNCED = real_rows.parsed(real_rows.SYNCED)
DONOR = real_rows.parsed(real_rows.DONOR)
DESYNCED = real_rows.parsed(real_rows.DESYNCED)

but = partial(replace, SYNCED)


class Row(NamedTuple):
    """What is decided on."""

    name: str
    reason: str
    result: NodeState | PollFailure | None = SYNCED
    policy: Policy = STRICT
    age_seconds: float = 0.1
    switches: Switches = Switches()
    detail: str = ""


ROWS = [
    Row("synced", "synced", detail="wsrep_local_state is 4 (Synced)"),
    Row(
        "end of incremental transfer",
        "joining",
        real_rows.parsed(real_rows.JOINING_IN_PRIMARY),
    ),
    Row("donor", "donor", DONOR, detail="AVAILABLE_WHEN_DONOR=0"),
    Row("donor, allowed", "donor", DONOR, DONORS, detail="AVAILABLE_WHEN_DONOR=1"),
    Row("desynced", "desynced", DESYNCED, detail="AVAILABLE_WHEN_DONOR=0"),
    Row("desynced, allowed", "donor", DESYNCED, DONORS),
    Row("pxc maintenance", "maintenance", but(pxc_maint_mode="MAINTENANCE")),
    Row("ordinary accounts kept out", "maintenance", but(max_user_connections="-1")),
    Row(
        "joined",
        "joined",
        real_rows.parsed(real_rows.JOINED),
        detail="AVAILABLE_WHEN_DONOR=0",
    ),
    Row(
        "logins rejected",
        "rejects-logins",
        but(rejects_logins="error 1135"),
        DONORS,
        detail="error 1135",
    ),
    Row("alone, allowed by default", "synced", but(wsrep_cluster_size=1)),
    *(
        Row(
            f"{word} members",
            "cluster-too-small",
            but(wsrep_cluster_size=size),
            THREE,
            detail=f"wsrep_cluster_size is {word}; MIN_CLUSTER_SIZE=3",
        )
        for size, word in (
            (2, "2"),
            (0, "0"),
            (None, "missing"),
            (NOT_A_NUMBER, "unreadable"),
        )
    ),
    Row(
        "back from a hang",
        "blocked",
        but(returning=True),
        DONORS,
        detail="no read in sync",
    ),
    # What a policy forbids.
    Row("read-only, allowed by default", "synced", but(read_only="ON")),
    *(
        Row(
            f"read_only {value}",
            "read-only",
            but(read_only=value),
            WRITERS,
            detail=f"read_only is {value or 'missing'}; AVAILABLE_WHEN_READONLY=0",
        )
        for value in ("ON", "NO_LOCK", None)
    ),
    *(
        Row(name, "read-only", but(**{name: "ON"}), WRITERS, detail=f"{name} is ON")
        for name in ("super_read_only", "tx_read_only", "transaction_read_only")
    ),
    Row(
        "queue over its limit",
        "lagging",
        but(wsrep_local_recv_queue=65),
        LIMITED,
        detail="MAX_RECV_QUEUE=64",
    ),
    *(
        Row(
            f"queue {word}",
            "lagging",
            but(wsrep_local_recv_queue=queue),
            LIMITED,
            detail=word,
        )
        for queue, word in ((None, "missing"), (NOT_A_NUMBER, "unreadable"))
    ),
    Row(
        "a read in sync waits and is refused, allowed by default",
        "synced",
        but(sync_wait_seconds=60.0, sync_refused=True),
    ),
    Row(
        "a read in sync waits",
        "blocked",
        but(sync_wait_seconds=1.01),
        IN_SYNC,
        detail="MAX_SYNC_WAIT=1 s",
    ),
    Row(
        "a read in sync waits as long as it may",
        "synced",
        but(sync_wait_seconds=1.0),
        IN_SYNC,
    ),
    Row(
        "a read in sync refused",
        "blocked",
        but(sync_wait_seconds=0.1, sync_refused=True),
        IN_SYNC,
    ),
    Row("no read in sync yet", "synced", SYNCED, replace(STRICT, max_sync_wait=0.0)),
    Row(
        "a read in sync of no sensible time",
        "blocked",
        but(sync_wait_seconds=NAN),
        IN_SYNC,
    ),
    *(
        Row(
            f"{cause}, alone",
            cause,
            but(stall=cause, stall_seconds=2.1),
            detail="MAX_STALL=2 s",
        )
        for cause in ("cut-off", "disk-full", "stalled")
    ),
    *(
        Row(name, "synced", but(stall=cause, stall_seconds=seconds), policy)
        for name, cause, seconds, policy in (
            ("stands still alone for as long as it may", "stalled", 2.0, STRICT),
            ("stands still alone, allowed", "cut-off", 99.0, ALONE),
            ("stands still alone, nobody knows for how long", "stalled", NAN, STRICT),
            ("waits with its group", "group", 99.0, STRICT),
            ("waits, of no known cause", "maybe", 99.0, STRICT),
        )
    ),
    Row(
        "a donor that stands still, donors allowed",
        "stalled",
        replace(DONOR, stall="stalled", stall_seconds=3.0),
        DONORS,
    ),
    Row("full, allowed by default", "synced", but(threads_connected=151)),
    Row(
        "full",
        "full",
        but(threads_connected=151),
        NOT_FULL,
        detail="AVAILABLE_WHEN_FULL=0",
    ),
    *(
        Row(f"{name} {value}", "full", but(**{name: value}), NOT_FULL)
        for name in ("threads_connected", "max_connections")
        for value in (None, NOT_A_NUMBER)
    ),
    # One wrong value, impossible ones among them: never a guess in the node's favour.
    *(
        Row(f"{name} {value!r}", reason, but(**{name: value}), DONORS)
        for name, values, reason in (
            ("wsrep_local_state", (None,), "not-galera"),
            ("wsrep_local_state", (0, NOT_A_NUMBER), "unknown-state"),
            ("wsrep_local_state", (5, 6), "inconsistent"),
            ("wsrep_cluster_status", ("Maybe", None), "non-primary"),
            ("wsrep_cluster_status", ("Disconnected",), "disconnected"),
            ("wsrep_ready", ("OFF", None), "not-ready"),
            ("wsrep_connected", ("OFF", None), "disconnected"),
            ("wsrep_on", ("OFF", ""), "not-galera"),
            ("wsrep_provider", (None, "", "??/?", "None"), "not-galera"),
            ("skip_networking", ("ON", ""), "no-networking"),
            ("offline_mode", ("ON", ""), "offline"),
            ("wsrep_reject_queries", ("ALL", ""), "rejects-queries"),
        )
        for value in values
    ),
    # Whatever the node says.
    *(
        Row(
            f"not read, {cause}", cause, PollFailure(cause, "why"), DONORS, detail="why"
        )
        for cause in POLL_FAILURES
    ),
    Row("no poll yet", "starting", None, DONORS),
    Row("at the age limit", "synced", age_seconds=1.15),
    *(
        Row(
            f"{age} s old",
            "stale",
            PollFailure(Reason.TIMEOUT, "why"),
            age_seconds=age,
        )
        for age in (1.1500001, NAN)
    ),
    Row(
        "disabled before the first poll, and shutting down",
        "disabled",
        None,
        switches=Switches("/x", shutting_down=True),
        detail="/x",
    ),
    Row("shutting down", "shutting-down", switches=Switches(shutting_down=True)),
]


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_table_row(row: Row) -> None:
    verdict = decide(
        row.result, row.age_seconds, row.policy, row.switches, MAX_AGE_SECONDS
    )
    available = row.reason == "synced" or (
        row.reason == "donor" and row.policy.available_when_donor
    )
    draining = row.reason in PLANNED and not available
    assert (verdict.available, verdict.reason, verdict.draining) == (
        available,
        row.reason,
        draining,
    )
    assert row.detail in verdict.detail
    assert status_of(verdict, 404) == (200 if available else 404 if draining else 503)
    switched_by_hand = row.reason in ("disabled", "shutting-down")
    assert row.switches.any_on == switched_by_hand


def test_every_reason_is_in_the_table() -> None:
    assert set(Reason) == {row.reason for row in ROWS}


BROKEN = but(
    wsrep_local_state=None,
    wsrep_cluster_status="Disconnected",
    wsrep_connected="OFF",
    wsrep_ready="OFF",
    wsrep_cluster_size=1,
    rejects_logins="error 1135",
    returning=True,
    wsrep_reject_queries="ALL",
    offline_mode="ON",
    skip_networking="ON",
    pxc_maint_mode="MAINTENANCE",
    max_user_connections="-1",
    wsrep_desync="ON",
    read_only="ON",
    stall=Reason.CUT_OFF,
    stall_seconds=9.0,
    wsrep_local_recv_queue=99,
    sync_refused=True,
    threads_connected=99,
    max_connections=99,
)
REPAIRS: list[dict[str, Any]] = [
    *({"wsrep_local_state": state} for state in (5, 1, 2)),
    {"wsrep_cluster_status": "non-Primary", "wsrep_connected": "ON"},
    {"wsrep_cluster_status": "Primary"},
    {"wsrep_ready": "ON"},
    {"wsrep_cluster_size": 3},
    {"rejects_logins": None},
    {"returning": False},
    {"wsrep_reject_queries": "NONE"},
    {"offline_mode": "OFF"},
    {"skip_networking": "OFF"},
    {"pxc_maint_mode": "DISABLED", "max_user_connections": "0"},
    {"wsrep_desync": "OFF"},
    *({"wsrep_local_state": state} for state in (3, 0, 4)),
    {"read_only": "OFF"},
    *({"stall": why} for why in (Reason.DISK_FULL, Reason.STALLED, None)),
    {"wsrep_local_recv_queue": 0},
    {"sync_refused": False},
    {"threads_connected": 1},
]


IN_ORDER = """
    not-galera inconsistent joining disconnected non-primary not-ready cluster-too-small
    rejects-logins blocked rejects-queries offline no-networking maintenance desynced donor joined
    unknown-state read-only cut-off disk-full stalled lagging blocked full donor synced
"""


def test_the_rules_apply_in_their_order() -> None:
    policy = Policy(False, False, False, 3, 64, 2.0, 1.0)  # noqa: FBT003 (the fields' order)
    failure = PollFailure(Reason.TIMEOUT, "seen")
    given = [
        decide(BROKEN, 9.0, policy, Switches("/x", shutting_down=True), 1.0).reason,
        decide(None, 9.0, policy, Switches(shutting_down=True), 1.0).reason,
        decide(None, 9.0, policy, Switches(), 1.0).reason,
        decide(failure, 9.0, policy, Switches(), 1.0).reason,
        decide(failure, 0.0, policy, Switches(), 1.0).reason,
    ]
    assert given == ["disabled", "shutting-down", "starting", "stale", "timeout"]
    node, given = BROKEN, []
    for repair in REPAIRS:
        given.append(decide(node, 0.0, policy, Switches()).reason)
        node = replace(node, **repair)
    donor = decide(replace(node, wsrep_local_state=2), 0.0, DONORS, Switches())
    given += [donor.reason, decide(node, 0.0, policy, Switches()).reason]
    assert given == IN_ORDER.split()


def test_all_that_speaks_against_a_node_is_told() -> None:
    # Of what follows from not being a member, the first alone.
    policy = Policy(False, False, False, 3, 64, 2.0, 1.0)  # noqa: FBT003 (the fields' order)
    drained = Switches("/x")
    node = replace(BROKEN, wsrep_local_state=2)
    *against, last = verdicts(node, 0.0, policy, drained)
    assert not any(one.available for one in against)
    assert last.available
    told = " ".join(one.reason for one in against)
    assert told == (
        "disabled disconnected cluster-too-small rejects-logins blocked rejects-queries offline"
        " no-networking maintenance maintenance desynced read-only cut-off lagging blocked full"
    )
    assert [one.reason for one in verdicts(None, 9.0, policy, drained)] == [
        "disabled",
        "starting",
    ]


DUMPS = pxc.dumps()


@pytest.mark.parametrize("dump", DUMPS, ids=[dump.name for dump in DUMPS])
def test_a_published_dump_of_another_server_gives_the_reason_of_its_situation(
    dump: pxc.Dump,
) -> None:
    verdict = decide(real_rows.parsed(dump.filled_in()), 0.1, STRICT, Switches())
    assert (dump.reason, dump.reason is Reason.SYNCED) == (
        verdict.reason,
        verdict.available,
    )


HEALTHY: dict[str, Cell] = {**real_rows.SYNCED, **pxc.VARIABLES}
cells = st.one_of(
    st.none(),
    st.binary(max_size=80),
    st.text(max_size=80),
    st.integers(),
    st.floats(),
    st.sampled_from(["on", "OFF", "0", "1", "2", "3", b"4", b"NONE"]),
)
# Each of these has one value with which a node may be available.
DECISIVE = """
    wsrep_local_state wsrep_cluster_status wsrep_ready wsrep_connected wsrep_on
    wsrep_reject_queries offline_mode skip_networking pxc_maint_mode
    read_only super_read_only tx_read_only transaction_read_only
"""


def decisive_words(node: NodeState) -> list[str]:
    """Return the values that decide."""
    return [str(getattr(node, name)).upper() for name in DECISIVE.split()]


@given(st.dictionaries(st.sampled_from(DECISIVE.split()), cells, max_size=4))
def test_whatever_else_a_server_sends_takes_the_node_out_with_words_that_can_be_shown(
    sent: dict[str, Cell],
) -> None:
    node = real_rows.parsed(HEALTHY | sent)
    verdict = decide(node, 0.1, WRITERS, Switches())
    healthy = decisive_words(real_rows.parsed(HEALTHY))
    assert verdict.available is (decisive_words(node) == healthy)
    assert (verdict.detail.isprintable(), verdict.detail.isascii()) == (True, True)
