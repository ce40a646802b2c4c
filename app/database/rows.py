"""The rows of a MySQL driver, and what a poll read from them."""

import re
from collections.abc import Callable, Iterable
from functools import partial

from app.verdict.node_state import (
    KINDS,
    NOT_A_NUMBER,
    NodeState,
    PollFailure,
    PollResult,
)
from app.verdict.reason import Reason

Cell = str | bytes | int | float | None
"""A value of a MySQL driver."""

Rows = tuple[tuple[Cell, ...], ...]

# As SHOW STATUS prints -1, for example wsrep_local_index outside any component.
_UNSIGNED_MINUS_ONE = 2**64 - 1
# Terminals show these texts.
_UNSAFE = re.compile(r"[^A-Za-z0-9 _/:,.()+\[\]-]")
_TEXT_LIMIT = 60
_LIST_LIMIT = 2048  # as much as a server sends of a status variable
# As SELECT has them.
_SWITCH_POSITIONS = {"1": "ON", "0": "OFF"}


def _text(cell: Cell, limit: int = _TEXT_LIMIT) -> str:
    if cell is None:
        return ""
    text = cell.decode("ascii", "replace") if isinstance(cell, bytes) else str(cell)
    return _UNSAFE.sub("?", text.strip()[:limit])


def _word(cell: Cell) -> str:
    text = _text(cell)
    return _SWITCH_POSITIONS.get(text, text)


def _integer(cell: Cell) -> int:
    text = _text(cell)
    # _text removed digits outside ASCII.
    number = int(text) if text.isdecimal() else NOT_A_NUMBER
    return number if number < _UNSIGNED_MINUS_ONE else NOT_A_NUMBER


_PARSERS: dict[str, Callable[[Cell], int | str]] = {
    "number": _integer,
    "word": _word,
    "text": _text,
    "long text": partial(_text, limit=_LIST_LIMIT),
}


def parse_node_state(rows: Iterable[tuple[Cell, ...]]) -> PollResult:
    """Parse rows of name and value.

    Two values of a name are a failure: to guess which is true would risk a false 200.
    """
    values: dict[str, int | str] = {}
    for row in rows:
        if len(row) != 2:  # noqa: PLR2004 (a name and a value)
            return PollFailure(
                Reason.ERROR, "the server sent a row that is not a name and a value"
            )
        name = _text(row[0]).lower()
        if name not in KINDS:
            continue
        value = _PARSERS[KINDS[name]](row[1])
        if values.setdefault(name, value) != value:
            return PollFailure(
                Reason.ERROR, f"the server sent two different values for {name}"
            )
    return NodeState(**values)  # type: ignore[arg-type]
