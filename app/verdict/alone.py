"""Whether a node stands still alone, or waits with its whole group. Pure.

A read in sync that waits, or a queue that gets no shorter, does not say whether the others keep up.
The first row that matches:

| what the node shows                                                          | what it is    |
|------------------------------------------------------------------------------|---------------|
| the latest read in sync was answered; the queue is empty, or moves           | it keeps up   |
| a read in sync waits; each connection to another member loses its packets    | cut-off       |
| a read in sync or the queue waits; no room for its data or its binary log    | disk-full     |
| the queue is empty: others have written nothing that the group has ordered   | the group     |
| since it kept up, or 5 s before: DDL, a write-set of many keys, a new view   | the group     |
| it is at work: it writes pages or its binary log, or reads many rows         | the group     |
| its disk hangs: it has not flushed its log for 1.5 s                         | the group     |
| its counters of DDL and work are not known, or its disk is not seen          | the group     |
| none of these                                                                | stalled       |

What cannot be seen changes no verdict: a cause that all members share must not remove them all.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from app.verdict.reason import Reason

GROUP = "group"
"""In place of a reason: as far as the node shows, its whole group waits, or it is at work."""

DDL, PAGES, ROWS, FLUSHES = "com", "buffer", "read", "background"
IS_CUT, IS_FULL, USED = "is_cut", "is_full", "used"
"""What `app.database.surroundings` sees: the last in bytes."""

SHOW_COUNTERS = (
    "SHOW GLOBAL STATUS WHERE Variable_name REGEXP '^(Innodb_buffer_pool_write_requests"
    "|Innodb_background_log_sync|Handler_read_(rnd_)?next|Com_(analyze|grant|optimize|rename|repair|revoke|truncate).*"
    "|Com_(alter|create|drop)_([^t]|table|trigger).*)$'"
)
"""What a look counts, by a word of its name. In session scope, Com_ and Handler_ would be those of
the session. Not Com_create_temporary_table: such a table is its session's alone."""

_IDLE = {PAGES: 100, ROWS: 10_000, USED: 8 << 20}
"""More a second is work. Of rows, more than before the wait: clients read them too. A large
transaction writes its binary log at the end."""

_LARGE_BYTES, _MANY_KEYS = 4 << 20, 200_000
"""More bytes between two polls may be one write-set. To certify a million keys, and to remove them
from the index long afterwards, takes seconds on each node, and nothing shows that work."""

_WAIT_SECONDS = 0.25
"""A read in sync that is answered sooner has not waited."""
_FLUSH_SECONDS = 1.5
"""The server flushes its log once a second, if its disk works: one may be slow for all members."""
_EARLIER_SECONDS = 5.0
"""Where a DDL statement is sent, it is counted before its turn comes."""


def counters_of(answers: Iterable[Any]) -> dict[str, int]:
    """Return the sums of what the server shows; none if it does not show each as a number."""
    sums = Counter[str]()
    # What no node needs to be available cannot make it unavailable.
    with suppress(ValueError, TypeError, AttributeError):
        for name, value in itertools.chain(*answers):
            first, second, *_ = name.decode().lower().split("_")
            sums[DDL if first == DDL else second] += int(value)
        return dict(sums) if sums.keys() == {DDL, PAGES, ROWS, FLUSHES} else {}
    return {}


class Look(NamedTuple):
    """What a poll saw.

    committed, queue: wsrep_last_committed and wsrep_local_recv_queue. wait_seconds: of a read in
    sync. in_sync_at: when the latest that was answered began. exchanged: bytes of write-sets that
    the node has sent and received. keys: wsrep_cert_index_size. weight: wsrep_cluster_weight, which
    changes with the view, for which each member runs its wsrep_notify_cmd. seen: what was counted,
    and what its host shows; empty if nobody looked.
    """

    at: float = -math.inf
    committed: int = 0
    queue: int = 0
    wait_seconds: float = 0.0
    in_sync_at: float = -math.inf
    exchanged: int = 0
    keys: int = 0
    weight: int = 0
    is_donor: bool = False
    seen: Mapping[str, int] = {}


class Stand(NamedTuple):
    """What the looks so far say.

    look: the latest. counted: the latest that was to count, if the server has flushed its log since
    the one before. applied_at: of the latest that saw the queue empty, the node apply or work, or
    its disk hang. in_touch_at: when it last heard from its group. heavy_at: of the latest that may
    have seen what all members wait for. rows: how many were read per
    second, before the wait.
    """

    look: Look = Look()
    counted: Look = Look()
    applied_at: float = -math.inf
    in_touch_at: float = -math.inf
    heavy_at: float = -math.inf
    rows: float = 0.0

    def after(self, look: Look) -> "Stand":
        """Return what one more look says."""
        at, now, counted = look.at, look.seen, self.counted
        then, seconds = counted.seen, at - counted.at
        grown = {name: now[name] - then[name] for name in now.keys() & then.keys()}
        has_moved = look.committed != self.look.committed or look.committed <= 0
        usual = {ROWS: self.rows}
        works = any(
            abs(grown.get(one, 0)) > (most + usual.get(one, 0)) * seconds
            for one, most in _IDLE.items()
        )
        hangs = grown.get(FLUSHES) == 0 and seconds > _FLUSH_SECONDS
        applies = has_moved or look.queue <= 0 or works or hangs
        is_heavy = (
            grown.get(DDL)
            or look.exchanged - self.look.exchanged > _LARGE_BYTES
            or look.keys > _MANY_KEYS
            or look.weight != self.look.weight
            # Until the end of the wait, and where nobody knows.
            or (self.waits and (self.may_be_heavy or DDL not in then))
        )
        return Stand(
            look,
            look if self.counts and grown.get(FLUSHES) != 0 else counted,
            at if applies else self.applied_at,
            max(look.in_sync_at, at if has_moved else self.in_touch_at),
            at if is_heavy else self.heavy_at,
            # Not less than 0: after a restart, the server counts anew.
            max(0.0, grown[ROWS] / seconds)
            if ROWS in grown and not self.waits
            else self.rows,
        )

    @property
    def waits(self) -> bool:
        """Whether it does not keep up."""
        look = self.look
        return look.wait_seconds >= _WAIT_SECONDS or self.applied_at < look.at

    @property
    def counts(self) -> bool:
        """Whether the next look is to count: in a wait, and now and then before one."""
        look, counted = self.look, self.counted
        is_due = look.at >= counted.at + _EARLIER_SECONDS
        return self.waits or (is_due and look.committed != counted.committed)

    @property
    def may_be_heavy(self) -> bool:
        """Whether all members may wait for the same."""
        # A donor stands by what it does alone, and a view with the joiner came before that.
        is_near = self.heavy_at >= self.applied_at - _EARLIER_SECONDS
        return is_near and not self.look.is_donor

    @property
    def cause(self) -> tuple[str | None, float]:
        """A reason or `GROUP`, and for how long; None while it keeps up."""
        look, since, cause = self.look, self.in_touch_at, GROUP
        if not self.waits:
            return None, 0.0
        if look.wait_seconds >= _WAIT_SECONDS and look.seen.get(IS_CUT):
            cause = Reason.CUT_OFF
        elif look.seen.get(IS_FULL):
            cause = Reason.DISK_FULL
        elif self.applied_at < look.at and USED in look.seen and not self.may_be_heavy:
            cause, since = Reason.STALLED, self.applied_at
        return cause, look.at - since
