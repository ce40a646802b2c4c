"""`clustercheckd status`: one table of what running services report about their nodes."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime

from app.commands.asking import Reply, Service, ask
from app.commands.exit_status import AVAILABLE, DONE, FAILED, NOT_AVAILABLE
from app.commands.output import say

_PAUSE_SECONDS = 1.0
_CELL_LENGTH = 60
_UNITS = {"d": 86400, "h": 3600, "m": 60}
_HEADER = ("node", "verdict", "reason", "since", "state", "size", "recvq")
_CLEAR = "\x1b[H\x1b[J"


def status(services: Sequence[Service], *, as_json: bool, watching: bool) -> int:
    """Ask these services and print a row for each; return the exit status.

    watching: ask and print again until an interrupt.
    """
    render = _as_json if as_json else _as_table
    if not watching:
        answers = ask(services)
        say(render(answers))
        return AVAILABLE if all(answer.status.available for answer in answers) else NOT_AVAILABLE
    text = render(ask(services))
    try:
        while say(text if as_json else _in_place(text)):
            time.sleep(_PAUSE_SECONDS)
            text = render(ask(services))
    except KeyboardInterrupt:
        return DONE
    return FAILED


def _in_place(text: str) -> str:
    """Put the time above the text. On a terminal, it replaces the previous text."""
    clear = _CLEAR if sys.stdout.isatty() else ""
    return f"{clear}{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}\n{text}"


def _as_json(answers: Sequence[Reply]) -> str:
    """Return one line of JSON."""
    documents = [
        {"target": one.service.name, "status": one.document, "fault": one.fault or None}
        for one in answers
    ]
    return json.dumps(documents)


def _as_table(answers: Sequence[Reply]) -> str:
    """Return a row for each service, and below them what else there is to know about it."""
    rows = [_HEADER, *(_row(answer) for answer in answers)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    for answer in answers:
        lines += (f"{answer.service.name}: {note}" for note in _notes(answer))
    return "\n".join(lines)


def _notes(answer: Reply) -> Iterator[str]:
    node, login_failure = answer.status.node, answer.status.login_failure
    if not answer.status.available:
        yield answer.reason
    elif login_failure:
        yield f"its logins fail: {login_failure.words}"
    if node.sync_wait_seconds is not None and node.sync_wait_seconds >= 1:
        yield f"a read in sync has waited {node.sync_wait_seconds:.0f} s"
    if node.wsrep_last_committed is not None and node.wsrep_cluster_status != "Primary":
        # What to compare before a bootstrap.
        yield f"wsrep_last_committed is {node.wsrep_last_committed}"


def _row(answer: Reply) -> list[str]:
    status, node, name = answer.status, answer.status.node, answer.service.name
    if node.wsrep_node_name not in (None, name):
        name = f"{name} ({_cell(node.wsrep_node_name)})"
    reason = _cell(status.reason)
    if status.otherwise:
        reason = f"{reason}; otherwise {_cell(status.otherwise.reason)}"
    cells = (node.wsrep_local_state_comment, node.wsrep_cluster_size, node.wsrep_local_recv_queue)
    return [name, answer.verdict, reason, age_since(status.since), *map(_cell, cells)]


def age_since(since: str) -> str:
    """Return the time since then in its largest unit of which there are two, as kubectl does."""
    try:
        seconds = max(0, int(time.time() - datetime.fromisoformat(since).timestamp()))
    except (ValueError, OverflowError):
        return "-"
    for unit, length in _UNITS.items():
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def _cell(value: object) -> str:
    return "-" if value is None else str(value)[:_CELL_LENGTH]
