"""`clustercheckd status`: one table of what running services report about their nodes."""

import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from app.commands.exit_status import AVAILABLE, DONE, FAILED, NOT_AVAILABLE
from app.commands.output import say
from app.commands.services import Answer, Service, ask, keep_asking, part_of, text_in, why

_CELL_LENGTH = 60
_MOST = 2**63
_UNITS = {"d": 86400, "h": 3600, "m": 60}
_HEADER = ("node", "verdict", "reason", "since", "state", "size", "recvq")
_CLEAR = "\x1b[H\x1b[J"


def status(services: Sequence[Service], *, as_json: bool, watching: bool) -> int:
    """Ask these services and print a row for each; return the exit status. watching: again every second."""
    if not watching:
        answers = ask(services)
        say(_as_json(answers) if as_json else _as_table(answers))
        return AVAILABLE if all(answer.available for answer in answers) else NOT_AVAILABLE
    try:
        for answers in keep_asking(services):
            if not say(_as_json(answers) if as_json else _in_place(_as_table(answers))):
                return FAILED
    except KeyboardInterrupt:
        pass
    return DONE


def _in_place(text: str) -> str:
    """Put the time above the text. On a terminal, replace the previous text, and cut it to the size of the window."""
    text = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}\n{text}"
    if not sys.stdout.isatty():
        return text
    columns, lines = shutil.get_terminal_size()
    # The last line of the window is for the cursor.
    shown = text.split("\n")[: lines - 1]
    return _CLEAR + "\n".join(line[:columns] for line in shown)


def _as_json(answers: Sequence[Answer]) -> str:
    """Return one line of JSON."""
    documents = [{"target": one.service.name, "status": one.status, "fault": one.fault or None} for one in answers]
    return json.dumps(documents)


def _as_table(answers: Sequence[Answer]) -> str:
    """Return a row for each service, and below them what else there is to know about it."""
    rows = [_HEADER, *(_row(answer) for answer in answers)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    for answer in answers:
        seen = answer.status or {}
        if not answer.available:
            lines.append(f"{answer.service.name}: {answer.reason}")
        elif failure := part_of(seen, "login_failure"):
            lines.append(f"{answer.service.name}: its logins fail: {why(failure)}")
        node = part_of(seen, "node")
        waited = node.get("sync_wait_seconds")
        if isinstance(waited, float | int) and 1 <= waited < _MOST:
            lines.append(f"{answer.service.name}: a read in sync has waited {waited:.0f} s")
        committed = _number(node, "wsrep_last_committed")
        if committed != "-" and _cell(node, "wsrep_cluster_status") != "Primary":
            # What to compare before a bootstrap.
            lines.append(f"{answer.service.name}: wsrep_last_committed is {committed}")
    return "\n".join(lines)


def _row(answer: Answer) -> tuple[str, ...]:
    seen = answer.status or {}
    node = part_of(seen, "node")
    name, reason, otherwise = _cell(node, "wsrep_node_name"), _cell(seen, "reason"), part_of(seen, "otherwise")
    return (
        answer.service.name if name in ("-", answer.service.name) else f"{answer.service.name} ({name})",
        answer.verdict,
        f"{reason}; otherwise {_cell(otherwise, 'reason')}" if otherwise else reason,
        _age(text_in(seen, "since")),
        _cell(node, "wsrep_local_state_comment"),
        _number(node, "wsrep_cluster_size"),
        _number(node, "wsrep_local_recv_queue"),
    )


def _age(since: str) -> str:
    """Return the time since then in its largest unit of which there are at least two, as kubectl does."""
    try:
        seconds = max(0, int(time.time() - datetime.fromisoformat(since).timestamp()))
    except (ValueError, OverflowError):
        return "-"
    for unit, length in _UNITS.items():
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def _cell(document: Mapping[str, Any], name: str) -> str:
    return text_in(document, name)[:_CELL_LENGTH]


def _number(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    return str(value) if isinstance(value, int) and 0 <= value < _MOST else "-"
