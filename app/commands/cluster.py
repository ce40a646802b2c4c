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


def remarks_on(answers: Sequence[Reply]) -> dict[str, str]:
    """Return words that never change, and what was seen."""
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
    # All members of a cluster have one view of it, but one that lags may have an older one. After a
    # partition, both sides count on: the number of the configuration alone does not tell.
    views = {
        name: f"wsrep_cluster_size {node.wsrep_cluster_size}, configuration"
        f" {node.wsrep_cluster_conf_id} of {str(node.wsrep_cluster_state_uuid)[:8]}"
        for name, node in members.items()
        if not node.wsrep_local_recv_queue and not _is_late(node)
    }
    return _differences("each side takes writes", views)


def _nobody(answers: Sequence[Reply]) -> str:
    if len(answers) == 1 or any(one.status.available for one in answers):
        return ""
    return "no node takes traffic; do not bootstrap anything yet"


def _held_up(members: Mapping[str, NodeState]) -> str:
    seen, late = "reads in sync wait", [name for name, node in members.items() if _is_late(node)]
    for node in members.values():
        if _PAUSED & {node.wsrep_flow_control_active, node.wsrep_flow_control_status}:
            longest = max(members, key=lambda name: members[name].wsrep_local_recv_queue or 0)
            seen, late = "flow control waits for the receive queue", [longest]
    return f"{seen} on {', '.join(late)}; run there: df -h /var/lib/mysql" if late else ""


def _not_asked(answers: Sequence[Reply]) -> str:
    missing = max(len(one.addresses) for one in answers) - len(answers)
    return f"{missing} of its members; run: clustercheckd status --all" if missing > 0 else ""


def _versions(members: Mapping[str, NodeState]) -> str:
    # What follows the number depends on options too, such as -log.
    versions = {name: str(node.version).partition("-")[0] for name, node in members.items()}
    return _differences("an upgrade is not finished", versions)


def _is_late(node: NodeState) -> bool:
    return (node.sync_wait_seconds or 0.0) >= _LATE_SECONDS


def _differences(what: str, seen: Mapping[str, str]) -> str:
    """Return what was seen with the names of the nodes, empty if it is the same on all."""
    sides = {text: ", ".join(name for name in seen if seen[name] == text) for text in seen.values()}
    if len(sides) < 2:  # noqa: PLR2004 (a difference)
        return ""
    return f"{what}; " + "; ".join(f"{side}: {text}" for text, side in sides.items())
