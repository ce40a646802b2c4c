"""What is wrong with a set of nodes, which no node's own row shows. Pure.

docs/reference/reasons.md has the remedy of each word.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from app.commands.asking import Answer
from app.verdict.node_state import NOT_A_NUMBER, NodeState
from app.verdict.rules import STANDS_ALONE

FAULTS = {"split", "nobody", "held-up"}
"""With one of these words, the nodes are not one healthy cluster."""

_SYNCED = 4
_LATE_SECONDS = 1.0
_SPLIT = "each side takes writes"


def remarks_on(answers: Sequence[Answer]) -> dict[str, str]:
    """Return words that never change, and what was seen, in parts that a semicolon separates."""
    # In other states, a node may have an old view, or lag without holding up anybody.
    members = {
        one.address.name: one.node
        for one in answers
        if one.node.wsrep_local_state == _SYNCED
        if one.node.wsrep_cluster_status == "Primary"
    }
    asked = _grouped({one.address.name: one for one in answers}, _identity)
    missing = max(sum(map(bool, one.member_addresses)) for one in answers) - len(asked)
    found = {
        "split": _split(members),
        "nobody": "" if missing > 0 else _nobody(answers),
        "held-up": _held_up(members, answers),
        "not-asked": _not_asked(missing, asked.values()) if missing > 0 else "",
    }
    return {word: seen for word, seen in found.items() if seen}


def is_late(node: NodeState) -> bool:
    """Return whether reads in sync wait on a node."""
    return (node.sync_wait_seconds or 0.0) >= _LATE_SECONDS


def _split(members: Mapping[str, NodeState]) -> str:
    # All members of a cluster have one view of it, but one that lags may have an older one.
    current = {
        name: node
        for name, node in members.items()
        if not (node.wsrep_local_recv_queue or node.returning or is_late(node))
    }
    return (
        _differences(members, _data)
        or _differences(current, _view)
        or _same_place(current)
    )


def _same_place(members: Mapping[str, NodeState]) -> str:
    # Views of the same size look alike if the servers show AUTO instead of addresses.
    for index, names in _grouped(members, lambda node: node.wsrep_local_index).items():
        nodes = {members[name].wsrep_node_name for name in names}
        if len(nodes) > 1 and index is not None:
            return f"{_SPLIT}; {', '.join(names)}: each has wsrep_local_index {index}"
    return ""


def _nobody(answers: Sequence[Answer]) -> str:
    silent = sum(bool(one.fault) for one in answers)
    # One node alone may not know of the others.
    if len(answers) in (1, silent) or any(one.available for one in answers):
        return ""
    return "no node that answers takes traffic; do not bootstrap anything yet"


def _held_up(members: Mapping[str, NodeState], answers: Sequence[Answer]) -> str:
    late = [name for name, node in members.items() if is_late(node)]
    seen = [f"reads in sync wait on {', '.join(late)}"] if late else []
    if any(
        node.wsrep_flow_control_active == "true"
        or node.wsrep_flow_control_status == "ON"
        for node in members.values()
    ):
        queue, longest = max(
            (node.wsrep_local_recv_queue or 0, name) for name, node in members.items()
        )
        where = longest if queue else "a node that is not shown here"
        seen.append(f"flow control waits for the receive queue on {where}")
    if not seen:
        return ""
    hint = "run there: df -h /var/lib/mysql"
    if suspects := [
        f"{one.address.name} ({'no answer' if one.fault else one.node.stall or one.reason})"
        for one in answers
        if one.node.wsrep_local_state is None or one.node.stall in STANDS_ALONE
    ]:
        hint = f"look first at {', '.join(suspects)}"
    elif 1 < len(late) == len(members):
        hint = "none of them is seen to hold up the others: look for DDL, or a member that has gone"
    return "; ".join([*seen, hint])


def _identity(answer: Answer) -> object:
    """Return what no other node of the cluster has, by whatever name this one was asked."""
    node = answer.node
    if node.wsrep_local_index in (None, NOT_A_NUMBER):
        return answer.address
    return node.wsrep_cluster_state_uuid, node.wsrep_local_index, node.wsrep_node_name


def _not_asked(missing: int, asked: Iterable[Sequence[str]]) -> str:
    # A member may announce localhost.
    twice = [f"; {', '.join(names)} are one node" for names in asked if len(names) > 1]
    hint = "name each: clustercheckd status db1 db2 db3, or one with --all"
    return f"{missing} of its members{''.join(twice)}; {hint}"


def _data(node: NodeState) -> str:
    return f"data of {node.wsrep_cluster_state_uuid}"


def _view(node: NodeState) -> str:
    # After a partition, both sides count on: the number of the configuration alone does not tell.
    return (
        f"wsrep_cluster_size {node.wsrep_cluster_size}, configuration"
        f" {node.wsrep_cluster_conf_id}, {node.wsrep_incoming_addresses}"
    )


def _differences(
    members: Mapping[str, NodeState], seen_of: Callable[[NodeState], str]
) -> str:
    """Return what is seen of the nodes with their names, empty if it is the same on all."""
    sides = _grouped(members, seen_of)
    if len(sides) < 2:  # noqa: PLR2004 (a difference)
        return ""
    parts = (f"{', '.join(names)}: {seen}" for seen, names in sides.items())
    return "; ".join([_SPLIT, *parts])


def _grouped(
    named: Mapping[str, Any], key_of: Callable[[Any], Any]
) -> dict[Any, list[str]]:
    """Return the names of those with the same key."""
    groups: dict[Any, list[str]] = {}
    for name, one in named.items():
        groups.setdefault(key_of(one), []).append(name)
    return groups
