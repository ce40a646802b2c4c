"""The report of a truth run: a table in Markdown, and the violations of the promises."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.truth.faults import BROKEN_INIT_CONNECT, NO_THREADS, PAUSED
from bench.truth.stretches import USABLE, Sample, Stretch, judge, length, settled, stretches

_GOALS = {"false_200": 0.25, "false_503": 1.25}
"""How long a false answer may last, in seconds: the age of a poll that an answer may rest on. A 503 may be a second
older while the server does not answer."""
_LOGIN_GOAL = 3.0
"""The same for faults that only a login shows: clustercheckd logs in every 2 s."""
_SAMPLING_SECONDS = 0.1

OURS, SCRIPT, TRUTH, WITNESS = "clustercheckd", "script", "truth", "witness"
"""Who was asked about a node."""

_COLUMNS = ("false_200", "false_503", "invisible")
_AROUND_SECONDS = 0.5

EXPLANATION = """\
The longest time for which a checker gave a wrong answer. It counts from the first to the last sample that shows it, and
may have been one sampling step longer at either end: 0.1 s, for the script 0.5 s.

- false 200: it answered 200 while a new client could not log in, read and commit.
- false 503: it answered 503 while a new client could. Donors, desynced nodes and nodes whose state cannot be read do
  not count: they are refused on purpose.
- invisible: it answered 200 while commits hung or failed and no status variable showed it.

bench/truth/stretches.py has the full rules."""


@dataclass(frozen=True, slots=True)
class Window:
    """The time from one fault to the next. node: the name of the fault's node."""

    number: int
    kind: str
    node: str
    began_at: float


@dataclass(frozen=True, slots=True)
class _Run:
    """One stretch of wrong answers, and the fault during which it happened."""

    window: Window
    node: str
    stretch: Stretch


class Report:
    """Compares the answers with the truth, by kind of fault.

    title: a line that describes the run. nodes: by node, and by who was asked, the samples.
    """

    def __init__(
        self, title: str, nodes: Mapping[str, Mapping[str, Sequence[Sample]]], windows: Sequence[Window]
    ) -> None:
        self.title = title
        self.nodes = nodes
        self.windows = windows
        self._began_at = min(sample.began_at for node in nodes.values() for sample in node[TRUTH][:1])
        self._findings = {
            (checker, name): judge(node[checker], node[TRUTH], node[WITNESS])
            for name, node in nodes.items()
            for checker in (OURS, SCRIPT)
        }

    def violations(self) -> list[str]:
        """Return a description of each time that clustercheckd's answers broke a promise."""
        found = [self._after_pause(window) for window in self.windows if window.kind == PAUSED]
        for what, usual in _GOALS.items():
            for run in self._runs(OURS, what):
                goal = _LOGIN_GOAL if run.window.kind in (NO_THREADS, BROKEN_INIT_CONNECT) else usual
                if length(run.stretch) > goal + _SAMPLING_SECONDS:
                    found.append(self._violation(what.replace("_", " "), run))
        return [violation for violation in found if violation]

    def text(self) -> str:
        """Return the table and its explanation."""
        heads = [f"{what.replace('_', ' ')}: {checker}" for what in _COLUMNS for checker in (OURS, SCRIPT)]
        rows = [f"| fault | times | {' | '.join(heads)} |", f"|---|---|{'---|' * len(heads)}"]
        for kind in sorted({window.kind for window in self.windows}, key=str.lower):
            times = sum(window.kind == kind for window in self.windows)
            cells = [
                _longest(run.stretch for run in self._runs(checker, what) if run.window.kind == kind)
                for what in _COLUMNS
                for checker in (OURS, SCRIPT)
            ]
            rows.append(f"| {kind} | {times} | {' | '.join(cells)} |")
        return "\n".join([self.title, "", *rows, "", EXPLANATION])

    def _runs(self, checker: str, what: str) -> list[_Run]:
        return [
            _Run(self._window_of(stretch), name, stretch)
            for (asked, name), findings in self._findings.items()
            if asked == checker
            for stretch in getattr(findings, what)
        ]

    def _window_of(self, stretch: Stretch) -> Window:
        # By the middle of the stretch: a client that failed may have started just before the fault.
        middle = sum(stretch) / 2
        begun = [window for window in self.windows if window.began_at <= middle]
        return begun[-1] if begun else Window(0, "no fault", "", self._began_at)

    def _after_pause(self, window: Window) -> str:
        """Return a violation if the service, once it ran again, answered 503 for a node that could be used."""
        node = self.nodes[window.node]
        end = min((other.began_at for other in self.windows if other.number == window.number + 1), default=float("inf"))
        usable = stretches(settled(node[TRUTH]), USABLE)
        for sample in node[OURS]:
            wrong = any(began_at < sample.ended_at < ended_at for began_at, ended_at in usable)
            if window.began_at < sample.ended_at < end and sample.seen.startswith("503 ") and wrong:
                return self._violation(
                    "503 after a pause", _Run(window, window.node, (sample.began_at, sample.ended_at))
                )
        return ""

    def _violation(self, said: str, run: _Run) -> str:
        began_at, ended_at = run.stretch
        fault = f"fault {run.window.number}, {run.window.kind} on {run.window.node}"
        lines = [f"{said} for {length(run.stretch):.2f} s on {run.node} at {began_at - self._began_at:.2f} s; {fault}"]
        for name in (OURS, TRUTH, WITNESS):
            last = None
            for sample in self.nodes[run.node][name]:
                inside = sample.ended_at > began_at - _AROUND_SECONDS and sample.began_at < ended_at + _AROUND_SECONDS
                if inside and (sample.kind, sample.seen) != last:
                    last = sample.kind, sample.seen
                    asked = f"{sample.began_at - self._began_at:7.2f} to {sample.ended_at - self._began_at:7.2f} s"
                    lines.append(f"    {asked}  {name}: {sample.kind}: {sample.seen}")
        return "\n".join(lines)


def _longest(some: Iterable[Stretch]) -> str:
    seconds = max(map(length, some), default=0.0)
    return f"{seconds:.2f} s" if seconds else "0"
