"""`clustercheckd status`: one table of what running services report about their nodes."""

import json
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.commands.asking import OTHER_PROGRAM, NoAnswerError, Reply, ask_all
from app.commands.rows import number, painted, print_until_stopped
from app.commands.standard_streams import print_line, say
from app.commands.targets import Target, own_target, typed_target
from app.settings import Settings

AVAILABLE, NOT_AVAILABLE = 0, 1
"""Exit statuses. `AVAILABLE`: at least one node is available."""

_ANSWER_SECONDS = 2.0
_ROUND_SECONDS = 1.0
_CELL_LENGTH = 60
_HEADER = ("node", "verdict", "reason", "since", "state", "size", "recvq")
_HOME, _CLEAR_LINE, _CLEAR_REST = "\x1b[H", "\x1b[K", "\x1b[J"


@dataclass(frozen=True, slots=True)
class _Answer:
    """The JSON of one service's /status, or one line that says why there is none."""

    target: str
    status: Mapping[str, Any] | None = None
    fault: str | None = None

    @property
    def available(self) -> bool:
        return self.status is not None and self.status["available"]


def status(settings: Settings, targets: Sequence[str], *, as_json: bool, watching: bool) -> int:
    """Ask the services at these addresses and print a row for each. Without an address, ask the configured service.

    Raises `SettingsError` for an address that is none.
    """
    port = settings.clustercheck_port
    asked = [typed_target(text, port) for text in targets] or [own_target(settings)]
    shown = _as_json if as_json else _as_table
    if not watching:
        answers = _ask_all(asked)
        say(shown(answers))
        return AVAILABLE if any(answer.available for answer in answers) else NOT_AVAILABLE
    return print_until_stopped(lambda: _watch(asked, shown))


def _watch(asked: Sequence[Target], shown: Callable[[Sequence[_Answer]], str]) -> OSError:
    """Ask and print once a second until standard output fails; return that failure."""
    while True:
        began = time.monotonic()
        fault = print_line(_in_place(shown(_ask_all(asked))))
        if fault is not None:
            return fault
        time.sleep(max(0.0, began + _ROUND_SECONDS - time.monotonic()))


def _in_place(text: str) -> str:
    """On a terminal, overwrite the previous text."""
    if not sys.stdout.isatty():
        return text
    # Overwriting, and clearing only the rest, avoids flicker.
    return f"{_HOME}{text}\n".replace("\n", f"{_CLEAR_LINE}\n") + _CLEAR_REST


def _ask_all(targets: Sequence[Target]) -> list[_Answer]:
    replies = ask_all(targets, "/status", _ANSWER_SECONDS)
    return [_answer(target.name, reply) for target, reply in zip(targets, replies, strict=True)]


def _answer(target: str, reply: Reply | NoAnswerError) -> _Answer:
    if isinstance(reply, NoAnswerError):
        return _Answer(target, fault=str(reply))
    try:
        document = json.loads(reply.body)
        if isinstance(document["available"], bool) and isinstance(document["reason"], str):
            return _Answer(target, document)
    except (ValueError, TypeError, LookupError, RecursionError):
        pass
    return _Answer(target, fault=OTHER_PROGRAM)


def _as_json(answers: Sequence[_Answer]) -> str:
    """Return one line of JSON."""
    documents = [{"target": answer.target, "status": answer.status, "fault": answer.fault} for answer in answers]
    return json.dumps(documents)


def _as_table(answers: Sequence[_Answer]) -> str:
    """Return a row for each service, and below them a line for each node that is not available."""
    rows = [_HEADER, *(_row(answer) for answer in answers)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    header, *lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    lines = [painted(line, available=answer.available) for line, answer in zip(lines, answers, strict=True)]
    words = [line for answer in answers if (line := _in_words(answer))]
    return "\n".join([header, *lines, *words])


def _row(answer: _Answer) -> tuple[str, ...]:
    if answer.status is None:
        return (answer.target, "no answer", *["-"] * (len(_HEADER) - 2))
    seen = answer.status
    node = seen["node"] if isinstance(seen.get("node"), dict) else {}
    name = _cell(node.get("wsrep_node_name"))
    return (
        answer.target if name in ("-", answer.target) else f"{answer.target} ({name})",
        "available" if answer.available else "draining" if seen.get("draining") else "NOT available",
        _cell(seen["reason"]),
        re.sub(r"\.\d+", "", _cell(seen.get("since"))),
        _cell(node.get("wsrep_local_state_comment")),
        number(node.get("wsrep_cluster_size")),
        number(node.get("wsrep_local_recv_queue")),
    )


def _in_words(answer: _Answer) -> str | None:
    """Return why a node is not available; None if it is available."""
    if answer.available:
        return None
    if answer.status is None:
        return f"{answer.target}: {answer.fault}"
    return f"{answer.target}: {_cell(answer.status['reason'])}: {_cell(answer.status.get('detail'), limit=None)}"


def _cell(value: object, limit: int | None = _CELL_LENGTH) -> str:
    # Any program may answer there. Do not pass its control characters to a terminal.
    if not isinstance(value, str) or not value:
        return "-"
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in value[:limit])
