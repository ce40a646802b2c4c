"""The verdict: whether this node may take traffic, and why.

`decide` is pure and total. It tries the rules below in order, and the first rule that matches
decides. A node that no rule accepts is unavailable. Every answer anywhere (health check, status,
log, command line) comes from `decide`.

     1  the disabled file exists or cannot be checked, or the
        service is shutting down                                       disabled, shutting-down
     2  no poll has ended yet                                          starting
     3  the latest poll is older than the policy allows                stale
     4  the node could not be read                                     the failure's own reason
     5  no wsrep_local_state row, wsrep_on not ON, or no provider      not-galera
     6  wsrep_local_state 5 or more                                    inconsistent
     7  wsrep_local_state 1                                            joining
     8  wsrep_cluster_status Disconnected, or wsrep_connected not ON   disconnected
     9  wsrep_cluster_status not Primary                               non-primary
    10  wsrep_ready not ON                                             not-ready
    11  the server takes no logins                                     rejects-logins
    12  the server hung, and no read in sync has been answered since   blocked
    13  wsrep_reject_queries other than NONE                           rejects-queries
    14  offline_mode on                                                offline
    15  skip_networking on                                             no-networking
    16  pxc_maint_mode other than DISABLED                             maintenance
    17  wsrep_local_state 2, wsrep_desync ON, donors not allowed       desynced
    18  wsrep_local_state 2, donors not allowed                        donor
    19  wsrep_local_state 3, donors not allowed                        joined
    20  wsrep_local_state not 2, 3 or 4                                unknown-state
    21  read-only, and read-only nodes not allowed                     read-only
    22  wsrep_local_recv_queue above max_recv_queue                    lagging
    23  a read in sync has waited longer than max_sync_wait, or was
        refused                                                        blocked
    24  Threads_connected at max_connections, full nodes not allowed   full
    25  wsrep_local_state 2 or 3                                       AVAILABLE: donor
    26  wsrep_local_state 4                                            AVAILABLE: synced

If a rule needs a variable that the server did not send, or that clustercheckd cannot read, the rule
makes the node unavailable. There are two exceptions. Some servers do not have the variables of
rules 13 to 16, or those of rule 21 but read_only: such a server does not have the feature either,
so a missing variable does not match. Percona XtraDB Cluster has wsrep_on only as a session
variable, so rule 5 ignores a missing wsrep_on. The state numbers are those of wsrep_local_state in
the Galera documentation.

No rule reads wsrep_sst_donor_rejects_queries. Galera 4 only logs it: such a donor serves its
clients.
"""

import math
from dataclasses import dataclass

from app.text import one_line
from app.verdict.node_state import NOT_A_NUMBER, NodeState, PollFailure
from app.verdict.reason import PLANNED, Reason

AVAILABLE, UNAVAILABLE = 200, 503
"""The HTTP statuses of a verdict. A draining node may have another one, see `status_of`."""


@dataclass(frozen=True)
class Policy:
    """What the operator allows.

    max_age_seconds: the age above which a poll is stale, from its start. Whoever polls just now has
    no limit. max_recv_queue: how many write-sets wsrep_local_recv_queue may hold. max_sync_wait:
    for how many seconds a read in sync may wait. None disables either rule.
    """

    max_age_seconds: float = math.inf
    available_when_donor: bool = False
    available_when_readonly: bool = True
    available_when_full: bool = True
    max_recv_queue: int | None = None
    max_sync_wait: float | None = None


@dataclass(frozen=True)
class Switches:
    """The state that an operator controls by hand.

    disabled_file: a description of the disabled file if it exists or cannot be checked, else None.
    disabled_at: when the file was last modified, in Unix time; None if it does not exist or cannot
    be checked.
    """

    disabled_file: str | None = None
    shutting_down: bool = False
    disabled_at: float | None = None

    @property
    def any_on(self) -> bool:
        """Whether the operator has taken the node out by hand."""
        return self.shutting_down or self.disabled_file is not None


@dataclass(frozen=True)
class Verdict:
    """The answer at one moment, under one policy.

    detail: what clustercheckd saw, and which setting decided; formatted by `text.one_line`.
    """

    available: bool
    reason: Reason
    detail: str

    def __str__(self) -> str:
        """Return the verdict in a line, as people see it."""
        return f"{self.word} {self.reason}: {self.detail}"

    @property
    def draining(self) -> bool:
        """Whether the node is unavailable for a planned reason, so that its sessions may finish."""
        return not self.available and self.reason in PLANNED

    @property
    def word(self) -> str:
        """The verdict in one word, the same wherever it is shown."""
        if self.available:
            return "available"
        return "draining" if self.draining else "NOT available"


def status_of(verdict: Verdict, drain_status: int = UNAVAILABLE) -> int:
    """Return the HTTP status of a verdict: drain_status if the node is draining."""
    if verdict.available:
        return AVAILABLE
    return drain_status if verdict.draining else UNAVAILABLE


def decide(
    result: NodeState | PollFailure | None, age_seconds: float, policy: Policy, switches: Switches
) -> Verdict:
    """Return the verdict, by the rules in this module's docstring.

    result: that of the latest poll, None before the first one has ended. age_seconds: time since
    that poll began.
    """
    if switches.disabled_file is not None:
        return _no(Reason.DISABLED, switches.disabled_file)
    if switches.shutting_down:
        return _no(Reason.SHUTTING_DOWN, "clustercheckd is shutting down")
    if result is None:
        return _no(Reason.STARTING, "the first poll of the node has not ended yet")
    # A negated comparison, so that an age of NaN is stale too.
    if not age_seconds <= policy.max_age_seconds:
        return _no(
            Reason.STALE,
            f"the last completed poll began more than {policy.max_age_seconds:.3g} s ago",
        )
    if isinstance(result, PollFailure):
        return _no(result.reason, result.detail)
    return _component_verdict(result) or _node_verdict(result, policy)


def _component_verdict(node: NodeState) -> Verdict | None:
    """Apply rules 5 to 10. Return None if the node is a working member of a primary component."""
    state = node.wsrep_local_state
    if state is None:
        return _no(
            Reason.NOT_GALERA, "the server sent no wsrep_local_state: it runs without Galera"
        )
    if not _absent_or(node.wsrep_on, "ON"):
        return _no(Reason.NOT_GALERA, _seen(node, "wsrep_on"))
    if not _is_provider(node.wsrep_provider):
        return _no(Reason.NOT_GALERA, _seen(node, "wsrep_provider"))
    if state >= _INCONSISTENT:
        return _no(Reason.INCONSISTENT, _state(node))
    if state == _JOINING:
        return _no(Reason.JOINING, _state(node))
    if _is(node.wsrep_cluster_status, "DISCONNECTED"):
        return _no(Reason.DISCONNECTED, f"wsrep_cluster_status is Disconnected, {_state(node)}")
    for reason, name, word in _OF_A_MEMBER:
        if not _is(getattr(node, name), word):
            return _no(reason, f"{_seen(node, name)}, {_state(node)}")
    return None


def _node_verdict(node: NodeState, policy: Policy) -> Verdict:
    """Apply rules 11 to 26: whether a working member of the group may take traffic."""
    state = node.wsrep_local_state
    if node.rejects_logins is not None:
        return _no(Reason.REJECTS_LOGINS, node.rejects_logins)
    if node.returning:
        return _no(Reason.BLOCKED, "the server hung, and no read in sync has been answered since")
    for reason, name, word in _OF_AN_OPEN_NODE:
        if not _absent_or(getattr(node, name), word):
            return _no(reason, _seen(node, name))
    if state in (_DONOR, _JOINED) and not policy.available_when_donor:
        return _no(_reason_of_donor(node), f"{_state(node)}; AVAILABLE_WHEN_DONOR=0")
    if state not in (_DONOR, _JOINED, _SYNCED):
        return _no(Reason.UNKNOWN_STATE, _state(node))
    return _load_verdict(node, policy) or _yes(node)


def _reason_of_donor(node: NodeState) -> Reason:
    """Return the reason of rules 17 to 19."""
    if node.wsrep_local_state == _JOINED:
        return Reason.JOINED
    return Reason.DESYNCED if _is(node.wsrep_desync, "ON") else Reason.DONOR


def _load_verdict(node: NodeState, policy: Policy) -> Verdict | None:
    """Apply rules 21 to 24, for a node whose wsrep state is accepted.

    Return None if the node passes all of them.
    """
    if not policy.available_when_readonly:
        for name in ("read_only", "super_read_only", "tx_read_only", "transaction_read_only"):
            value: str | None = getattr(node, name)
            # Every server has read_only.
            if not _absent_or(value, _OFF) or (value is None and name == "read_only"):
                return _no(Reason.READ_ONLY, f"{_seen(node, name)}; AVAILABLE_WHEN_READONLY=0")
    queue, longest = node.wsrep_local_recv_queue, policy.max_recv_queue
    if longest is not None and (queue is None or not 0 <= queue <= longest):
        return _no(
            Reason.LAGGING, f"wsrep_local_recv_queue is {_count(queue)}; MAX_RECV_QUEUE={longest}"
        )
    if policy.max_sync_wait is not None and not _is_in_sync(node, policy.max_sync_wait):
        what = "was refused" if node.sync_refused else "waits longer"
        return _no(
            Reason.BLOCKED, f"a read in sync {what}; MAX_SYNC_WAIT={policy.max_sync_wait:g} s"
        )
    if not policy.available_when_full:
        connected, limit = node.threads_connected, node.max_connections
        if connected is None or limit is None or not 0 <= connected < limit:
            used = f"Threads_connected is {_count(connected)} of max_connections {_count(limit)}"
            return _no(Reason.FULL, f"{used}; AVAILABLE_WHEN_FULL=0")
    return None


_JOINING, _DONOR, _JOINED, _SYNCED, _INCONSISTENT = 1, 2, 3, 4, 5
_OFF = "OFF"

_OF_A_MEMBER = (
    (Reason.DISCONNECTED, "wsrep_connected", "ON"),
    (Reason.NON_PRIMARY, "wsrep_cluster_status", "PRIMARY"),
    (Reason.NOT_READY, "wsrep_ready", "ON"),
)
"""Rules 8 to 10: what a variable must be."""

_OF_AN_OPEN_NODE = (
    (Reason.REJECTS_QUERIES, "wsrep_reject_queries", "NONE"),
    (Reason.OFFLINE, "offline_mode", _OFF),
    (Reason.NO_NETWORKING, "skip_networking", _OFF),
    (Reason.MAINTENANCE, "pxc_maint_mode", "DISABLED"),
)
"""Rules 13 to 16: what a variable must be if the server has it."""


def _no(reason: Reason, detail: str) -> Verdict:
    # A path in the detail may contain any byte.
    return Verdict(available=False, reason=reason, detail=one_line(detail))


def _yes(node: NodeState) -> Verdict:
    """Apply rules 25 and 26."""
    if node.wsrep_local_state == _SYNCED:
        return Verdict(available=True, reason=Reason.SYNCED, detail=_state(node))
    detail = f"{_state(node)}; AVAILABLE_WHEN_DONOR=1"
    return Verdict(available=True, reason=Reason.DONOR, detail=detail)


def _is_in_sync(node: NodeState, limit_seconds: float) -> bool:
    # Before the first read in sync, nothing is known. NaN is no short time.
    waited_seconds = node.sync_wait_seconds or 0.0
    return waited_seconds <= limit_seconds and not node.sync_refused


def _is(value: str | None, word: str) -> bool:
    return value is not None and value.upper() == word


def _absent_or(value: str | None, word: str) -> bool:
    return value is None or _is(value, word)


def _is_provider(value: str | None) -> bool:
    # The value is a path. The only thing certain about a path is that it has letters or digits.
    return value is not None and value.upper() != "NONE" and any(map(str.isalnum, value))


def _seen(node: NodeState, name: str) -> str:
    return f"{name} is {_or_missing(getattr(node, name))}"


def _or_missing(value: str | None) -> str:
    return "missing" if value is None else value or "empty"


def _count(value: int | None) -> str:
    if value is None:
        return "missing"
    return "unreadable" if value == NOT_A_NUMBER else str(value)


def _state(node: NodeState) -> str:
    comment = _or_missing(node.wsrep_local_state_comment)
    return f"wsrep_local_state is {_count(node.wsrep_local_state)} ({comment})"
