"""Health checks per second on one core, each on a new connection, and CPU time for each, compared with the floor.

The rate depends on the generator too, if it waits for each answer (one connection) or is the limit itself. The CPU time
of the server process does not.
"""

from statistics import median

from bench import load
from bench.machine import on_cores_of_their_own
from bench.rig import Floor, Rig
from bench.table import Row, microseconds
from harness.service import Service

GOAL = 0.85

_CONNECTIONS = (1, 8, 64)
_ROUNDS = 20  # short and many: a noisy machine changes within a second
_SECONDS = 0.3
_GENERATOR_IS_THE_LIMIT = 0.95


def rows(rig: Rig) -> list[Row]:
    """Measure each number of connections, alternating between the sides."""
    with on_cores_of_their_own([rig.service.process, rig.floor.process]):
        for server in (rig.service, rig.floor):
            load.at_full_speed(server.port, max(_CONNECTIONS), seconds=_SECONDS)
        return [_row(rig, connections) for connections in _CONNECTIONS]


def _row(rig: Rig, connections: int) -> Row:
    ours, floor = [], []
    for _ in range(_ROUNDS):
        ours.append(_measure(rig.service, connections))
        with rig.service_paused():
            floor.append(_measure(rig.floor, connections))
    ratio = median(mine.per_second / theirs.per_second for (mine, _), (theirs, _) in zip(ours, floor, strict=True))
    cpu_ratio = median(theirs / mine for (_, mine), (_, theirs) in zip(ours, floor, strict=True))
    limited = median(theirs.own_share for theirs, _ in floor) > _GENERATOR_IS_THE_LIMIT
    return Row(
        f"checks/s on one core, {connections} connection{'s' if connections > 1 else ''} (server CPU per health check)",
        _cell(ours),
        f"floor {_cell(floor)}",
        f"{ratio:.2f}x (by CPU {cpu_ratio:.2f}x)" + (", limited by the generator" if limited else ""),
        f">= {GOAL}x",
        min(ratio, cpu_ratio) >= GOAL if limited else ratio >= GOAL,
    )


def _measure(server: Service | Floor, connections: int) -> tuple[load.Load, float]:
    before = server.process.cpu_seconds
    done = load.at_full_speed(server.port, connections, seconds=_SECONDS)
    return done, (server.process.cpu_seconds - before) / done.checks


def _cell(runs: list[tuple[load.Load, float]]) -> str:
    return f"{median(run.per_second for run, _ in runs):,.0f} ({microseconds(median(cpu for _, cpu in runs))})"
