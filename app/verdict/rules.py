"""Whether this node may take traffic, and why: the first rule that matches decides.

     1  the disabled file exists or cannot be checked, or the
        service is shutting down                                       disabled, shutting-down
     2  no poll has ended yet                                          starting
     3  the latest poll is older than max_age_seconds                  stale
     4  the node could not be read                                     the failure's own reason
     5  no wsrep_local_state row, wsrep_on not ON, or no provider      not-galera
     6  wsrep_local_state 5 or more                                    inconsistent
     7  wsrep_local_state 1                                            joining
     8  wsrep_cluster_status Disconnected, or wsrep_connected not ON   disconnected
     9  wsrep_cluster_status not Primary                               non-primary
    10  wsrep_ready not ON                                             not-ready
    11  wsrep_cluster_size below min_cluster_size                      cluster-too-small
    12  the server takes no logins                                     rejects-logins
    13  the server hung, and no read in sync has been answered since   blocked
    14  wsrep_reject_queries other than NONE                           rejects-queries
    15  offline_mode on                                                offline
    16  skip_networking on                                             no-networking
    17  pxc_maint_mode other than DISABLED, or max_user_connections
        -1, which keeps ordinary accounts out                          maintenance
    18  wsrep_local_state 2, wsrep_desync ON, donors not allowed       desynced
    19  wsrep_local_state 2, donors not allowed                        donor
    20  wsrep_local_state 3, donors not allowed                        joined
    21  wsrep_local_state not 2, 3 or 4                                unknown-state
    22  read-only, and read-only nodes not allowed                     read-only
    23  stands still alone for longer than max_stall (see `alone`)     cut-off, disk-full, stalled
    24  wsrep_local_recv_queue above max_recv_queue                    lagging
    25  a read in sync has waited longer than max_sync_wait, or was
        refused                                                        blocked
    26  Threads_connected at max_connections, full nodes not allowed   full
    27  wsrep_local_state 2 or 3                                       AVAILABLE: donor
    28  wsrep_local_state 4                                            AVAILABLE: synced

A rule refuses a node whose variable is missing or unreadable, except: a server without those of
rules 14 to 17, or of 22 but read_only, lacks the feature; Percona XtraDB Cluster has wsrep_on only
in sessions. No rule reads wsrep_sst_donor_rejects_queries, which Galera 4 only logs.
"""

import math
from dataclasses import dataclass

from app.kinds import BOOLEAN, duration, row, whole
from app.text import one_line
from app.verdict.node_state import NOT_A_NUMBER, NodeState, PollFailure, PollResult
from app.verdict.reason import PLANNED, Reason

AVAILABLE, UNAVAILABLE = 200, 503
"""HTTP statuses."""


@dataclass(frozen=True)
class Policy:
    """What the operator allows."""

    available_when_donor: bool = row("accept a donor or desynced node", BOOLEAN, "0")
    available_when_readonly: bool = row("accept a read-only node", BOOLEAN, "1")
    available_when_full: bool = row("accept a node at max_connections", BOOLEAN, "1")
    min_cluster_size: int = row(
        "fewest members of the node's component; 0: no limit", whole(), "0"
    )
    max_recv_queue: int | None = row(
        "longest receive queue (default: no limit)", whole()
    )
    max_stall: float = row(
        "longest time to stand still alone; 0: no limit", duration(0, 3600), "2"
    )
    max_sync_wait: float | None = row(
        "longest wait of a read in sync (no limit)", duration(0.1, 3600)
    )


@dataclass(frozen=True)
class Switches:
    """What the operator switches by hand.

    disabled_file: words for the file if it exists. disabled_at: in Unix time.
    """

    disabled_file: str | None = None
    shutting_down: bool = False
    disabled_at: float | None = None

    @property
    def any_on(self) -> bool:
        """Whether the node is out by hand."""
        return self.shutting_down or self.disabled_file is not None


@dataclass(frozen=True)
class Verdict:
    """The answer at one moment. detail: what was seen, and which setting decided, in a line."""

    available: bool
    reason: Reason
    detail: str

    def __str__(self) -> str:
        """Return it in a line."""
        return f"{self.word} {self.reason}: {self.detail}"

    @property
    def draining(self) -> bool:
        """Whether the node's sessions may finish."""
        return not self.available and self.reason in PLANNED

    @property
    def word(self) -> str:
        """As `word_of` says."""
        return word_of(available=self.available, draining=self.draining)


def word_of(*, available: bool, draining: bool) -> str:
    """Return the word for a verdict."""
    if available:
        return "available"
    return "draining" if draining else "NOT available"


def status_of(verdict: Verdict, drain_status: int = UNAVAILABLE) -> int:
    """Return the HTTP status."""
    if verdict.available:
        return AVAILABLE
    return drain_status if verdict.draining else UNAVAILABLE


def decide(
    result: PollResult | None,
    age_seconds: float,
    policy: Policy,
    switches: Switches,
    max_age_seconds: float = math.inf,
) -> Verdict:
    """Return the verdict on a poll. result: None before the first has ended."""
    if switches.disabled_file is not None:
        return _no(Reason.DISABLED, switches.disabled_file)
    if switches.shutting_down:
        return _no(Reason.SHUTTING_DOWN, "clustercheckd is shutting down")
    if result is None:
        return _no(Reason.STARTING, "the first poll of the node has not ended yet")
    # NaN is stale too.
    if not age_seconds <= max_age_seconds:
        limit = f"{max_age_seconds:.3g} s"
        return _no(Reason.STALE, f"the last completed poll began more than {limit} ago")
    if isinstance(result, PollFailure):
        return _no(result.reason, result.detail)
    return _component_verdict(result, policy) or _node_verdict(result, policy)


def _component_verdict(node: NodeState, policy: Policy) -> Verdict | None:
    """Apply rules 5 to 11."""
    state = node.wsrep_local_state
    if state is None:
        return _no(
            Reason.NOT_GALERA,
            "the server sent no wsrep_local_state: it runs without Galera",
        )
    if not _absent_or(node.wsrep_on, "ON"):
        return _no(Reason.NOT_GALERA, _seen(node, "wsrep_on"))
    provider = node.wsrep_provider or "none"
    # A path has letters or digits: no more is certain.
    if provider.upper() == "NONE" or not any(map(str.isalnum, provider)):
        return _no(Reason.NOT_GALERA, _seen(node, "wsrep_provider"))
    if state >= _INCONSISTENT:
        return _no(Reason.INCONSISTENT, _state(node))
    if state == _JOINING:
        return _no(Reason.JOINING, _state(node))
    if _is(node.wsrep_cluster_status, "DISCONNECTED"):
        return _no(
            Reason.DISCONNECTED, f"wsrep_cluster_status is Disconnected, {_state(node)}"
        )
    for reason, name, word in _OF_A_MEMBER:
        if not _is(getattr(node, name), word):
            return _no(reason, f"{_seen(node, name)}, {_state(node)}")
    size, least = node.wsrep_cluster_size, policy.min_cluster_size
    if least and (size or 0) < least:
        seen = _seen(node, "wsrep_cluster_size")
        return _no(Reason.CLUSTER_TOO_SMALL, f"{seen}; MIN_CLUSTER_SIZE={least}")
    return None


def _node_verdict(node: NodeState, policy: Policy) -> Verdict:
    """Apply rules 12 to 28."""
    state = node.wsrep_local_state
    if node.rejects_logins is not None:
        return _no(Reason.REJECTS_LOGINS, node.rejects_logins)
    if node.returning:
        return _no(
            Reason.BLOCKED,
            "the server hung, and no read in sync has been answered since",
        )
    for reason, name, word in _OF_AN_OPEN_NODE:
        if not _absent_or(getattr(node, name), word):
            return _no(reason, _seen(node, name))
    if _is(node.max_user_connections, "-1"):
        return _no(Reason.MAINTENANCE, _seen(node, "max_user_connections"))
    if state in (DONOR, _JOINED) and not policy.available_when_donor:
        reason = Reason.DESYNCED if _is(node.wsrep_desync, "ON") else Reason.DONOR
        return _no(
            Reason.JOINED if state == _JOINED else reason,
            f"{_state(node)}; AVAILABLE_WHEN_DONOR=0",
        )
    if state not in (DONOR, _JOINED, _SYNCED):
        return _no(Reason.UNKNOWN_STATE, _state(node))
    return _load_verdict(node, policy) or _yes(node)


def _load_verdict(node: NodeState, policy: Policy) -> Verdict | None:
    """Apply rules 22 to 26."""
    if not policy.available_when_readonly:
        for name in (
            "read_only",
            "super_read_only",
            "tx_read_only",
            "transaction_read_only",
        ):
            value: str | None = getattr(node, name)
            # Every server has read_only.
            if not _absent_or(value, _OFF) or (value is None and name == "read_only"):
                return _no(
                    Reason.READ_ONLY, f"{_seen(node, name)}; AVAILABLE_WHEN_READONLY=0"
                )
    why = STANDS_ALONE.get(node.stall)
    if why and 0 < policy.max_stall < node.stall_seconds:
        return _no(Reason(node.stall or ""), f"{why}; MAX_STALL={policy.max_stall:g} s")
    queue, longest = node.wsrep_local_recv_queue, policy.max_recv_queue
    if longest is not None and (queue is None or not 0 <= queue <= longest):
        seen = _seen(node, "wsrep_local_recv_queue")
        return _no(Reason.LAGGING, f"{seen}; MAX_RECV_QUEUE={longest}")
    # None: no read in sync yet. NaN is no short time.
    waited, limit = node.sync_wait_seconds or 0.0, policy.max_sync_wait
    if limit is not None and (node.sync_refused or not waited <= limit):
        what = "was refused" if node.sync_refused else "waits longer"
        return _no(
            Reason.BLOCKED,
            f"a read in sync {what}; MAX_SYNC_WAIT={limit:g} s",
        )
    if not policy.available_when_full:
        connected, most = node.threads_connected, node.max_connections
        if connected is None or most is None or not 0 <= connected < most:
            used = f"Threads_connected is {_shown(connected)} of max_connections {_shown(most)}"
            return _no(Reason.FULL, f"{used}; AVAILABLE_WHEN_FULL=0")
    return None


_JOINING, DONOR, _JOINED, _SYNCED, _INCONSISTENT = 1, 2, 3, 4, 5
_OFF = "OFF"

STANDS_ALONE: dict[str | None, str] = {
    Reason.CUT_OFF: "a read in sync waits, and packets to all other members are lost",
    Reason.DISK_FULL: "the node waits, and the disk of its data or its binary log is full",
    Reason.STALLED: "write-sets wait, none is applied, and the node alone has paused its group",
}
"""Rule 23: what is seen of a node that stands still while its group goes on."""

_OF_A_MEMBER = (
    (Reason.DISCONNECTED, "wsrep_connected", "ON"),
    (Reason.NON_PRIMARY, "wsrep_cluster_status", "PRIMARY"),
    (Reason.NOT_READY, "wsrep_ready", "ON"),
)
"""Rules 8 to 10."""

_OF_AN_OPEN_NODE = (
    (Reason.REJECTS_QUERIES, "wsrep_reject_queries", "NONE"),
    (Reason.OFFLINE, "offline_mode", _OFF),
    (Reason.NO_NETWORKING, "skip_networking", _OFF),
    (Reason.MAINTENANCE, "pxc_maint_mode", "DISABLED"),
)
"""Rules 14 to 17."""


def _no(reason: Reason, detail: str) -> Verdict:
    # A path in the detail may contain any byte.
    return Verdict(available=False, reason=reason, detail=one_line(detail))


def _yes(node: NodeState) -> Verdict:
    """Apply rules 27 and 28."""
    if node.wsrep_local_state == _SYNCED:
        return Verdict(available=True, reason=Reason.SYNCED, detail=_state(node))
    detail = f"{_state(node)}; AVAILABLE_WHEN_DONOR=1"
    return Verdict(available=True, reason=Reason.DONOR, detail=detail)


def _is(value: str | None, word: str) -> bool:
    return (value or "").upper() == word


def _absent_or(value: str | None, word: str) -> bool:
    return value is None or _is(value, word)


def _seen(node: NodeState, name: str) -> str:
    return f"{name} is {_shown(getattr(node, name))}"


def _shown(value: str | int | None) -> str:
    if value is None:
        return "missing"
    if value == NOT_A_NUMBER:
        return "unreadable"
    return str(value) or "empty"


def _state(node: NodeState) -> str:
    comment = _shown(node.wsrep_local_state_comment)
    return f"{_seen(node, 'wsrep_local_state')} ({comment})"
