"""CPU per probe of everything that works for it, beside xinetd and the shell check.

A side is its own processes and mariadbd, less what mariadbd uses with nobody asking (measured in each round, with
clustercheckd stopped). The constant work of clustercheckd's observations is counted in full where it says so, and
shared out over the probes of that time: the more probes, the less it is for each. The load generator is not counted.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from bench import load
from bench.machine import cpu_seconds
from bench.rig import Rig
from bench.table import Row, microseconds

GOAL = 100.0

_ROUNDS = 3
_SECONDS = 4.0
_IDLE_SECONDS = 3.0
_PROBES_PER_SECOND = 10
_OUR_CONNECTIONS = 8
_SCRIPT_CONNECTIONS = 4


@dataclass(frozen=True)
class _Cost:
    """What a side used: CPU seconds in how many seconds, for how many probes."""

    cpu_seconds: float
    seconds: float
    probes: int

    @property
    def share(self) -> float:
        return self.cpu_seconds / self.seconds

    @property
    def per_probe(self) -> float:
        return self.cpu_seconds / self.probes


@dataclass(frozen=True)
class _Round:
    rest: _Cost
    ours_full: _Cost
    script_full: _Cost
    ours_paced: _Cost
    script_paced: _Cost

    @property
    def ours_paced_without_rest(self) -> float:
        return (self.ours_paced.cpu_seconds - self.rest.share * self.ours_paced.seconds) / self.ours_paced.probes


def rows(rig: Rig) -> list[Row]:
    """Measure in turns, and compare round by round."""
    rig.shell_check  # noqa: B018 (started before the first round)
    rounds = [_round(rig) for _ in range(_ROUNDS)]
    rest = median(each.rest.share for each in rounds)
    even = median(each.rest.share / each.script_paced.per_probe for each in rounds)
    paced = f"at {_PROBES_PER_SECOND} probes/s"
    return [
        _row(
            "CPU per probe at full speed, all counted (service + mariadbd; xinetd + bash + client + mariadbd)",
            [(each.ours_full.per_probe, each.script_full.per_probe) for each in rounds],
            goal=True,
        ),
        _row(
            f"CPU per probe {paced}, what the probes add",
            [(each.ours_paced_without_rest, each.script_paced.per_probe) for each in rounds],
            goal=True,
        ),
        _row(
            f"CPU per probe {paced}, with all of the observations ({rest:.2%} of a core, whatever the probes)",
            [(each.ours_paced.per_probe, each.script_paced.per_probe) for each in rounds],
            goal=False,
            note=f"; below the script's from {even:.1f} probes/s on",
        ),
    ]


def _round(rig: Rig) -> _Round:
    node_idle = rig.node_idle_share(_IDLE_SECONDS)

    def ours(measured: Callable[[], int]) -> _Cost:
        return _cost(rig, node_idle, measured, lambda: cpu_seconds(rig.service.process))

    def script(measured: Callable[[], int]) -> _Cost:
        with rig.service_paused():
            return _cost(rig, node_idle, measured, rig.shell_check.cpu_seconds)

    def full(port: int, connections: int) -> Callable[[], int]:
        return lambda: load.at_full_speed(port, connections, seconds=_SECONDS).probes

    def paced(port: int) -> Callable[[], int]:
        return lambda: load.at_rate(port, _PROBES_PER_SECOND, _SECONDS).probes

    return _Round(
        ours_full=ours(full(rig.service.port, _OUR_CONNECTIONS)),
        script_full=script(full(rig.shell_check.port, _SCRIPT_CONNECTIONS)),
        ours_paced=ours(paced(rig.service.port)),
        script_paced=script(paced(rig.shell_check.port)),
        rest=ours(_nobody),
    )


def _nobody() -> int:
    time.sleep(_IDLE_SECONDS)
    return 0


def _cost(rig: Rig, node_idle: float, measured: Callable[[], int], side: Callable[[], float]) -> _Cost:
    begun = time.monotonic()
    before = side() + rig.node_cpu_seconds()
    probes = measured()
    used = side() + rig.node_cpu_seconds() - before
    seconds = time.monotonic() - begun
    return _Cost(used - node_idle * seconds, seconds, probes)


def _row(measured: str, pairs: list[tuple[float, float]], *, goal: bool, note: str = "") -> Row:
    ratio = median(script / ours for ours, script in pairs)
    return Row(
        measured,
        microseconds(median(ours for ours, _ in pairs)),
        f"script {microseconds(median(script for _, script in pairs))}",
        f"{ratio:,.0f}x less{note}",
        f">= {GOAL:.0f}x less" if goal else "",
        ratio >= GOAL if goal else None,
    )
