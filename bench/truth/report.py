"""The report of a truth run: tables in Markdown, the violations, and the failures that no variable shows."""

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
"""How long each kind of false answer may last, in seconds, for every fault."""

_COLUMNS = {what: what.replace("_", " ") for what in (*GOALS, "by_policy")}

_SAMPLING_SECONDS = 0.1

OURS, SCRIPT = "clustercheckd", "script"
DONORS, SHORT_QUEUE = "donors allowed", "donors allowed, MAX_RECV_QUEUE=10"
_NOTHING = "(none)"
_AROUND_SECONDS = 0.5
_OF_DONORS = ("desync", "FTWRL", "full SST")

EXPLANATION = """\
Each cell is: longest stretch / total, in seconds. The policy is strict: no donors, no read-only nodes, no full nodes.

- `false 200`: the checker answered 200 while a new client could not read and commit on that node.
- `in force`: the same, but up to the checker's next answer: until then, a load balancer acts on the last one.
- `false 503`: the checker answered 503 while a new client could read and commit.
- `by policy`: like a false 503, but the node was in wsrep_local_state 2 or 3. AVAILABLE_WHEN_DONOR=0 refuses such a
  node even if it keeps up.

The goals are interval + 0.1 s for a false 200, and interval + deadline for the others, with 0.1 s more for the
sampling. A stretch counts from the first to the last sample that shows it. It may have lasted one sampling step longer
at either end: 0.1 s, or 0.5 s for the script. A script that hangs is stopped after 2 s. bench/truth/stretches.py has
the full rules."""

INVISIBLE = """\
Failures that no status variable shows count apart. The checker answered 200 while commits hung or failed. At the same
time, a witness read the variables over its own connection and saw nothing wrong: Synced, Primary, connected, ready,
no reject_queries, not read-only, not full.

- A member that is killed, hangs or is cut off stops the commits of ALL members until the group removes it. That takes
  evs.suspect_timeout (here 2 s, by default 5 s) and another second to agree on the new view. Reads still work. For as
  long, the node that is cut off looks healthy to itself, and a node that resumes after a hang uses the old view.
- When the member comes back, the group agrees on a new view and commits hang again: 1 s, or up to 10 s after a hang.
- The only trace is wsrep_evs_state, which is otherwise OPERATIONAL. The last column says for how long it was not. A
  rule cannot use it: it changes on all members at once, healthy ones included, and at each harmless join.

Shorter evs.suspect_timeout and evs.inactive_timeout in wsrep_provider_options shorten the wait. Set
evs.keepalive_period and evs.inactive_check_period below them. The price is that a short network problem may cost a
node. Give clients timeouts of their own."""

LENIENT = """\
False 200 if donors are allowed (AVAILABLE_WHEN_DONOR=1). A node under FLUSH TABLES WITH READ LOCK, such as the donor of
an rsync transfer, looks like a desynced node that keeps up, but does not commit. MAX_RECV_QUEUE makes it unavailable
once more write-sets than that wait. While nobody writes to other nodes, none wait and nothing shows."""


@dataclass(frozen=True, slots=True)
class Window:
    """The time from one fault to the next. node: the name of the fault's node."""

    number: int
    kind: str
    node: str
    began_at: float


@dataclass(frozen=True, slots=True)
class NodeSamples:
    """All samples of one node. verdicts: by the checker's name."""

    verdicts: Mapping[str, Sequence[Sample]]
    truth: Sequence[Sample]
    witness: Sequence[Sample]


@dataclass(frozen=True, slots=True)
class Run:
    """One stretch of false answers, and the fault during which it happened."""

    window: Window
    node: str
    stretch: Stretch

    @property
    def place(self) -> str:
        """Whether it happened on the fault's node or on another one, in words."""
        return "the node itself" if self.node == self.window.node else "the other nodes"


class Report:
    """Compares the answers with the truth, by kind of fault. title: a line that describes the run."""

    def __init__(self, title: str, nodes: Mapping[str, NodeSamples], windows: Sequence[Window]) -> None:
        first = min(sample.began_at for node in nodes.values() for sample in node.truth[:1])
        self.title = title
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
        """Return a description of each stretch of clustercheckd's above the goal plus the sampling step."""
        return [
            self._violation(what, run)
            for what, goal in GOALS.items()
            for run in self._runs(OURS, what)
            if length(run.stretch) > goal + _SAMPLING_SECONDS
        ]

    def text(self) -> str:
        """Return the tables and their explanations."""
        return "\n".join(
            [
                self.title,
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
        # Without these counts, a sampler that stopped would look like one that found nothing.
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
        # The window with most of the stretch: a client that failed may have started just before the fault.
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
