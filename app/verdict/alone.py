"""Whether a node stands still alone, or waits with its whole group. Pure.

A read in sync that waits, or a queue that gets no shorter, does not say whether the others keep up.
The first row that matches:

| what the node shows                                                       | what it is  |
|---------------------------------------------------------------------------|-------------|
| each connection to another member has lost its packets, while it waited   | cut-off     |
| no read in sync waits; the queue is empty, or it applies                  | it keeps up |
| there was no room for its data or its binary log                          | disk-full   |
| it is at work: it writes rows, or a read is pending in two looks running  | the group   |
| it has paused its group since it applied, and no other member has         | stalled     |
| none of these                                                             | the group   |

What its host has shown counts until it is in touch again, for the time in `_AROUND` at most: a
server looks for room once a minute, and packets flow, and what was ordered before is applied,
before a group has decided who is in it. So a node that was cut off is in touch once a read in sync
that began later is answered, or once it has been non-Primary, and any other once it applies. A view
that is Primary may have been ordered before the cut.

A member pauses its group when its queue is long. That the queue grows tells nothing: where all
stand for one cause, clients that write to one member make it grow on all others. But each member
receives the pauses of all: of those that stand, at most one can be the only one that has paused.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from app.verdict.node_state import NOT_A_NUMBER
from app.verdict.reason import Reason

GROUP = "group"
"""In place of a reason: as far as the node shows, its whole group waits, or it is at work."""

WRITTEN, PENDING = "handler", "innodb"
"""What `app.database.session` counts: rows that are written, one by one, and reads that wait."""

IS_CUT, IS_FULL = "is_cut", "is_full"
"""What `app.database.surroundings` sees."""

_AROUND = {IS_CUT: (Reason.CUT_OFF, 10.0), IS_FULL: (Reason.DISK_FULL, 60.0)}
"""What that means, and for how many seconds it counts. Longer, and what all share, such as DDL,
would keep out all whose network failed meanwhile."""

_WAIT_SECONDS = 0.25
"""A read in sync that is answered sooner has not waited."""


@dataclass(frozen=True)
class Look:
    """What a poll saw.

    committed, queue, sent, received: wsrep_last_committed, wsrep_local_recv_queue,
    wsrep_flow_control_sent and _recv, which counts its own pauses too. wait_seconds: of a read in
    sync. in_sync_at: when the latest that was answered began. seen: what was counted, and what its
    host shows; empty if nobody looked. view: wsrep_cluster_conf_id, which is `NOT_A_NUMBER` while
    the node is not Primary.
    """

    at: float = -math.inf
    committed: int = 0
    queue: int = 0
    sent: int = 0
    received: int = 0
    wait_seconds: float = 0.0
    in_sync_at: float = -math.inf
    seen: Mapping[str, int] = field(default_factory=dict)
    view: int = 0


@dataclass(frozen=True)
class Stand:
    """What the looks so far say.

    look: the latest. before: the one before it applied for the last time, or its queue was empty.
    worked_at: when it was last at work. in_touch_at: when it last heard from its group. shown: when
    its host last showed what still counts. stands: whether write-sets wait and none is applied, so
    that the next look is to count.
    """

    look: Look = Look()
    before: Look = Look()
    worked_at: float = -math.inf
    in_touch_at: float = -math.inf
    shown: Mapping[str, float] = field(default_factory=dict)
    stands: bool = False

    def after(self, look: Look) -> "Stand":
        """Return what one more look says."""
        then = self.look if self.look.committed else look
        has_moved = look.committed != self.look.committed or look.committed <= 0
        # Its host was seen at the look before.
        around = dict.fromkeys(filter(look.seen.get, _AROUND), self.look.at)
        shown = {**self.shown, **around}
        if look.view != self.look.view == NOT_A_NUMBER:
            shown.pop(IS_CUT, None)
        known = Stand(look, shown=shown)
        is_cut = known.shows(IS_CUT) and look.in_sync_at < known.cut_at
        heard_at = look.at if has_moved else look.in_sync_at
        in_touch_at = self.in_touch_at if is_cut else max(self.in_touch_at, heard_at)
        shown = {name: at for name, at in known.shown.items() if at >= in_touch_at}
        if has_moved or look.queue <= 0:
            return Stand(look, then, look.at, in_touch_at, shown)
        now, earlier = look.seen, then.seen
        has_written = now.get(WRITTEN) != earlier.get(WRITTEN, now.get(WRITTEN))
        works = has_written or (now.get(PENDING) and earlier.get(PENDING))
        worked_at = look.at if works else self.worked_at
        return Stand(look, self.before, worked_at, in_touch_at, shown, stands=True)

    @property
    def waits(self) -> bool:
        """Whether it does not keep up, or its group may be about to exclude it."""
        has_waited = self.look.wait_seconds >= _WAIT_SECONDS
        return self.stands or has_waited or self.shows(IS_CUT)

    @property
    def cut_at(self) -> float:
        """When it was last seen cut off, if that may still count."""
        return self.shown.get(IS_CUT, -math.inf)

    def shows(self, name: str) -> bool:
        """Whether what its host has shown counts."""
        _, seconds = _AROUND[name]
        return self.look.at <= self.shown.get(name, -math.inf) + seconds

    @property
    def _pauses_alone(self) -> bool:
        sent = self.look.sent - self.before.sent
        return 0 < sent >= self.look.received - self.before.received

    @property
    def cause(self) -> tuple[str | None, float]:
        """A reason or `GROUP`, and for how long; None while it keeps up."""
        look = self.look
        if not self.waits:
            return None, 0.0
        for name, (reason, _) in _AROUND.items():
            if self.shows(name):
                return reason, look.at - self.in_touch_at
        if self.stands and WRITTEN in look.seen and self._pauses_alone:
            return Reason.STALLED, look.at - self.worked_at
        return GROUP, look.at - self.in_touch_at
