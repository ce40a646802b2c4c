"""What is wrong with a set of nodes, which no node's own row shows. Pure.

docs/reference/reasons.md has the remedy of each word.
"""

from collections.abc import Callable, Iterable, Sequence

from app.commands.asking import Answer
from app.verdict.alone import GROUP
from app.verdict.node_state import NOT_A_NUMBER, NodeState
from app.verdict.rules import STANDS_ALONE

FAULTS = {"split", "same-server", "nobody", "no-logins", "held-up"}
"""With one of these words, the nodes are not one healthy cluster."""

_SYNCED = 4
_LATE_SECONDS = 1.0


def remarks_on(answers: Sequence[Answer]) -> dict[str, str]:
    """Return words that never change, and what was seen, in parts that a semicolon separates."""
    # In other states, a node may have an old view, or lag without holding up anybody.
    members = [
        one
        for one in answers
        if one.node.wsrep_local_state == _SYNCED
        if one.node.wsrep_cluster_status == "Primary"
    ]
    known = max(sum(map(bool, one.members)) for one in answers)
    missing = known - len(set(map(_identity, answers)))
    found = {
        "split": _split(members),
        "same-server": _same_server(answers),
        "nobody": "" if missing > 0 else _nobody(answers),
        "no-logins": _no_logins(answers),
        "held-up": _held_up(members, answers),
    }
    if missing > 0:
        found["not-asked"] = (
            f"{missing} of its members; name each: clustercheckd status db1 db2 db3, or one"
            " with --all"
        )
    return {word: seen for word, seen in found.items() if seen}


def _split(members: Sequence[Answer]) -> str:
    # All members of a cluster have one view of it, but one that lags may have an older one.
    current = [
        one
        for one in members
        if not (
            one.node.wsrep_local_recv_queue or one.node.returning or _is_late(one.node)
        )
    ]
    seen = _differences(members, _data) or _differences(current, _view)
    # Views of the same size look alike if the servers show AUTO instead of addresses.
    if not seen and len(set(map(_identity, current))) > len(set(map(_place, current))):
        seen = f"{_names(current)}: two with the same wsrep_local_index"
    return seen and f"each side takes writes; {seen}"


def _nobody(answers: Sequence[Answer]) -> str:
    awake = [one for one in answers if not one.fault]
    # One node alone may not know of the others.
    if len(answers) == 1 or not awake:
        return ""
    if not any(one.available for one in awake):
        if any(one.node.wsrep_cluster_status == "Primary" for one in awake):
            return "no node that answers takes traffic; there is a primary component"
        return "no node that answers takes traffic; do not bootstrap anything yet"
    # A health check of one node may be somebody's curl: what others would answer is not known.
    for path in awake[0].answered:
        if not any(one.answered.get(path, one).available for one in awake):
            return f"no node that answers says yes to {path}"
    return ""


def _same_server(answers: Sequence[Answer]) -> str:
    # One service may have been asked by two of its addresses.
    services: dict[object, dict[object, Answer]] = {}
    for one in answers:
        if one.node.wsrep_local_index not in (None, NOT_A_NUMBER):
            process = one.pid, one.last_reload.at
            services.setdefault(_identity(one), {})[process] = one
    seen = (_names(found.values()) for found in services.values() if len(found) > 1)
    return "; ".join(f"{names} watch one server: see MYSQL_HOST" for names in seen)


def _no_logins(answers: Sequence[Answer]) -> str:
    available = [one for one in answers if one.available]
    if not available or not all(one.login_failure for one in available):
        return ""
    return f"{_names(available)}: logins fail, and open sessions go on"


def _held_up(members: Sequence[Answer], answers: Sequence[Answer]) -> str:
    late = [one for one in members if _is_late(one.node)]
    seen = [f"reads in sync wait on {_names(late)}"] if late else []
    if any(
        one.node.wsrep_flow_control_active == "true"
        or one.node.wsrep_flow_control_status == "ON"
        for one in members
    ):
        queue, longest = max(
            (one.node.wsrep_local_recv_queue or 0, one.address.name) for one in members
        )
        where = longest if queue else "a node that is not shown here"
        seen.append(f"flow control waits for the receive queue on {where}")
    if not seen:
        return ""
    suspects = [
        f"{one.address.name} ({'no answer' if one.fault else one.node.stall or one.reason})"
        for one in answers
        if one.node.wsrep_local_state is None or one.node.stall in STANDS_ALONE
    ]
    hint = f"look first at {', '.join(suspects)}"
    if late and all(one.node.stall == GROUP for one in late):
        hint = "the whole group waits: look for DDL, a large transaction, a lost member"
        if len(late) == 1 < len(members) and len(seen) == 1 and not suspects:
            hint = "others do not wait: run there: mariadb -e 'SHOW PROCESSLIST'"
    elif not suspects:
        hint = "run there: df -h /var/lib/mysql"
    return "; ".join([*seen, hint])


def _is_late(node: NodeState) -> bool:
    return (node.sync_wait_seconds or 0.0) >= _LATE_SECONDS


def _place(answer: Answer) -> object:
    index = answer.node.wsrep_local_index
    return answer.address if index in (None, NOT_A_NUMBER) else index


def _identity(answer: Answer) -> object:
    """Return what no other node of the cluster has, by whatever name this one was asked."""
    node = answer.node
    return node.wsrep_cluster_state_uuid, _place(answer), node.wsrep_node_name


def _names(answers: Iterable[Answer]) -> str:
    return ", ".join(one.address.name for one in answers)


def _data(node: NodeState) -> str:
    return f"data of {node.wsrep_cluster_state_uuid}"


def _view(node: NodeState) -> str:
    # After a partition, both sides count on: the number of the configuration alone does not tell.
    return (
        f"wsrep_cluster_size {node.wsrep_cluster_size}, configuration"
        f" {node.wsrep_cluster_conf_id}, {node.wsrep_incoming_addresses}"
    )


def _differences(members: Sequence[Answer], seen_of: Callable[[NodeState], str]) -> str:
    """Return what is seen of the nodes with their names, empty if it is the same on all."""
    sides: dict[str, list[Answer]] = {}
    for one in members:
        sides.setdefault(seen_of(one.node), []).append(one)
    parts = [f"{_names(side)}: {seen}" for seen, side in sides.items()]
    return "; ".join(parts) if len(parts) > 1 else ""
