"""The rows of the result, as Markdown."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import quantiles


@dataclass(frozen=True)
class Row:
    """One figure. met: None if there is no goal."""

    measured: str
    ours: str
    beside: str
    result: str
    goal: str = ""
    met: bool | None = None


_HEADER = ("measured", "clustercheckd", "beside it", "result", "goal", "")
_MET = {None: "", True: "met", False: "**NOT met**"}


def markdown(rows: Iterable[Row]) -> str:
    """Return the rows as a table."""
    cells = [
        (row.measured, row.ours, row.beside, row.result, row.goal, _MET[row.met]) for row in rows
    ]
    return "\n".join([_line(_HEADER), _line(["---"] * len(_HEADER)), *map(_line, cells)])


def percentile(values: Sequence[float], percent: int) -> float:
    """Return a percentile, within the range of the values."""
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def microseconds(seconds: float) -> str:
    """Return a time in microseconds, with thousands separators."""
    return f"{seconds * 1e6:,.0f} µs"


def milliseconds(seconds: float) -> str:
    """Return a time in milliseconds, with thousands separators."""
    return f"{seconds * 1e3:,.0f} ms"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
