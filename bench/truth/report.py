"""What the truth run prints at its end: tables in Markdown, the violations, and what no variable shows."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from bench.truth.stretches import (
    HEALTHY,
    Findings,
    Sample,
    Stretch,
    intersection,
    judge,
    length,
    longest,
    stretches,
    total,
)

_INTERVAL_SECONDS, _DEADLINE_SECONDS, _DOUBT_SECONDS = 0.25, 0.8, 0.1

GOALS = {
    "false_200": _INTERVAL_SECONDS + _DOUBT_SECONDS,
    "in_force": _INTERVAL_SECONDS + _DEADLINE_SECONDS,
    "false_503": _INTERVAL_SECONDS + _DEADLINE_SECONDS,
}
"""The longest that each may last, in seconds, whatever the fault."""

_COLUMNS = {what: what.replace("_", " ") for what in (*GOALS, "by_policy")}

_SAMPLING_SECONDS = 0.1

OURS, SCRIPT = "clustercheckd", "script"
DONORS, SHORT_QUEUE = "donors allowed", "donors allowed, MAX_RECV_QUEUE=10"
_NOTHING = "(none)"
_AROUND_SECONDS = 0.5
_OF_DONORS = ("desync", "FTWRL", "full SST")

EXPLANATION = """\
Longest stretch / total, in seconds. `false 200`: the checker answered 200 while a fresh client could not read and
commit on that node. `in force`: the same up to the next answer, because a load balancer acts on the last answer while
it waits. `false 503`: the checker answered 503 while a client could. The strict policy: no donors, no read-only,
no full nodes. A stretch is counted from the first to the last sample that shows it, so it may have lasted a sampling
step (0.1 s; the script is run every 0.5 s) longer at either end. A script that hangs is stopped after 2 s. The goals:
interval + 0.1 s for a false 200, interval + deadline for the others, and 0.1 s more for the sampling. `by policy`: 503
while usable, but the node was seen in wsrep_local_state 2 or 3: a node that lags on purpose is refused under
AVAILABLE_WHEN_DONOR=0, whether or not it happens to keep up. bench/truth/stretches.py has the rules in full."""

INVISIBLE = """\
Not visible in any status variable that tells a bad node from a good one, and so counted apart: 200 stood while commits
hung or failed, and a witness that read the variables in the same moments saw Synced, Primary, connected, ready, queries
not rejected, not read-only, not full.

- A member that is killed, hangs or is cut off holds up the commits of ALL members until the group gives it up: after
  evs.suspect_timeout (here 2 s, by default 5 s), and another second to agree on the new view. Reads go on. The node
  that is cut off looks healthy to itself for as long, and one that resumes after a hang believes in the old view.
- When it comes back, all agree anew on who is in, and commits hang again: 1 s, up to 10 s after a hang.
- The one trace is wsrep_evs_state, OPERATIONAL otherwise (last column: for how long it was not). It is no reason to
  refuse: it changes on all members at once, good ones included, and at each harmless join.

What an operator can set: a shorter evs.suspect_timeout and evs.inactive_timeout (with evs.keepalive_period and
evs.inactive_check_period below them) in wsrep_provider_options shorten the wait, at the price of losing nodes to short
network hiccups. Clients need timeouts of their own."""

LENIENT = """\
200 while unusable where donors are allowed (AVAILABLE_WHEN_DONOR=1). A node that holds FLUSH TABLES WITH READ LOCK, as
the donor of an rsync transfer does, looks like a desynced one that keeps up, and stops committing. MAX_RECV_QUEUE takes
it out as soon as more write-sets than that wait; while nobody writes elsewhere, none wait and nothing shows."""


@dataclass(frozen=True, slots=True)
class Window:
    """The time from one fault to the next. node: the name of the one it was done to."""

    number: int
    kind: str
    node: str
    began_at: float


@dataclass(frozen=True, slots=True)
class NodeSamples:
    """All that was asked about one node; verdicts by the checker's name."""

    verdicts: Mapping[str, Sequence[Sample]]
    truth: Sequence[Sample]
    witness: Sequence[Sample]


@dataclass(frozen=True, slots=True)
class Run:
    """One stretch of something false, and the fault in whose time it was."""

    window: Window
    node: str
    stretch: Stretch

    @property
    def place(self) -> str:
        """Whether it was seen on the node that the fault was done to."""
        return "the node itself" if self.node == self.window.node else "the other nodes"


class Report:
    """The comparison of what was said with what was true, by kind of fault. told: what run it was."""

    def __init__(self, told: str, nodes: Mapping[str, NodeSamples], windows: Sequence[Window]) -> None:
        first = min(sample.began_at for node in nodes.values() for sample in node.truth[:1])
        self.told = told
        self.nodes = nodes
        self.windows = windows
        self._began_at = first
        self._clock_offset = time.time() - time.monotonic()
        self._windows = [Window(0, _NOTHING, "", first), *windows]
        self._findings = {
            (checker, name): judge(samples, node.truth, node.witness)
            for name, node in nodes.items()
            for checker, samples in node.verdicts.items()
        }

    def violations(self) -> list[str]:
        """Tell of each stretch of ours beyond the goal by more than the sampling adds; empty if it is met."""
        return [
            self._violation(what, run)
            for what, goal in GOALS.items()
            for run in self._runs(OURS, what)
            if length(run.stretch) > goal + _SAMPLING_SECONDS
        ]

    def text(self) -> str:
        """Give the tables and their explanation."""
        return "\n".join(
            [
                self.told,
                "",
                *self._table(),
                "",
                EXPLANATION,
                "",
                *self._invisible_table(),
                "",
                INVISIBLE,
                "",
                *self._lenient_table(),
                "",
                LENIENT,
                "",
                *self._coverage(),
            ],
        )

    def _table(self) -> list[str]:
        rows = [
            f"| fault | times |{' | '.join(f' {name}: ours | script' for name in _COLUMNS.values())} |",
            f"|---|---|{'---|---|' * len(_COLUMNS)}",
        ]
        for kind in self._kinds():
            cells = [
                _cell(run.stretch for run in self._runs(checker, what) if run.window.kind == kind)
                for what in _COLUMNS
                for checker in (OURS, SCRIPT)
            ]
            times = sum(window.kind == kind for window in self._windows)
            rows.append(" | ".join([f"| {kind}", str(times) if kind != _NOTHING else "", *cells]) + " |")
        goals = " ".join(f"| {goal:.2f} + {_SAMPLING_SECONDS:g} | " for goal in GOALS.values())
        return [*rows, f"| goal: at most | {goals}| | |"]

    def _invisible_table(self) -> list[str]:
        rows = [
            "| fault | seen on | 200 while commits hung: ours | script | evs not OPERATIONAL |",
            "|---|---|---|---|---|",
        ]
        for kind in self._kinds():
            for place in ("the node itself", "the other nodes"):
                ours, script = (
                    [run for run in self._runs(checker, "invisible") if (run.window.kind, run.place) == (kind, place)]
                    for checker in (OURS, SCRIPT)
                )
                if ours or script:
                    regrouping = sum(self._regrouping(run) for run in ours)
                    cells = [kind, place, _cell(r.stretch for r in ours), _cell(r.stretch for r in script)]
                    rows.append(f"| {' | '.join(cells)} | {regrouping:.1f} |")
        return rows

    def _lenient_table(self) -> list[str]:
        checkers = (OURS, DONORS, SHORT_QUEUE)
        rows = [f"| fault | strict | {DONORS} | {SHORT_QUEUE} |", "|---|---|---|---|"]
        for kind in self._kinds():
            runs = [[run.stretch for run in self._runs(c, "false_200") if run.window.kind == kind] for c in checkers]
            if kind in _OF_DONORS:
                rows.append(f"| {' | '.join([kind, *map(_cell, runs)])} |")
        return rows

    def _coverage(self) -> list[str]:
        # A sampler that came to a halt would otherwise look like one that found nothing.
        lines = []
        for name, node in self.nodes.items():
            asked = {**node.verdicts, "truth": node.truth, "witness": node.witness}
            parts = [
                f"{what} {len(samples)} (longest pause {_longest_pause(samples):.2f} s)"
                for what, samples in asked.items()
            ]
            unusable = sum(sample.kind == "unusable" for sample in node.truth)
            lines.append(f"Samples of {name}: {', '.join(parts)}; {unusable} of the truth unusable.")
        return lines

    def _kinds(self) -> list[str]:
        return sorted({window.kind for window in self._windows}, key=lambda kind: (kind == _NOTHING, kind.lower()))

    def _runs(self, checker: str, what: str) -> list[Run]:
        return [
            Run(self._window_of(stretch), name, stretch)
            for (asked, name), findings in self._findings.items()
            if asked == checker
            for stretch in _of(findings, what)
        ]

    def _window_of(self, stretch: Stretch) -> Window:
        # By where most of it lies: the client that met a fault may have come a moment before it.
        begins = [window.began_at for window in self._windows]
        spans = zip(begins, [*begins[1:], inf], strict=True)
        overlaps = [total(intersection([stretch], [span])) for span in spans]
        return self._windows[overlaps.index(max(overlaps))]

    def _regrouping(self, run: Run) -> float:
        marked = [
            Sample(sample.began_at, sample.ended_at, str("wsrep_evs_state" in sample.seen), "")
            for sample in self.nodes[run.node].witness
            if sample.kind == HEALTHY
        ]
        return total(intersection([run.stretch], stretches(marked, "True")))

    def _violation(self, what: str, run: Run) -> str:
        said = what.replace("_", " ")
        began_at, ended_at = run.stretch
        fault = f"fault {run.window.number}, {run.window.kind} on {run.window.node}"
        lines = [f"{said} for {length(run.stretch):.2f} s on {run.node} at {self._when(began_at)}; {fault}"]
        node = self.nodes[run.node]
        for name, samples in {OURS: node.verdicts[OURS], "truth": node.truth, "witness": node.witness}.items():
            last = None
            for sample in samples:
                inside = sample.ended_at > began_at - _AROUND_SECONDS and sample.began_at < ended_at + _AROUND_SECONDS
                if inside and (sample.kind, sample.seen) != last:
                    last = sample.kind, sample.seen
                    asked = f"{self._since(sample.began_at)} to {self._since(sample.ended_at)}"
                    lines.append(f"    {asked}  {name}: {sample.kind}: {sample.seen}")
        return "\n".join(lines)

    def _since(self, moment: float) -> str:
        return f"{moment - self._began_at:7.2f} s"

    def _when(self, moment: float) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(moment + self._clock_offset))
        return f"{self._since(moment).strip()} ({clock})"


def _of(findings: Findings, what: str) -> list[Stretch]:
    found: list[Stretch] = getattr(findings, what)
    return found


def _cell(some: Iterable[Stretch]) -> str:
    several = list(some)
    return f"{longest(several):.2f} / {total(several):.1f}" if several else "0"


def _longest_pause(samples: Sequence[Sample]) -> float:
    pairs = pairwise(samples)
    return max((after.began_at - before.ended_at for before, after in pairs), default=0.0)
