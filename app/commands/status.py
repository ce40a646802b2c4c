"""`clustercheckd status`: one table of what running services report about their nodes."""

import json
import os
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial

from app import __version__
from app.commands.asking import Answer, address_at, ask, members_of, own_address
from app.commands.cluster import FAULTS, remarks_on
from app.commands.exit_status import (
    AVAILABLE,
    FAILED,
    NOT_AVAILABLE,
    NOT_ONE_CLUSTER,
)
from app.commands.output import SEE_REASONS, say
from app.settings.source import Source
from app.text import one_line
from app.verdict.node_state import ELSEWHERE, NodeState
from app.verdict.rules import word_of

_PAUSE_SECONDS = 1.0
_UNITS = {"d": 86400, "h": 3600, "m": 60}
_HEADER = ("node", "verdict", "reason", "since", "size", "recvq", "state")
_CLEAR = "\x1b[H\x1b[J"


def status(source: Source, typed: Namespace) -> int:
    """Ask services and print a row for each; return the exit status. Raises `SettingsError`.

    typed: addresses, all, json, and watch: ask and print again until an interrupt.
    """
    own = own_address(source)
    addresses = [address_at(text, own.port) for text in typed.addresses] or [own]
    if typed.all:
        addresses = members_of(addresses)
    render = _as_json if typed.json else partial(_as_table, settings=typed.settings)
    if typed.watch:
        clear = _CLEAR if os.isatty(1) else ""
        while say(f"{clear}{render(ask(addresses))}"):
            time.sleep(_PAUSE_SECONDS)
        return FAILED
    answers = ask(addresses)
    if _exit_status(answers) == NOT_ONE_CLUSTER:
        # A change of membership, or a pause, reaches the nodes one after the other.
        time.sleep(_PAUSE_SECONDS)
        answers = ask(addresses)
    say(render(answers))
    return _exit_status(answers)


def _exit_status(answers: Sequence[Answer]) -> int:
    if not FAULTS.isdisjoint(remarks_on(answers)):
        return NOT_ONE_CLUSTER
    return AVAILABLE if all(one.available for one in answers) else NOT_AVAILABLE


def _as_json(answers: Sequence[Answer]) -> str:
    nodes = [
        {"target": one.address.name, "status": one.document, "fault": one.fault or None}
        for one in answers
    ]
    return json.dumps({"cluster": remarks_on(answers), "nodes": nodes})


def _as_table(answers: Sequence[Answer], *, settings: bool) -> str:
    rows = [_HEADER, *(_row(answer) for answer in answers)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    for word, seen in remarks_on(answers).items():
        lines += f"cluster: {word}: {seen}".replace("; ", "\n  ").splitlines()
    for answer in answers:
        lines += (f"{answer.address.name}: {note}" for note in _notes(answer))
    if len(lines) > len(rows):
        lines.append(SEE_REASONS)
    for answer in answers if settings else ():
        for name, one in answer.settings.items():
            lines.append(f"{answer.address.name}: {name}={one.value} ({one.source})")
    return "\n".join(map(one_line, lines))


def _notes(answer: Answer) -> Iterator[str]:
    reload = answer.last_reload
    if not answer.available:
        yield answer.fault or answer.words
        yield from (f"also {one.words}" for one in answer.also)
    elif answer.login_failure:
        yield f"its logins fail: {answer.login_failure.words}"
    if answer.version not in (None, __version__):
        yield f"runs {answer.version}, and this command is {__version__}"
    for path, verdict in answer.answered.items():
        if "?" in path:
            word = word_of(available=verdict.available, draining=False)
            yield f"{word} for {path}: {verdict.words}"
    yield from _notes_on(answer.node)
    for cause, latest in answer.connections.latest.items():
        ago = age_since(latest.at)
        yield f"turned away {latest.client} {ago} ago: {cause}: {latest.detail}"
    yield from (f"settings: {line}" for line in reload.warnings)
    if reload.complaints:
        ago = age_since(reload.at)
        told = "; ".join(reload.complaints)
        yield f"reload refused {ago} ago, and not tried again since: {told}"


def _notes_on(node: NodeState) -> Iterator[str]:
    if node.elsewhere:
        yield ELSEWHERE
    if node.wsrep_osu_method == "RSU":
        yield "wsrep_OSU_method is RSU: DDL changes this node alone"
    if node.wsrep_last_committed is not None and node.wsrep_cluster_status != "Primary":
        # What to compare before a bootstrap.
        yield f"wsrep_last_committed is {node.wsrep_last_committed}"


def _row(answer: Answer) -> list[str]:
    node, name, reason = answer.node, answer.address.name, answer.reason
    if node.wsrep_node_name not in (None, name):
        name = f"{name} ({node.wsrep_node_name})"
    if answer.otherwise:
        reason = f"{reason}; otherwise {answer.otherwise.reason}"
    seen = (
        node.wsrep_cluster_size,
        node.wsrep_local_recv_queue,
        node.wsrep_local_state_comment,
    )
    cells = ("-" if value is None else str(value) for value in seen)
    return [name, answer.verdict, reason, age_since(answer.since), *cells]


def age_since(since: datetime | None) -> str:
    """Return the time since then in its largest unit of which there are two, as kubectl does."""
    if since is None:
        return "-"
    seconds = max(0, int(time.time() - since.timestamp()))
    for unit, length in _UNITS.items():
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"
