"""What is wrong with a set of nodes, which no node's own row shows. Pure.

docs/reference/reasons.md has the remedy of each word.
"""

from collections.abc import Mapping, Sequence

from app.commands.asking import Reply
from app.verdict.node_state import NodeState

FAULTS = {"split", "nobody", "held-up"}
"""With one of these words, the nodes are not one healthy cluster."""

_SYNCED = 4
_LATE_SECONDS = 1.0
_PAUSED = {"true", "ON"}
_SPLIT = "each side takes writes"
_NAME_THEM = (
    "their servers show no addresses, name each: clustercheckd status db1 db2 db3"
)


def remarks_on(answers: Sequence[Reply]) -> dict[str, str]:
    """Return words that never change, and what was seen, in parts that a semicolon separates."""
    # In other states, a node may have an old view, or lag without holding up anybody.
    members = {
        one.service.name: one.node
        for one in answers
        if one.node.wsrep_local_state == _SYNCED
        if one.node.wsrep_cluster_status == "Primary"
    }
    found = {
        "split": _split(members),
        "nobody": _nobody(answers),
        "held-up": _held_up(members),
        "not-asked": _not_asked(answers),
        "versions": _versions(members),
    }
    return {word: seen for word, seen in found.items() if seen}


def _split(members: Mapping[str, NodeState]) -> str:
    data = {
        name: f"data of {node.wsrep_cluster_state_uuid}"
        for name, node in members.items()
    }
    # All members of a cluster have one view of it, but one that lags may have an older one.
    current = {
        name: node
        for name, node in members.items()
        if not (node.wsrep_local_recv_queue or node.returning or _is_late(node))
    }
    # After a partition, both sides count on: the number of the configuration alone does not tell.
    views = {
        name: f"wsrep_cluster_size {node.wsrep_cluster_size}, configuration"
        f" {node.wsrep_cluster_conf_id}, {node.wsrep_incoming_addresses}"
        for name, node in current.items()
    }
    return (
        _differences(_SPLIT, data)
        or _differences(_SPLIT, views)
        or _same_place(current)
    )


def _same_place(members: Mapping[str, NodeState]) -> str:
    # Views of the same size look alike if the servers show AUTO instead of addresses.
    places: dict[int | None, dict[str | None, str]] = {}
    for name, node in members.items():
        places.setdefault(node.wsrep_local_index, {})[node.wsrep_node_name] = name
    for index, holders in places.items():
        if len(holders) > 1 and index is not None:
            return f"{_SPLIT}; {', '.join(holders.values())}: each has wsrep_local_index {index}"
    return ""


def _nobody(answers: Sequence[Reply]) -> str:
    answered = [one for one in answers if not one.fault]
    is_alone = len(answers) == 1 or _missing(answers) > 0
    if not answered or is_alone or any(one.status.available for one in answered):
        return ""
    silent = len(answers) - len(answered)
    unknown = f"; {silent} gave no answer: look there too" if silent else ""
    return f"no node that answers takes traffic; do not bootstrap anything yet{unknown}"


def _held_up(members: Mapping[str, NodeState]) -> str:
    seen = []
    if late := [name for name, node in members.items() if _is_late(node)]:
        seen.append(f"reads in sync wait on {', '.join(late)}")
    if any(_is_paused(node) for node in members.values()):
        queues = {
            name: node.wsrep_local_recv_queue or 0 for name, node in members.items()
        }
        longest = max(queues, key=lambda name: queues[name])
        where = longest if queues[longest] else "a node that is not shown here"
        seen.append(f"flow control waits for the receive queue on {where}")
    return "; ".join([*seen, "run there: df -h /var/lib/mysql"]) if seen else ""


def _not_asked(answers: Sequence[Reply]) -> str:
    missing = _missing(answers)
    if missing <= 0:
        return ""
    known = [one.service.name for one in answers if any(one.hosts)]
    hint = f"run: clustercheckd status --all {known[0]}" if known else _NAME_THEM
    return f"{missing} of its members; {hint}"


def _missing(answers: Sequence[Reply]) -> int:
    """Return how many members were not asked."""
    return max(sum(map(bool, one.addresses)) for one in answers) - len(answers)


def _versions(members: Mapping[str, NodeState]) -> str:
    # What follows the number depends on options too, such as -log.
    versions = {
        name: str(node.version).partition("-")[0] for name, node in members.items()
    }
    return _differences("an upgrade is not finished", versions)


def _is_late(node: NodeState) -> bool:
    return (node.sync_wait_seconds or 0.0) >= _LATE_SECONDS


def _is_paused(node: NodeState) -> bool:
    return not _PAUSED.isdisjoint(
        {node.wsrep_flow_control_active, node.wsrep_flow_control_status}
    )


def _differences(what: str, seen: Mapping[str, str]) -> str:
    """Return what was seen with the names of the nodes, empty if it is the same on all."""
    sides = {
        text: ", ".join(name for name in seen if seen[name] == text)
        for text in seen.values()
    }
    if len(sides) < 2:  # noqa: PLR2004 (a difference)
        return ""
    return "; ".join([what, *(f"{side}: {text}" for text, side in sides.items())])
