"""Whether a node stands still alone: each situation as one node shows it, from poll to poll."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from pymysql.err import MySQLError

from app.database.session import SHOW_COUNTERS, counters_of
from app.database.surroundings import lost_peers
from app.verdict.alone import (
    GROUP,
    IS_CUT,
    IS_FULL,
    PENDING,
    WRITTEN,
    Look,
    Stand,
)
from app.verdict.node_state import NOT_A_NUMBER
from app.verdict.reason import Reason
from app.verdict.rules import Policy
from bench.stall import svg
from tests.unit.manifests import ROOT

POLL_SECONDS, LOGIN_SECONDS = 0.25, 2.0
BEFORE_SECONDS, FAULT_SECONDS = 6.0, 8.0
WITHIN_SECONDS = 3.0
LIMIT_SECONDS = Policy().max_stall


@dataclass(frozen=True)
class Seen:
    """What a node shows from when the fault begins; as it stands here, one that keeps up.

    applies, queue, reads_in_sync: of the group's write-sets. sent, received: the pauses, from
    paused_at on, in seconds. written: rows a second. pending: in which of four looks a read is
    pending. counts: whether the server shows its counters. is_cut, is_full: what its host shows.
    """

    applies: bool = True
    queue: int = 0
    reads_in_sync: bool = True
    sent: int = 0
    received: int = 0
    paused_at: float = 0.1
    written: float = 0.0
    pending: tuple[int, ...] = (0, 0, 0, 0)
    counts: bool = True
    is_cut: bool = False
    is_full: bool = False


KEEPS_UP = Seen()
CUT = replace(KEEPS_UP, applies=False, reads_in_sync=False)
STANDS = replace(CUT, queue=29)
LOCKED = replace(STANDS, sent=1, received=1)
"""Alone: its queue has grown until it has paused its group."""


def looks(seen: Seen, stand: list[Stand]) -> Iterator[Look]:
    """Yield what the polls see, before the fault and in it. stand: what they have said, last."""
    committed, written, in_sync_at, waits_since = 1000.0, 1000.0, 0.0, 0.0
    for step in range(int((BEFORE_SECONDS + FAULT_SECONDS) / POLL_SECONDS)):
        at = step * POLL_SECONDS
        now = seen if at > BEFORE_SECONDS else KEEPS_UP
        committed += 20 * POLL_SECONDS if now.applies else 0
        written += now.written * POLL_SECONDS
        if at >= in_sync_at + LOGIN_SECONDS and now.reads_in_sync:
            in_sync_at = at
        waits_since = waits_since or (
            0.0 if now.reads_in_sync or at < in_sync_at + LOGIN_SECONDS else at
        )
        counted = {WRITTEN: int(written), PENDING: now.pending[step % 4]}
        around = {IS_CUT: now.is_cut, IS_FULL: now.is_full}
        is_paused = at > BEFORE_SECONDS + now.paused_at
        yield Look(
            at,
            int(committed),
            now.queue,
            # Of which the latest was one of its own.
            5 + now.sent * is_paused,
            8 + now.received * is_paused,
            at - waits_since if waits_since else 0.0,
            in_sync_at,
            (counted if now.counts and stand[-1].stands else {})
            | (around if stand[-1].waits else {}),
        )


def causes(seen: Seen) -> list[tuple[float, str]]:
    """Return what the rule says, and for how long the fault lasts then."""
    stands, said = [Stand()], []
    for look in looks(seen, stands):
        stands.append(stands[-1].after(look))
        cause, seconds = stands[-1].cause
        if cause == GROUP or (cause and seconds > LIMIT_SECONDS):
            said.append((look.at - BEFORE_SECONDS, cause))
    return said


ALONE = {
    "link down": (Reason.CUT_OFF, replace(CUT, is_cut=True)),
    "full disk": (Reason.DISK_FULL, replace(LOCKED, is_full=True)),
    "full disk, the only writer": (Reason.DISK_FULL, replace(CUT, is_full=True)),
    "table lock, mariadb-dump, semi-sync": (Reason.STALLED, LOCKED),
    "table lock, few writes": (Reason.STALLED, replace(LOCKED, paused_at=2.5)),
    "table lock, and it has paused more than once": (
        Reason.STALLED,
        replace(LOCKED, sent=2, received=2),
    ),
    "table lock, beside reads of cold pages": (
        Reason.STALLED,
        replace(LOCKED, pending=(1, 0, 0, 0)),
    ),
    "no read in sync": (Reason.STALLED, replace(LOCKED, reads_in_sync=True)),
}

TOGETHER = {
    "lags, and applies": (None, replace(KEEPS_UP, queue=300)),
    "nobody writes, or another member has paused all": (
        None,
        replace(KEEPS_UP, applies=False, received=1),
    ),
    "kill -9 of another member": (GROUP, CUT),
    "DDL, semi-sync on all, clients that wait": (GROUP, replace(STANDS, queue=2)),
    "the same, all write to another member": (
        GROUP,
        replace(STANDS, sent=1, received=2),
    ),
    "a large write-set, an UPDATE without a key, or rows of new clients": (
        GROUP,
        replace(LOCKED, written=3),
    ),
    "DELETE by key, of cold pages on a slow disk": (
        GROUP,
        replace(LOCKED, pending=(1, 1, 1, 0)),
    ),
    "no connection works, and reads are answered": (
        None,
        replace(KEEPS_UP, is_cut=True),
    ),
    "a server that does not show its counters": (GROUP, replace(LOCKED, counts=False)),
    # Impossible ones.
    "no sensible queue": (GROUP, replace(LOCKED, queue=-1)),
    "counters of pauses that were reset": (
        GROUP,
        replace(STANDS, sent=-5, received=-8),
    ),
}


@pytest.mark.parametrize("name", ALONE)
def test_a_node_that_stands_still_alone_is_out_in_time_with_its_cause(
    name: str,
) -> None:
    cause, seen = ALONE[name]
    said = [(at, word) for at, word in causes(seen) if word != GROUP]
    assert {word for _, word in said} == {cause}
    assert LIMIT_SECONDS < said[0][0] <= WITHIN_SECONDS
    # In one change, and until its end.
    steps = FAULT_SECONDS / POLL_SECONDS - said[0][0] / POLL_SECONDS
    assert len(said) == steps


@pytest.mark.parametrize("name", TOGETHER)
def test_a_node_that_waits_with_its_group_stays(name: str) -> None:
    cause, seen = TOGETHER[name]
    assert {word for _, word in causes(seen)} - {None} == {cause} - {None}


def stand_after(*given: Look) -> Stand:
    """Return what these say, a second apart, after one that keeps up."""
    stand = Stand().after(Look(0.0, 7))
    for at, look in enumerate(given, 1):
        stand = stand.after(replace(look, at=at))
    return stand


COUNTED = {WRITTEN: 3, PENDING: 0}


def test_a_node_that_stands_as_the_service_starts_stays() -> None:
    # All pauses since its server started have been its own.
    locked = Look(0.0, 7, 29, 5, 5, seen=COUNTED)
    stand = Stand().after(locked)
    for at in range(1, 9):
        stand = stand.after(replace(locked, at=at))
    assert stand.cause[0] == GROUP


def test_a_server_without_wsrep_last_committed_stays() -> None:
    for committed in (0, -1):
        locked = Look(committed=committed, queue=29, sent=1, received=1, seen=COUNTED)
        assert stand_after(*[locked] * 9).cause == (None, 0.0)


def test_a_pause_between_the_last_polls_that_saw_it_apply_counts_until_it_applies() -> (
    None
):
    locked = Look(committed=8, queue=29, sent=1, received=1, seen=COUNTED)
    out = stand_after(*[locked] * 4)
    assert out.cause == (Reason.STALLED, 3.0)
    assert out.after(replace(locked, at=5.0, committed=9)).cause == (None, 0.0)


@pytest.mark.parametrize(
    ("shown", "reason", "longest"),
    [(IS_CUT, Reason.CUT_OFF, 10), (IS_FULL, Reason.DISK_FULL, 60)],
)
@pytest.mark.parametrize("queue", [0, 29])
def test_a_node_is_out_until_it_is_in_touch_again_not_until_its_host_is_well(
    shown: str, reason: Reason, longest: int, queue: int
) -> None:
    # Its packets flow, or there is room, before its group or its server knows.
    waits = Look(committed=8, queue=queue, wait_seconds=1.0)
    out = stand_after(waits, replace(waits, seen={shown: 1}), waits)
    well = replace(waits, seen={shown: 0})
    assert out.after(replace(well, at=4.0)).cause == (reason, 3.0)
    # What its group had ordered before is applied, whoever excludes it then.
    applies = out.after(replace(well, at=5.0, committed=9))
    assert applies.cause[0] == (reason if shown == IS_CUT else GROUP)
    # As its host was seen before that.
    in_touch = out.after(replace(waits, at=5.0, in_sync_at=4.5, seen={shown: 1}))
    assert in_touch.after(replace(well, at=6.0)).cause[0] == GROUP
    # A read that began before the cut was last seen does not make it young either.
    longer = out.after(replace(waits, at=5.0, seen={shown: 1}))
    early = longer.after(replace(well, at=6.0, in_sync_at=2.0))
    assert early.cause == (reason, 5.0 if shown == IS_CUT else 4.0)
    # A network, or a disk, that failed for a moment while all wait for DDL.
    assert out.after(replace(well, at=1.0 + longest)).cause[0] == reason
    assert out.after(replace(well, at=1.1 + longest)).cause[0] == GROUP


def test_a_node_that_is_primary_again_ends_a_cut_and_no_lack_of_room() -> None:
    waits = Look(committed=8, wait_seconds=1.0, view=3)
    shown = replace(waits, seen={IS_CUT: 1, IS_FULL: 1})
    out = stand_after(waits, shown, shown)
    # A view that was ordered before the cut is seen late, and applies.
    late = out.after(replace(shown, at=4.0, view=4, committed=9))
    assert late.cause == (Reason.CUT_OFF, 3.0)
    alone = late.after(replace(shown, at=5.0, view=NOT_A_NUMBER, committed=9))
    assert alone.cause == (Reason.CUT_OFF, 4.0)
    back = alone.after(replace(shown, at=6.0, view=5, committed=9))
    assert back.cause[0] == Reason.DISK_FULL
    # A cut that goes on shows again.
    assert back.after(replace(shown, at=7.0, view=5)).cause[0] == Reason.CUT_OFF


def test_the_counters_are_asked_for_only_while_write_sets_wait() -> None:
    for queue, expected in ((0, False), (1, True)):
        assert stand_after(*[Look(committed=7, queue=queue)] * 3).stands is expected


SHOWN: tuple[tuple[bytes, bytes], ...] = (
    (b"Handler_delete", b"1"),
    (b"HANDLER_UPDATE", b"2"),
    (b"Handler_write", b"3"),
    (b"Innodb_data_pending_reads", b"4"),
)


def test_counters_are_summed_by_their_kind() -> None:
    assert counters_of([SHOWN]) == {WRITTEN: 6, PENDING: 4}
    assert all(name.decode().capitalize() in SHOW_COUNTERS for name, _ in SHOWN)


@pytest.mark.parametrize(
    "answers",
    [
        *([], [MySQLError(1227)]),
        *([((b"Handler_write", cell),), SHOWN] for cell in (b"much", None)),
        *([(row,), SHOWN] for row in ((b"Handler_write",), (None, b"1"))),
    ],
)
def test_a_server_without_whole_counters_has_none(answers: list[Any]) -> None:
    assert counters_of(answers) == {}


US, N1, N2, N3 = "0100A8C0", "0200A8C0", "0300A8C0", "0000000000000000FFFF00000200A8C0"
V1, V2 = (f"0{n}0000FD000000000000000002000000" for n in (1, 2))
IN, OUT, OTHER = "11D7", "9C40", "0CEA"


def connection(
    to: str,
    state: str,
    lost: int = 0,
    probes: int = 0,
    ports: tuple[str, str] = (IN, OUT),
) -> str:
    """Return a line of /proc/net/tcp."""
    return (
        f"   7: {US}:{ports[0]} {to}:{ports[1]} {state} 000000A6:00000000 01:00000057"
        f" {lost:08X}   104        {probes} 74638 2 00000000d9b3e8e7 23 4 30 10 -1\n"
    )


LISTENS = connection("00000000", "0A", ports=(IN, "0000"))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], 0),
        # A port for each node: only those that came to this one are known.
        ([connection(N1, "01", ports=(OUT, OTHER))], 0),
        ([connection(N1, "01", 12), connection(N2, "01", 2)], 0),
        ([connection(N1, "01", 3), connection(N2, "01", 3, ports=(OUT, IN))], 2),
        # The kernel could send nothing at all: a rule of this host's own.
        ([connection(N1, "01", probes=3), connection(N2, "01", probes=4)], 2),
        # Galera has closed what did not work, and tries again.
        ([connection(N1, "04", 4), connection(N1, "02"), connection(N2, "02", 1)], 2),
        ([connection(N1, "04", 4), connection(N1, "01"), connection(N2, "02", 1)], 0),
        # Members of several networks, with equal ends of their addresses.
        ([connection(V1, "01", 3), connection(V2, "01", 3)], 2),
        # One member by IPv4 and by IPv6.
        ([connection(N1, "06"), connection(N3, "01", 3)], 1),
    ],
)
def test_how_many_members_the_connections_have_lost(
    lines: list[str], expected: int
) -> None:
    assert lost_peers("".join([LISTENS, *lines]), 4567) == expected
    assert lost_peers("".join(lines), 4567) is None


def test_the_pages_drawing_is_what_the_rule_says() -> None:
    assert (ROOT / "docs" / "stall.svg").read_text() == svg()
