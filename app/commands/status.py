"""`clustercheckd status`: one table of what running services report about their nodes."""

import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from app.commands.exit_status import AVAILABLE, DONE, FAILED, NOT_AVAILABLE
from app.commands.output import say
from app.commands.services import Answer, Service, ask, text_in, why

_PAUSE_SECONDS = 1.0
_CELL_LENGTH = 60
_MOST = 10**9
_HEADER = ("node", "verdict", "reason", "since", "state", "size", "recvq")
_CLEAR = "\x1b[H\x1b[J"


def status(services: Sequence[Service], *, as_json: bool, watching: bool) -> int:
    """Ask these services and print a row for each; return the exit status. watching: again every second."""
    shown = _as_json if as_json else _as_table
    if not watching:
        answers = ask(services)
        say(shown(answers))
        return AVAILABLE if any(answer.available for answer in answers) else NOT_AVAILABLE
    try:
        while say(_in_place(shown(ask(services)))):
            time.sleep(_PAUSE_SECONDS)
    except KeyboardInterrupt:
        return DONE
    return FAILED


def _in_place(text: str) -> str:
    """On a terminal, replace the previous text."""
    return f"{_CLEAR}{text}" if sys.stdout.isatty() else text


def _as_json(answers: Sequence[Answer]) -> str:
    """Return one line of JSON."""
    documents = [{"target": one.service.name, "status": one.status, "fault": one.fault or None} for one in answers]
    return json.dumps(documents)


def _as_table(answers: Sequence[Answer]) -> str:
    """Return a row for each service, and below them a line for each that is not available or cannot log in."""
    rows = [_HEADER, *(_row(answer) for answer in answers)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    for answer in answers:
        if not answer.available:
            lines.append(f"{answer.service.name}: {answer.reason}")
        elif answer.status and isinstance(failure := answer.status.get("login_failure"), dict):
            lines.append(f"{answer.service.name}: its logins fail: {why(failure)}")
    return "\n".join(lines)


def _row(answer: Answer) -> tuple[str, ...]:
    seen = answer.status or {}
    node = seen.get("node")
    node = node if isinstance(node, dict) else {}
    name = _cell(node, "wsrep_node_name")
    return (
        answer.service.name if name in ("-", answer.service.name) else f"{answer.service.name} ({name})",
        answer.verdict,
        _cell(seen, "reason"),
        re.sub(r"\.\d+", "", _cell(seen, "since")),
        _cell(node, "wsrep_local_state_comment"),
        _number(node, "wsrep_cluster_size"),
        _number(node, "wsrep_local_recv_queue"),
    )


def _cell(document: Mapping[str, Any], name: str) -> str:
    return text_in(document, name)[:_CELL_LENGTH]


def _number(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    return str(value) if isinstance(value, int) and 0 <= value < _MOST else "-"
