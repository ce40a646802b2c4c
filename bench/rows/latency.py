"""The 99th percentile of a health check's time, from connect to answer, at a steady rate, compared with the floor."""

from statistics import median

from bench import load
from bench.machine import on_cores_of_their_own
from bench.rig import Rig
from bench.table import Row, microseconds, percentile

GOAL = 1.5

_ROUNDS = 10
_SECONDS = 2.0
_CHECKS_PER_SECOND = 500


def rows(rig: Rig) -> list[Row]:
    """Measure, alternating between the sides. Medians over the rounds filter out other load on the machine."""
    ours, floor = [], []
    with on_cores_of_their_own([rig.service.process, rig.floor.process]):
        for _ in range(_ROUNDS):
            ours.append(_latencies(rig.service.port))
            with rig.service_paused():
                floor.append(_latencies(rig.floor.port))
    ratio = median(percentile(o, 99) for o in ours) / median(percentile(f, 99) for f in floor)
    return [
        Row(
            f"p99 at {_CHECKS_PER_SECOND} checks/s (p50)",
            _cell(ours),
            f"floor {_cell(floor)}",
            f"{ratio:.2f}x",
            f"<= {GOAL}x",
            ratio <= GOAL,
        ),
    ]


def _latencies(port: int) -> list[float]:
    return load.at_rate(port, _CHECKS_PER_SECOND, _SECONDS).latencies


def _cell(rounds: list[list[float]]) -> str:
    p50, p99 = (median(percentile(each, percent) for each in rounds) for percent in (50, 99))
    return f"{microseconds(p99)} ({microseconds(p50)})"
