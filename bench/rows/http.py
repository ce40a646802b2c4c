"""Health checks per second on one core, each on a new connection, and the slowest answers.

The slowest are given as the 99th percentile of the time to answer.

Both are compared with the floor. If one connection waits for each answer, the rate depends on the
generator too. The CPU time of the server process does not.
"""

from statistics import median

from bench import load
from bench.rig import Floor, Rig, on_cores_of_their_own
from bench.table import Row, microseconds, percentile
from harness.service import Service

GOAL, GOAL_P99 = 0.85, 1.5

_CONNECTIONS = (1, 8, 64)
_ROUNDS = 20  # short and many: a noisy machine changes within a second
_SECONDS = 0.3
_P99_ROUNDS, _P99_SECONDS, _CHECKS_PER_SECOND = 10, 2.0, 500


def rows(rig: Rig) -> list[Row]:
    """Measure, alternating between the sides."""
    with on_cores_of_their_own([rig.service.process, rig.floor.process]):
        for server in (rig.service, rig.floor):
            load.at_full_speed(server.port, max(_CONNECTIONS), seconds=_SECONDS)
        return [*(_rate_row(rig, connections) for connections in _CONNECTIONS), _p99_row(rig)]


def _rate_row(rig: Rig, connections: int) -> Row:
    ours, floor = [], []
    for _ in range(_ROUNDS):
        ours.append(_rate(rig.service, connections))
        with rig.service_paused():
            floor.append(_rate(rig.floor, connections))
    ratio = median(mine / theirs for (mine, _), (theirs, _) in zip(ours, floor, strict=True))
    by_cpu = median(theirs / mine for (_, mine), (_, theirs) in zip(ours, floor, strict=True))
    cells = [
        f"{median(r for r, _ in each):,.0f} ({microseconds(median(c for _, c in each))})"
        for each in (ours, floor)
    ]
    return Row(
        f"health checks/s on one core, {connections} at a time (server CPU for each)",
        cells[0],
        f"floor {cells[1]}",
        f"{ratio:.2f}x (by CPU {by_cpu:.2f}x)",
        f">= {GOAL}x",
        ratio >= GOAL,
    )


def _rate(server: Service | Floor, connections: int) -> tuple[float, float]:
    """Return the health checks per second, and the CPU seconds of the server for each."""
    before = server.process.cpu_seconds
    done = load.at_full_speed(server.port, connections, seconds=_SECONDS)
    return done.per_second, (server.process.cpu_seconds - before) / done.checks


def _p99_row(rig: Rig) -> Row:
    ours, floor = [], []
    for _ in range(_P99_ROUNDS):
        ours.append(_p99(rig.service.port))
        with rig.service_paused():
            floor.append(_p99(rig.floor.port))
    ratio = median(ours) / median(floor)
    return Row(
        f"p99 of the time to answer, at {_CHECKS_PER_SECOND} health checks/s",
        microseconds(median(ours)),
        f"floor {microseconds(median(floor))}",
        f"{ratio:.2f}x",
        f"<= {GOAL_P99}x",
        ratio <= GOAL_P99,
    )


def _p99(port: int) -> float:
    return percentile(load.at_rate(port, _CHECKS_PER_SECOND, _P99_SECONDS).latencies, 99)
