"""The report of a truth run: a table in Markdown, and the violations of the promises."""

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from bench.truth.faults import (
    ALTER,
    BOTH_PAUSED,
    BROKEN_INIT_CONNECT,
    FULL_DISK,
    FULL_TRANSFER,
    HUNG_STATUS,
    ISOLATION,
    KILL,
    NO_THREADS,
    SETS,
    SIGSTOP,
)
from bench.truth.group_faults import ALL_ALONE, ALONE, RESTARTED
from bench.truth.stretches import (
    FALSE_200,
    FALSE_503,
    USABLE,
    Sample,
    Stretch,
    intersection,
    judge,
    length,
    settled,
    stretches,
)

OURS, IN_SYNC, SCRIPT, TRUTH, WITNESS = (
    "clustercheckd",
    "max_sync_wait=1",
    "script",
    "truth",
    "witness",
)
"""Who was asked about a node. IN_SYNC: clustercheckd, with this in the query."""

_COLUMNS = {
    (OURS, FALSE_200): "200: clustercheckd",
    (IN_SYNC, FALSE_200): "`max_sync_wait=1`",
    (SCRIPT, FALSE_200): "script",
    (OURS, FALSE_503): "503: clustercheckd",
    (IN_SYNC, FALSE_503): "`max_sync_wait=1`",
}

PREPARING = "tables are filled"
_AFTERWARDS, _OTHERS = ", afterwards", ", other nodes"

_ANY = math.inf
_USUAL = (0.35, 0.35, _ANY, 1.35, 1.6)
_BY_LOGIN = (3.1, 3.1, _ANY, 3.1, 3.1)
_HIDDEN = (_ANY, 3.2, _ANY, 1.35, 1.6)
_SEEN_ALONE = (3.35, 3.35, _ANY, 1.35, 1.6)
_WHOLE_GROUP = (_ANY, _ANY, _ANY, 0.35, _ANY)
_BY_POLICY = (_ANY, 0.35, _ANY, 1.35, 1.6)
_GOALS = {
    **dict.fromkeys(
        [kind for name in ("statements", "group") for kind in SETS[name]],
        _WHOLE_GROUP,
    ),
    PREPARING: _WHOLE_GROUP,
    **dict.fromkeys(RESTARTED, (_ANY, _ANY, _ANY, 1.35, _ANY)),
    **dict.fromkeys(ALONE, _SEEN_ALONE),
    **dict.fromkeys([kind + _OTHERS for kind in ALONE], _WHOLE_GROUP),
    **dict.fromkeys(
        ("max_connections", "read-only", "read-only transactions"), _BY_POLICY
    ),
    BROKEN_INIT_CONNECT: _BY_LOGIN,
    NO_THREADS: _BY_LOGIN,
    ALTER: _HIDDEN,
    FULL_DISK: _SEEN_ALONE,
    FULL_DISK + _OTHERS: _WHOLE_GROUP,
    FULL_TRANSFER + _OTHERS: _HIDDEN,
    # The debugger stops the server for as long as it reads its symbols.
    HUNG_STATUS + _OTHERS: _HIDDEN,
    ISOLATION: _HIDDEN,
    ISOLATION + _AFTERWARDS: _HIDDEN,
    ISOLATION + _OTHERS: _HIDDEN,
    KILL + _OTHERS: _HIDDEN,
    SIGSTOP + _AFTERWARDS: (0.6, 0.6, _ANY, 1.35, 1.6),
    SIGSTOP + _OTHERS: _HIDDEN,
    BOTH_PAUSED: (0.6, 0.6, _ANY, 1.35, 1.6),
    BOTH_PAUSED + _OTHERS: _HIDDEN,
}
"""How long a false answer may last, in seconds: a goal for each column, by row of the table. All
other rows: _USUAL.

A row is a kind of fault. Where the time after the fault, or the other nodes, have a row here, they
have one in the table. Goals include 0.1 s for the sampling. _USUAL: an answer may rest on a poll of
0.25 s ago. A 503 may be a second older while the server does not answer, and as long with
max_sync_wait: a refused read in sync is repeated after 1 s. _BY_LOGIN: only a login shows the
fault, every 2 s. _HIDDEN: only a read in sync shows it, every 2 s, which then has to wait for a
second. _SEEN_ALONE: a node that stands still alone. _WHOLE_GROUP: all may stand still, by flow
control too, which no read in sync notices. RESTARTED: the same, and servers end and start.
_BY_POLICY: the default policy allows it.
"""

_ALONE_REASONS = ("cut-off", "disk-full", "stalled")
_LATE_SECONDS = 0.35
_FINE_SHARE = 0.01
"""How much of the time in which a node is out alone a client may have been able to use it, beyond
_LATE_SECONDS each time."""

_OUT_ALONE = "out alone"
_AROUND_SECONDS = 0.5
AFTER_SECONDS = 5.0
"""How long the run goes on after each fault, once the cluster is whole."""

EXPLANATION = """\
The longest time in seconds for which a checker gave a wrong answer. It counts from the first to the
last sample that shows it, and may have been one sampling step longer at either end: 0.1 s, for the
script 0.5 s.

- 200: it answered 200 while a new client could not log in, read and commit.
- 503: it answered 503 while a new client could. Donors, desynced nodes and nodes whose state cannot
  be read do not count: they are refused on purpose.

bench/truth/stretches.py has the full rules, and bench/truth/report.py the goals."""


class Window(NamedTuple):
    """One fault, and the time until the next.

    node: the name of the fault's node. ended_at: when the fault ended.
    """

    number: int
    kind: str
    node: str
    began_at: float
    ended_at: float


class _Run(NamedTuple):
    """One stretch of wrong answers of a checker about a node, and the fault meanwhile."""

    checker: str
    what: str
    node: str
    stretch: Stretch
    window: Window

    @property
    def row(self) -> str:
        """The row of the table that it belongs to."""
        special = self.window.kind
        if self.node != self.window.node:
            special += _OTHERS
        elif sum(self.stretch) / 2 > self.window.ended_at:
            special += _AFTERWARDS
        return special if special in _GOALS else self.window.kind


class Report:
    """Compares the answers with the truth, by kind of fault.

    title: a line that describes the run. nodes: by node, and by who was asked, the samples.
    """

    def __init__(
        self,
        title: str,
        nodes: Mapping[str, Mapping[str, Sequence[Sample]]],
        windows: Sequence[Window],
    ) -> None:
        self.title = title
        self.nodes = nodes
        self.windows = windows
        self._began_at = min(
            sample.began_at for node in nodes.values() for sample in node[TRUTH][:1]
        )
        self._runs = [
            _Run(checker, what, name, stretch, self._window_of(stretch))
            for name, node in nodes.items()
            for checker in (OURS, IN_SYNC, SCRIPT)
            for what, found in judge(node[checker], node[TRUTH], node[WITNESS]).items()
            for stretch in found
        ]

    def violations(self) -> list[str]:
        """Return a description of each time that clustercheckd's answers broke a promise."""
        broken: list[_Run] = []
        for run in self._runs:
            goals = dict(zip(_COLUMNS, _GOALS.get(run.row, _USUAL), strict=True))
            if length(run.stretch) > goals.get((run.checker, run.what), _ANY):
                broken.append(run)
        return [
            *(self._story(run) for run in broken),
            *self._together(),
            *self._out_in_vain(),
        ]

    def out_alone(self) -> tuple[float, float]:
        """Return for how long nodes were out because they stood still alone.

        Then for how much of that a client could use them, beyond what a fresh answer needs.
        """
        seconds = vain_seconds = 0.0
        for name in self.nodes:
            for stretch in self._alone(name):
                seconds += length(stretch)
                vain_seconds += self._vain_seconds(name, stretch)
        return seconds, vain_seconds

    def _vain_seconds(self, node: str, stretch: Stretch) -> float:
        usable = stretches(settled(self.nodes[node][TRUTH]), USABLE)
        seconds = sum(map(length, intersection([stretch], usable)))
        return max(0.0, seconds - _LATE_SECONDS)

    def _alone(
        self, node: str, reasons: tuple[str, ...] = _ALONE_REASONS
    ) -> list[Stretch]:
        marked = [
            sample._replace(kind=_OUT_ALONE)
            if sample.seen.endswith(reasons)
            else sample
            for sample in self.nodes[node][OURS]
        ]
        return stretches(marked, _OUT_ALONE)

    def _together(self) -> list[str]:
        """Describe each time that two nodes were out, both because they stood still alone."""
        return [
            f"two nodes out alone: {one} {self._seen(one, both)} and {other}"
            f" {self._seen(other, both)} for {length(both):.2f} s at"
            f" {both[0] - self._began_at:.2f} s; {self._window_of(both).kind}"
            for one, other in combinations(self.nodes, 2)
            for both in intersection(self._alone(one), self._alone(other))
            if self._window_of(both).kind not in ALL_ALONE
            or self._vain_seconds(one, both)
            or self._vain_seconds(other, both)
        ]

    def _both_stalled_seconds(self) -> float:
        """Return for how long any two nodes were, which no cause may bring about."""
        each = [self._alone(node, ("stalled",)) for node in self.nodes]
        pairs = combinations(each, 2)
        return sum(length(both) for pair in pairs for both in intersection(*pair))

    def _seen(self, node: str, during: Stretch) -> str:
        seen = {
            sample.seen
            for sample in self.nodes[node][OURS]
            if during[0] <= sample.began_at <= during[1]
        }
        return f"({', '.join(sorted(seen))})"

    def _out_in_vain(self) -> list[str]:
        seconds, vain_seconds = self.out_alone()
        if vain_seconds <= _FINE_SHARE * seconds:
            return []
        return [f"out alone for {seconds:.1f} s, {vain_seconds:.1f} s of it in vain"]

    def text(self) -> str:
        """Return the table and its explanation."""
        rows = [
            f"| fault | {' | '.join(_COLUMNS.values())} |",
            f"|---|{'---|' * len(_COLUMNS)}",
        ]
        kinds = {window.kind for window in self.windows}
        kinds |= {row for row in _GOALS if row.partition(",")[0] in kinds}
        for row in sorted(kinds, key=str.lower):
            cells = [self._longest(row, *column) for column in _COLUMNS]
            rows.append(f"| {row} | {' | '.join(cells)} |")
        seconds, vain_seconds = self.out_alone()
        alone = (
            f"Two nodes stalled at once: {self._both_stalled_seconds():.1f} s.\n"
            f"Out because they stood still alone: {seconds:.1f} s, of which a client could use"
            f" them for {vain_seconds:.2f} s."
        )
        return "\n".join([self.title, "", *rows, "", alone, "", EXPLANATION])

    def of_each_fault(self) -> str:
        """Return how long clustercheckd was wrong about the fault's node, fault by fault."""
        lines = ["Each fault in turn, and seconds in all, during it and afterwards:"]
        for window in self.windows:
            seconds = {
                what: sum(
                    length(run.stretch)
                    for run in self._runs
                    if (run.checker, run.what) == (OURS, what)
                    and (run.window, run.node) == (window, window.node)
                )
                for what in (FALSE_200, FALSE_503)
            }
            lasted = f"{window.ended_at - window.began_at:4.1f} s"
            wrong = ", ".join(f"{what} {took:.2f}" for what, took in seconds.items())
            lines.append(
                f"{window.number:3}  {lasted}  {window.kind} on {window.node}: {wrong}"
            )
        return "\n".join(lines)

    def worst(self) -> list[Window]:
        """Return, by kind, the fault during which clustercheckd was wrong for longest."""
        last_of_kind = {
            window.kind: window
            for window in sorted(self.windows, key=self._wrong_seconds)
        }
        return sorted(last_of_kind.values(), key=lambda window: window.kind.lower())

    def _wrong_seconds(self, window: Window) -> float:
        return sum(
            length(run.stretch)
            for run in self._runs
            if run.checker != SCRIPT and (run.window, run.node) == (window, window.node)
        )

    def _longest(self, row: str, checker: str, what: str) -> str:
        each = (
            length(run.stretch)
            for run in self._runs
            if (run.row, run.checker, run.what) == (row, checker, what)
        )
        seconds = max(each, default=0.0)
        return f"{seconds:.2f}" if seconds else "0"

    def _window_of(self, stretch: Stretch) -> Window:
        # By the middle of the stretch: a client that failed may have started just before the fault.
        begun = [
            window for window in self.windows if window.began_at <= sum(stretch) / 2
        ]
        return (
            begun[-1]
            if begun
            else Window(0, "no fault", "", self._began_at, self._began_at)
        )

    def _story(self, run: _Run) -> str:
        began_at, ended_at = run.stretch
        fault = f"fault {run.window.number}, {run.window.kind} on {run.window.node}"
        at = f"on {run.node} at {began_at - self._began_at:.2f} s"
        lines = [
            f"{run.checker}: {run.what} for {length(run.stretch):.2f} s {at}; {fault}"
        ]
        for name in (run.checker, TRUTH, WITNESS):
            last = None
            for sample in self.nodes[run.node][name]:
                inside = (
                    sample.ended_at > began_at - _AROUND_SECONDS
                    and sample.began_at < ended_at + _AROUND_SECONDS
                )
                if inside and (sample.kind, sample.seen) != last:
                    last = sample.kind, sample.seen
                    asked_at = sample.began_at - self._began_at
                    answered_at = sample.ended_at - self._began_at
                    times = f"{asked_at:7.2f} to {answered_at:7.2f} s"
                    lines.append(f"    {times}  {name}: {sample.kind}: {sample.seen}")
        return "\n".join(lines)
