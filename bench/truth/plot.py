"""Draws a truth run over time.

For each kind of fault, it shows whether a node was usable and what the checkers answered.

Needs the dependency group `plot` (matplotlib), which `make truth ARGS="--plot FILE.png"` installs.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bench.truth.report import (
    AFTER_SECONDS,
    IN_SYNC,
    OURS,
    SCRIPT,
    TRUTH,
    Report,
    Window,
)
from bench.truth.stretches import (
    SAYS_200,
    SAYS_503,
    UNUSABLE,
    USABLE,
    Sample,
    Stretch,
    intersection,
    settled,
    stretches,
    with_silences,
)

_BEFORE_SECONDS, _MOST_SECONDS = 1.0, 14.0
_INCHES_WIDE, _INCHES_A_ROW, _DOTS_PER_INCH = 14.0, 0.36, 100
# Two colours that differ for colour-blind readers and in greyscale.
_GOOD, _BAD, _SILENT = "#56b4e9", "#d55e00", "#dddddd"
_COLOURS = {USABLE: _GOOD, SAYS_200: _GOOD, UNUSABLE: _BAD, SAYS_503: _BAD}
_BANDS = (TRUTH, OURS, IN_SYNC, SCRIPT)
"""What is drawn of each fault, from the top."""
_ROW, _BAND = 0.84, 0.84 / len(_BANDS)


def draw(report: Report, path: Path) -> None:
    """Write the picture as PNG, whatever the suffix of path.

    Raises OSError if the file cannot be written.
    """
    mpl.rcParams.update({"font.size": 9})
    worst = report.worst()
    inches = (_INCHES_WIDE, 2 + _INCHES_A_ROW * len(worst))
    figure = Figure(figsize=inches, dpi=_DOTS_PER_INCH, layout="constrained")
    axes = figure.subplots()
    for row, window in enumerate(worst):
        _draw_row(axes, row, window, report.nodes[window.node])
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(worst)), [window.kind for window in worst])
    axes.set_ylim(len(worst) - 0.5, -0.5)
    axes.set_xlim(-_BEFORE_SECONDS, _MOST_SECONDS)
    axes.set_xlabel(
        "seconds since the fault, which ends at the second black line;"
        " bands, from the top: the node, clustercheckd, the same with max_sync_wait=1, the script"
    )
    axes.set_title(report.title, fontsize=9)
    figure.legend(
        handles=[
            Patch(color=_GOOD, label="usable, or 200"),
            Patch(color=_BAD, label="unusable, or 503"),
            Patch(color=_SILENT, label="no answer yet"),
        ],
        loc="outside lower center",
        ncols=3,
    )
    # Without the version of matplotlib.
    figure.savefig(path, format="png", metadata={"Software": None})


def _draw_row(
    axes: Axes, row: int, window: Window, node: Mapping[str, Sequence[Sample]]
) -> None:
    shown = (
        window.began_at - _BEFORE_SECONDS,
        min(window.ended_at + AFTER_SECONDS, window.began_at + _MOST_SECONDS),
    )
    for number, who in enumerate(_BANDS):
        samples = settled(node[who]) if who == TRUTH else with_silences(node[who])
        place = (row - _ROW / 2 + number * _BAND, _BAND * 0.9)
        axes.broken_barh(_bars([shown], window), place, color=_SILENT)
        for kind, colour in _COLOURS.items():
            there = intersection(filled(samples, kind), [shown])
            axes.broken_barh(_bars(there, window), place, color=colour, linewidth=0)
    axes.vlines(
        window.ended_at - window.began_at,
        row - _ROW / 2,
        row + _ROW / 2,
        color="black",
        linewidth=0.8,
    )


def _bars(some: Sequence[Stretch], window: Window) -> list[Stretch]:
    """Return the start since the fault and the length of each."""
    return [
        (began_at - window.began_at, ended_at - began_at) for began_at, ended_at in some
    ]


def filled(samples: Sequence[Sample], kind: str) -> list[Stretch]:
    """Return the stretches of one kind, without gaps.

    Each is extended to the start of the next sample.
    """
    following = {before.ended_at: after.began_at for before, after in pairwise(samples)}
    return [
        (began_at, following.get(ended_at, ended_at))
        for began_at, ended_at in stretches(samples, kind)
    ]
