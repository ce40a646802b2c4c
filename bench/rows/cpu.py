"""CPU time per health check, compared with xinetd and the shell check.

Each side counts its own processes and mariadbd, less what mariadbd uses while idle. Each round measures that idle use
with clustercheckd stopped. The load generator does not count.

clustercheckd's polls are constant work, whatever the rate of health checks. At full speed, the figure includes them.
At a low rate, there are two figures: with all polls, and without. The latter is the service's CPU time less its use at
rest, in alternating slices; no health check reaches mariadbd.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from bench import load
from bench.rig import Rig
from bench.table import Row, microseconds

GOAL = 100.0

_ROUNDS = 3
_SECONDS = 4.0
_IDLE_SECONDS = 3.0
_SLICES = 2
_SLICE_SECONDS = 2.0
_CHECKS_PER_SECOND = 10
_OUR_CONNECTIONS = 8
_SCRIPT_CONNECTIONS = 4


@dataclass(frozen=True)
class _Cost:
    """The cost of one side. own, node: the CPU seconds of its own processes and of mariadbd."""

    own: float
    node: float
    seconds: float
    checks: int

    @property
    def share(self) -> float:
        return (self.own + self.node) / self.seconds

    @property
    def per_check(self) -> float:
        return (self.own + self.node) / self.checks


@dataclass(frozen=True)
class _Round:
    ours_full: _Cost
    script_full: _Cost
    script_paced: _Cost
    slices: "list[_Slice]"


@dataclass(frozen=True)
class _Slice:
    """clustercheckd at rest, then with health checks. The floor counts only its own process."""

    rest: _Cost
    paced: _Cost
    floor_rest: float
    floor_paced: float

    @property
    def added(self) -> float:
        return (self.paced.own - self.rest.own / self.rest.seconds * self.paced.seconds) / self.paced.checks

    @property
    def floor_added(self) -> float:
        return (self.floor_paced - self.floor_rest) / self.paced.checks


def rows(rig: Rig) -> list[Row]:
    """Measure, alternating between the sides, and take medians over the rounds."""
    rig.shell_check, rig.floor  # noqa: B018 (started before the first round)
    rounds = [_round(rig) for _ in range(_ROUNDS)]
    slices = [each for one in rounds for each in one.slices]
    script_full = median(each.script_full.per_check for each in rounds)
    script_paced = median(each.script_paced.per_check for each in rounds)
    rest = median(each.rest.share for each in slices)
    floor = median(each.floor_added for each in slices)
    paced = f"at {_CHECKS_PER_SECOND} checks/s"
    return [
        _row(
            "CPU per health check at full speed, all counted (service + mariadbd; xinetd + bash + client + mariadbd)",
            median(each.ours_full.per_check for each in rounds),
            script_full,
        ),
        _row(
            f"CPU per health check {paced}, what the checks add",
            median(each.added for each in slices),
            script_paced,
            beside=f", floor {microseconds(floor)}",
            note=f", floor {script_paced / floor:,.0f}x",
        ),
        _row(
            f"CPU per health check {paced}, with all polls ({rest:.2%} of a core, at any rate of health checks)",
            median(each.paced.per_check for each in slices),
            script_paced,
            note=f"; less than the script above {rest / script_paced:.1f} checks/s",
        ),
    ]


def _round(rig: Rig) -> _Round:
    node_idle = rig.node_idle_share(_IDLE_SECONDS)

    def ours(measured: Callable[[], int]) -> _Cost:
        return _cost(rig, node_idle, measured, lambda: rig.service.process.cpu_seconds)

    def script(measured: Callable[[], int]) -> _Cost:
        with rig.service_paused():
            return _cost(rig, node_idle, measured, rig.shell_check.cpu_seconds)

    def full(port: int, connections: int) -> Callable[[], int]:
        return lambda: load.at_full_speed(port, connections, seconds=_SECONDS).checks

    def paced(port: int, seconds: float) -> Callable[[], int]:
        return lambda: load.at_rate(port, _CHECKS_PER_SECOND, seconds).checks

    return _Round(
        ours_full=ours(full(rig.service.port, _OUR_CONNECTIONS)),
        script_full=script(full(rig.shell_check.port, _SCRIPT_CONNECTIONS)),
        script_paced=script(paced(rig.shell_check.port, _SECONDS)),
        slices=[_slice(rig, ours, paced) for _ in range(_SLICES)],
    )


def _slice(
    rig: Rig,
    ours: Callable[[Callable[[], int]], _Cost],
    paced: Callable[[int, float], Callable[[], int]],
) -> _Slice:
    def floor(measured: Callable[[], object]) -> float:
        before = rig.floor.process.cpu_seconds
        measured()
        return rig.floor.process.cpu_seconds - before

    rests: list[_Cost] = []
    return _Slice(
        floor_rest=floor(lambda: rests.append(ours(_nobody))),
        rest=rests[0],
        paced=ours(paced(rig.service.port, _SLICE_SECONDS)),
        floor_paced=floor(paced(rig.floor.port, _SLICE_SECONDS)),
    )


def _nobody() -> int:
    time.sleep(_SLICE_SECONDS)
    return 0


def _cost(rig: Rig, node_idle: float, measured: Callable[[], int], side: Callable[[], float]) -> _Cost:
    begun = time.monotonic()
    own, node = side(), rig.node_cpu_seconds()
    checks = measured()
    own, node = side() - own, rig.node_cpu_seconds() - node
    seconds = time.monotonic() - begun
    return _Cost(own, node - node_idle * seconds, seconds, checks)


def _row(measured: str, ours: float, script: float, *, beside: str = "", note: str = "") -> Row:
    ratio = script / ours
    return Row(
        measured,
        microseconds(ours),
        f"script {microseconds(script)}{beside}",
        f"{ratio:,.0f}x less{note}",
        f">= {GOAL:.0f}x less",
        ratio >= GOAL,
    )
