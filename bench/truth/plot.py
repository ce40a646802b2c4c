"""Draws a truth run: for each fault, whether its node was usable and what the two checkers answered, over time.

Needs the dependency group `plot` (matplotlib), which `make truth ARGS="--plot FILE.svg"` installs.
"""

import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bench.truth.report import OURS, SCRIPT, TRUTH, Window
from bench.truth.stretches import (
    SAYS_200,
    SAYS_503,
    UNUSABLE,
    USABLE,
    Sample,
    Stretch,
    given,
    intersection,
    settled,
    stretches,
)

_BEFORE_SECONDS, _MOST_SECONDS = 2.0, 25.0
_ROW_INCHES, _WIDTH_INCHES, _MARGIN_INCHES = 0.42, 10.0, 1.1
# Two colours that differ for colour-blind readers and in greyscale.
_GOOD, _BAD, _SILENT = "#56b4e9", "#d55e00", "#dddddd"
_BANDS = 3
_TITLE_CHARACTERS = 110
_HEIGHT = 0.8 / _BANDS


def draw(
    nodes: Mapping[str, Mapping[str, Sequence[Sample]]], windows: Sequence[Window], title: str, path: Path
) -> None:
    """Write the picture as SVG, whatever the suffix of path. Raises OSError if the file cannot be written.

    nodes: the samples, by node. windows: the faults in their order.
    """
    # The same run gives the same bytes. Text stays text, so that readers can search it.
    mpl.rcParams.update({"svg.hashsalt": "truth", "svg.fonttype": "none", "font.size": 8})
    figure = Figure(figsize=(_WIDTH_INCHES, _ROW_INCHES * len(windows) + _MARGIN_INCHES), layout="constrained")
    axes = figure.subplots()
    for row, window in enumerate(windows):
        _draw_fault(axes, row, window, nodes[window.node])
    axes.axvline(0, color="black", linewidth=0.6)
    axes.set_yticks(range(len(windows)), [f"{window.kind}, {window.node}" for window in windows])
    axes.invert_yaxis()
    axes.set_xlim(-_BEFORE_SECONDS, _MOST_SECONDS)
    axes.set_xlabel("seconds since the fault; each row, from the top: the node, clustercheckd, the script")
    axes.set_title(textwrap.fill(title, _TITLE_CHARACTERS), fontsize=8)
    figure.legend(
        handles=[
            Patch(color=_GOOD, label="usable, or 200"),
            Patch(color=_BAD, label="unusable, or 503"),
            Patch(color=_SILENT, label="no answer yet"),
        ],
        loc="outside lower center",
        ncols=_BANDS,
    )
    figure.savefig(path, format="svg", metadata={"Date": None})


def _draw_fault(axes: Axes, row: int, window: Window, node: Mapping[str, Sequence[Sample]]) -> None:
    bands: list[tuple[Sequence[Sample], str, str]] = [
        (settled(node[TRUTH]), USABLE, UNUSABLE),
        (given(node[OURS]), SAYS_200, SAYS_503),
        (given(node[SCRIPT]), SAYS_200, SAYS_503),
    ]
    for number, (samples, good, bad) in enumerate(bands):
        top = row - 0.4 + number * _HEIGHT
        shown = (window.began_at - _BEFORE_SECONDS, window.began_at + _MOST_SECONDS)
        axes.broken_barh([(-_BEFORE_SECONDS, _BEFORE_SECONDS + _MOST_SECONDS)], (top, _HEIGHT * 0.9), color=_SILENT)
        for kind, colour in ((good, _GOOD), (bad, _BAD)):
            there = intersection(filled(samples, kind), [shown])
            bars = [(began_at - window.began_at, ended_at - began_at) for began_at, ended_at in there]
            axes.broken_barh(bars, (top, _HEIGHT * 0.9), color=colour, linewidth=0)


def filled(samples: Sequence[Sample], kind: str) -> list[Stretch]:
    """Return the stretches of one kind, each extended to the start of the next sample, so that there are no gaps."""
    following = {before.ended_at: after.began_at for before, after in pairwise(samples)}
    return [(began_at, following.get(ended_at, ended_at)) for began_at, ended_at in stretches(samples, kind)]
