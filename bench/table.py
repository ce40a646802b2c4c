"""The rows of the result, as Markdown."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Row(NamedTuple):
    """One figure. met: whether the goal is; None where this machine cannot tell."""

    measured: str
    ours: str
    beside: str
    result: str
    goal: str
    met: bool | None


_MET = {True: "met", False: "**NOT met**", None: "this machine cannot tell"}
_HEADER = ("measured", "clustercheckd", "beside it", "result", "goal", "")


def markdown(rows: Iterable[Row]) -> str:
    """Return the rows as a table."""
    lines = [_line(_HEADER), _line(["---"] * len(_HEADER))]
    for row in rows:
        *cells, met = row
        lines.append(_line([*cells, _MET[met]]))
    return "\n".join(lines)


def microseconds(seconds: float) -> str:
    """Return a time in microseconds, with thousands separators."""
    return f"{seconds * 1e6:,.0f} µs"


def milliseconds(seconds: float) -> str:
    """Return a time in milliseconds, with thousands separators."""
    return f"{seconds * 1e3:,.0f} ms"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
