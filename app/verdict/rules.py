"""Whether this node may take traffic, and why: the first rule that matches decides.

`_against_node` has the rules on what was read, in their order. docs/reference/reasons.md has the
same order, and says what each means.

A rule refuses a node whose variable is missing or unreadable, except: a server without those of
`_OF_AN_OPEN_NODE`, or those of a read-only node but read_only, lacks the feature; Percona XtraDB
Cluster has wsrep_on only in sessions. No rule reads wsrep_sst_donor_rejects_queries, which Galera 4
only logs.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

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
    return next(verdicts(result, age_seconds, policy, switches, max_age_seconds))


def verdicts(
    result: PollResult | None,
    age_seconds: float,
    policy: Policy,
    switches: Switches,
    max_age_seconds: float = math.inf,
) -> Iterator[Verdict]:
    """Yield the verdict, and what would be the verdict if what speaks against the node went."""
    if switches.disabled_file is not None:
        yield _no(Reason.DISABLED, switches.disabled_file)
    if switches.shutting_down:
        yield _no(Reason.SHUTTING_DOWN, "clustercheckd is shutting down")
    if result is None:
        yield _no(Reason.STARTING, "the first poll of the node has not ended yet")
    # NaN is stale too.
    elif not age_seconds <= max_age_seconds:
        limit = f"{max_age_seconds:.3g} s"
        seen = f"the last completed poll began more than {limit} ago"
        yield _no(Reason.STALE, seen)
    elif isinstance(result, PollFailure):
        yield _no(result.reason, result.detail)
    else:
        for reason, seen in _against_node(result, policy):
            yield _no(reason, seen)
        yield _yes(result)


_Against = Iterator[tuple[Reason, str]]
"""Reasons, and what was seen."""


def _against_node(node: NodeState, policy: Policy) -> _Against:
    # Of the first, each may be the cause of those after it.
    yield from islice(_against_member(node), 1)
    size, least = node.wsrep_cluster_size, policy.min_cluster_size
    if least and (size or 0) < least:
        seen = _seen(node, "wsrep_cluster_size")
        yield Reason.CLUSTER_TOO_SMALL, f"{seen}; MIN_CLUSTER_SIZE={least}"
    if node.rejects_logins is not None:
        yield Reason.REJECTS_LOGINS, node.rejects_logins
    if node.returning:
        yield (
            Reason.BLOCKED,
            "the server hung, and no read in sync has been answered since",
        )
    for reason, name, word in _OF_AN_OPEN_NODE:
        if not _absent_or(getattr(node, name), word):
            yield reason, _seen(node, name)
    if _is(node.max_user_connections, "-1"):
        # It keeps ordinary accounts out.
        yield Reason.MAINTENANCE, _seen(node, "max_user_connections")
    state = node.wsrep_local_state or 0
    if state in (DONOR, _JOINED) and not policy.available_when_donor:
        reason = Reason.DESYNCED if _is(node.wsrep_desync, "ON") else Reason.DONOR
        reason = Reason.JOINED if state == _JOINED else reason
        yield reason, f"{_state(node)}; AVAILABLE_WHEN_DONOR=0"
    if state < _JOINING:
        yield Reason.UNKNOWN_STATE, _state(node)
    yield from _against_open_node(node, policy)


def _against_open_node(node: NodeState, policy: Policy) -> _Against:
    if not policy.available_when_readonly:
        for name in _OF_A_READ_ONLY_NODE:
            value = getattr(node, name)
            # Every server has read_only.
            if not _absent_or(value, _OFF) or (value is None and name == "read_only"):
                seen = _seen(node, name)
                yield Reason.READ_ONLY, f"{seen}; AVAILABLE_WHEN_READONLY=0"
                break
    why = STANDS_ALONE.get(node.stall)
    if why and 0 < policy.max_stall < node.stall_seconds:
        yield Reason(node.stall or ""), f"{why}; MAX_STALL={policy.max_stall:g} s"
    queue, longest = node.wsrep_local_recv_queue, policy.max_recv_queue
    if longest is not None and (queue is None or not 0 <= queue <= longest):
        seen = _seen(node, "wsrep_local_recv_queue")
        yield Reason.LAGGING, f"{seen}; MAX_RECV_QUEUE={longest}"
    # None: no read in sync yet. NaN is no short time.
    waited, limit = node.sync_wait_seconds or 0.0, policy.max_sync_wait
    if limit is not None and (node.sync_refused or not waited <= limit):
        what = "was refused" if node.sync_refused else "waits longer"
        yield Reason.BLOCKED, f"a read in sync {what}; MAX_SYNC_WAIT={limit:g} s"
    connected, most = node.threads_connected, node.max_connections
    is_full = connected is None or most is None or not 0 <= connected < most
    if is_full and not policy.available_when_full:
        used = f"Threads_connected is {_shown(connected)} of max_connections {_shown(most)}"
        yield Reason.FULL, f"{used}; AVAILABLE_WHEN_FULL=0"


def _against_member(node: NodeState) -> _Against:
    state, provider = node.wsrep_local_state, node.wsrep_provider or "none"
    if state is None:
        yield (
            Reason.NOT_GALERA,
            "the server sent no wsrep_local_state: it runs without Galera",
        )
        return
    if not _absent_or(node.wsrep_on, "ON"):
        yield Reason.NOT_GALERA, _seen(node, "wsrep_on")
    # A path has letters or digits: no more is certain.
    if provider.upper() == "NONE" or not any(map(str.isalnum, provider)):
        yield Reason.NOT_GALERA, _seen(node, "wsrep_provider")
    if state >= _INCONSISTENT:
        yield Reason.INCONSISTENT, _state(node)
    if state == _JOINING:
        yield Reason.JOINING, _state(node)
    if _is(node.wsrep_cluster_status, "DISCONNECTED"):
        yield (
            Reason.DISCONNECTED,
            f"wsrep_cluster_status is Disconnected, {_state(node)}",
        )
    for reason, name, word in _OF_A_MEMBER:
        if not _is(getattr(node, name), word):
            yield reason, f"{_seen(node, name)}, {_state(node)}"


_JOINING, DONOR, _JOINED, _SYNCED, _INCONSISTENT = 1, 2, 3, 4, 5
_OFF = "OFF"

STANDS_ALONE: dict[str | None, str] = {
    Reason.CUT_OFF: (
        "packets to all other members were lost, and no later read in sync was answered"
    ),
    Reason.DISK_FULL: "the node waits, and the disk of its data or its binary log was full",
    Reason.STALLED: "write-sets wait, none is applied, and the node alone has paused its group",
}
"""What is seen of a node that stands still while its group goes on."""

_OF_A_MEMBER = (
    (Reason.DISCONNECTED, "wsrep_connected", "ON"),
    (Reason.NON_PRIMARY, "wsrep_cluster_status", "PRIMARY"),
    (Reason.NOT_READY, "wsrep_ready", "ON"),
)
_OF_A_READ_ONLY_NODE = (
    "read_only",
    "super_read_only",
    "tx_read_only",
    "transaction_read_only",
)
_OF_AN_OPEN_NODE = (
    (Reason.REJECTS_QUERIES, "wsrep_reject_queries", "NONE"),
    (Reason.OFFLINE, "offline_mode", _OFF),
    (Reason.NO_NETWORKING, "skip_networking", _OFF),
    (Reason.MAINTENANCE, "pxc_maint_mode", "DISABLED"),
)


def _no(reason: Reason, detail: str) -> Verdict:
    # A path in the detail may contain any byte.
    return Verdict(available=False, reason=reason, detail=one_line(detail))


def _yes(node: NodeState) -> Verdict:
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
