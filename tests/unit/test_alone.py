"""Whether a node stands still alone: each fault as its own node and another one show it."""

import math
import re
from dataclasses import dataclass
from typing import Any

import pytest
from pymysql.err import MySQLError

from app.database.surroundings import lost_peers
from app.verdict.alone import GROUP, SHOW_COUNTERS, Look, Stand, counters_of
from app.verdict.node_state import STATUS_VARIABLES
from app.verdict.reason import Reason
from app.verdict.rules import Policy
from tests import pxc

POLL_SECONDS, LOGIN_SECONDS = 0.25, 2.0
BEFORE_SECONDS, FAULT_SECONDS = 12.0, 8.0
WITHIN_SECONDS = 3.0
LIMIT_SECONDS = Policy().max_stall
BUSY = {"com": 0, "buffer": 220, "read": 2400, "background": 4}
IDLE = {"com": 0, "buffer": 16, "read": 2400, "background": 4}
LOCKED: dict[str, Any] = {"committed": 0, "queue": 9, "rates": IDLE}
NOTHING: dict[str, Any] = {"committed": 0, "queue": 0, "rates": IDLE}


@dataclass
class Seen:
    """What one node shows in a fault: rates in a second.

    ddl, received: statements and bytes that come first. used: bytes of disk from poll to poll.
    """

    committed: int = 20
    queue: int = 0
    in_sync: bool = False
    rates: dict[str, int] | None = None
    ddl: int = 0
    received: int = 0
    keys: int = 900
    weight: int = 3
    is_donor: bool = False
    readers: int = 2400
    is_cut: bool = False
    is_full: bool = False
    used: int = 0
    is_near: bool = True


def causes(seen: Seen) -> list[tuple[float, str]]:
    """Return what the rule says, and for how long the fault lasts then."""
    before = Seen(in_sync=True, readers=seen.readers)
    stand, counters, committed = Stand(), dict.fromkeys(BUSY, 1000), 1000.0
    said, in_sync_at, waits_since = [], 0.0, math.inf
    for step in range(int((BEFORE_SECONDS + FAULT_SECONDS) / POLL_SECONDS)):
        at = step * POLL_SECONDS
        now = seen if at > BEFORE_SECONDS else before
        rates = now.rates or BUSY | {"read": now.readers}
        committed += now.committed * POLL_SECONDS
        for name, rate in rates.items():
            counters[name] += int(rate * POLL_SECONDS)
        if at >= in_sync_at + LOGIN_SECONDS and waits_since == math.inf:
            in_sync_at = at if now.in_sync else in_sync_at
            waits_since = math.inf if now.in_sync else at
        counted = counters | {"com": now.ddl} if stand.counts else {}
        around = {"is_cut": now.is_cut, "is_full": now.is_full, "used": now.used * step}
        look = Look(
            at,
            int(committed),
            now.queue,
            max(0.0, at - waits_since),
            in_sync_at,
            300 * step + now.received,
            now.keys,
            now.weight,
            now.is_donor,
            counted | (around if stand.waits and now.is_near else {}),
        )
        stand = stand.after(look)
        cause, seconds = stand.cause
        if cause == GROUP or (cause and seconds > LIMIT_SECONDS):
            said.append((at - BEFORE_SECONDS, cause))
    return said


ALONE = {
    "link down": (Reason.CUT_OFF, Seen(**NOTHING, is_cut=True)),
    "full disk": (Reason.DISK_FULL, Seen(**LOCKED, is_full=True)),
    "full disk, the only writer": (Reason.DISK_FULL, Seen(**NOTHING, is_full=True)),
    "table lock, FOR EXPORT, semi-sync, a backup": (Reason.STALLED, Seen(**LOCKED)),
    "table lock, many readers": (
        Reason.STALLED,
        Seen(0, 9, rates=IDLE | {"read": 97_000}, readers=90_000),
    ),
    "table lock, large rows": (Reason.STALLED, Seen(**LOCKED, received=3 << 20)),
    "rsync donor": (
        Reason.STALLED,
        Seen(**LOCKED, in_sync=True, weight=4, is_donor=True),
    ),
}

TOGETHER = {
    "keeps up": (None, Seen(in_sync=True)),
    "lags, and applies": (GROUP, Seen(queue=300)),
    "nobody writes, or flow control stops all": (None, Seen(**NOTHING, in_sync=True)),
    "kill -9 of another member": (GROUP, Seen(**NOTHING)),
    "ALTER that waits for a lock": (GROUP, Seen(**LOCKED, ddl=1)),
    "UPDATE without a key": (
        GROUP,
        Seen(0, 2, rates=IDLE | {"read": 50_000}),
    ),
    "the same, with many readers": (
        GROUP,
        Seen(0, 2, rates=IDLE | {"read": 140_000}, readers=90_000),
    ),
    "a member that dies, and a script that hangs on all": (
        GROUP,
        Seen(**LOCKED, weight=2),
    ),
    "large UPDATE, FK cascade, rollback": (
        GROUP,
        Seen(0, 11, rates=IDLE | {"buffer": 90_000}),
    ),
    "certification of a large write-set": (
        GROUP,
        Seen(**LOCKED, received=5 << 20),
    ),
    "the same, where it is sent": (GROUP, Seen(**NOTHING, received=5 << 20)),
    "the end of its keys, long afterwards": (
        GROUP,
        Seen(**LOCKED, keys=2_000_000),
    ),
    "a slow applier": (GROUP, Seen(0, 11, rates=IDLE | {"buffer": 150})),
    "no connection works, and reads are answered": (
        None,
        Seen(in_sync=True, is_cut=True),
    ),
    "a large binary log": (GROUP, Seen(**LOCKED, used=9 << 18)),
    "every disk hangs": (GROUP, Seen(0, 9, rates=IDLE | {"background": 0})),
    "a lock, seen from afar": (GROUP, Seen(**LOCKED, is_near=False)),
    # Impossible ones.
    "no wsrep_last_committed": (GROUP, Seen(-10_000, 9, rates=IDLE)),
    "no sensible queue": (GROUP, Seen(0, -1, rates=IDLE)),
}


@pytest.mark.parametrize("name", ALONE)
def test_a_node_that_stands_still_alone_is_out_in_time_with_its_cause(
    name: str,
) -> None:
    cause, seen = ALONE[name]
    said = [(at, word) for at, word in causes(seen) if word != GROUP]
    assert {word for _, word in said} == {cause}
    assert LIMIT_SECONDS < said[0][0] <= WITHIN_SECONDS
    # Until its end.
    assert said[-1][0] > FAULT_SECONDS - 2 * POLL_SECONDS


@pytest.mark.parametrize("name", TOGETHER)
def test_a_node_that_waits_with_its_group_stays(name: str) -> None:
    cause, seen = TOGETHER[name]
    assert {word for _, word in causes(seen)} == {cause} - {None}


def test_a_server_that_does_not_count_is_not_out_for_a_lock_and_seldom_asked() -> None:
    stand, asked = Stand(counted=Look(0.0)), 0
    for second in range(20):
        asked += stand.counts
        stand = stand.after(Look(second, 7))
    assert asked == 1
    for second in range(20, 29):
        stand = stand.after(Look(second, 7, 9))
    assert stand.cause == (GROUP, 28.0)


def test_what_waits_as_the_service_starts_may_be_ddl() -> None:
    stand = Stand(counted=Look(0.0))
    for second in range(9):
        counters = IDLE | {"background": second} if stand.counts else {}
        counters["used"] = 0
        stand = stand.after(Look(second, 7, 9, seen=counters))
    assert stand.cause[0] == GROUP


def test_of_several_statements_queued_at_one_node_each_is_ddl() -> None:
    stand = Stand()
    at = 0.0
    for committed, seconds, ddl in ((1, 12, 0), (2, 8, 3), (3, 8, 3), (4, 8, 3)):
        for step in range(seconds * 4):
            at += POLL_SECONDS
            look = Look(
                at,
                committed,
                int(committed > 1 and step > 0),
                seen=IDLE | {"com": ddl, "used": 0, "background": int(at)}
                if stand.counts
                else {},
            )
            stand = stand.after(look)
            assert stand.cause[0] in (GROUP, None)


COUNTED = re.compile(re.findall("'(.*)'", SHOW_COUNTERS)[0], re.IGNORECASE)


COUNTED_NAMES = """
    Com_alter_table Com_alter_user Com_analyze Com_create_index Com_create_table Com_create_trigger
    Com_drop_db Com_drop_table Com_grant Com_optimize Com_rename_table Com_repair Com_revoke_all
    Com_truncate Handler_read_next Handler_read_rnd_next Innodb_background_log_sync
    Innodb_buffer_pool_write_requests
"""
# MySQL has none of the third and fourth: there, such tables are counted with all others.
OTHER_NAMES = """
    Com_flush Com_insert Com_create_temporary_table Com_drop_temporary_table Com_lock_tables
    Com_select Handler_commit Handler_read_rnd Handler_write Innodb_buffer_pool_read_requests
"""


def test_what_is_counted() -> None:
    names = [*COUNTED_NAMES.split(), *OTHER_NAMES.split()]
    assert list(filter(COUNTED.fullmatch, names)) == COUNTED_NAMES.split()


SHOWN: tuple[tuple[bytes, bytes], ...] = (
    (b"Com_alter_table", b"1"),
    (b"Com_drop_db", b"2"),
    (b"HANDLER_READ_NEXT", b"3"),
    (b"Handler_read_rnd_next", b"4"),
    (b"Innodb_buffer_pool_write_requests", b"5"),
    (b"Innodb_background_log_sync", b"6"),
)


def test_counters_are_summed_by_their_kind() -> None:
    assert counters_of([SHOWN]) == {"com": 3, "read": 7, "buffer": 5, "background": 6}


@pytest.mark.parametrize(
    "answers",
    [
        *([], [SHOWN[:-1]], [MySQLError(1227)]),
        *([((b"Com_x", cell),), SHOWN] for cell in (b"much", None)),
        *([(row,), SHOWN] for row in ((b"Com_x",), (None, b"1"))),
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


def test_percona_has_each_status_variable_of_the_group_that_the_rule_reads() -> None:
    names = {
        "wsrep_received_bytes",
        "wsrep_replicated_bytes",
        "wsrep_cert_index_size",
        "wsrep_cluster_weight",
    }
    assert names < set(STATUS_VARIABLES)
    known = [dump.name for dump in pxc.dumps() if names <= dump.rows.keys()]
    # The oldest and the newest whose rows were published whole.
    assert ["Galera 3.37" in known[0], "Galera 4.24" in known[-1]] == [True, True]
