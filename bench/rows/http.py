"""Health checks per second on one core, each on a new connection, and the slowest answers.

The slowest are given as the 99th percentile of the time to answer.

Both are compared with the floor. If one connection waits for each answer, the rate depends on the
generator too. The CPU time of the server process does not.
"""

from statistics import median, quantiles

from bench import load
from bench.rig import Floor, Rig, on_cores_of_their_own
from bench.table import Row, microseconds
from harness.costly import costliest_head, head_seconds
from harness.haproxy import READER_QUESTION
from harness.service import Service

GOALS = {1: 1.0, 8: 1.4, 64: 1.4}
"""How many times as many health checks as the floor, with so many at a time."""
GOAL_CPU, GOAL_P99 = 0.70, 1.5
GOAL_OVERRIDDEN, GOAL_OVERRIDDEN_CPU = 0.95, 1.05
GOAL_HEAD = 20

_HEAD = b"GET / HTTP/1.0\r\nHost: www\r\n\r\n"
_READINGS = 1000

_READERS = 8
_ROUNDS = 20  # short and many: a noisy machine changes within a second
_SECONDS = 0.3
_P99_ROUNDS, _P99_SECONDS, _CHECKS_PER_SECOND = 10, 2.0, 500


_Rates = list[tuple[float, float]]
"""Health checks a second, and the seconds of CPU for each, of each round."""


def rows(rig: Rig) -> list[Row]:
    """Measure, alternating between the sides."""
    with on_cores_of_their_own([rig.service.process, rig.floor.process]):
        for server in (rig.service, rig.floor):
            load.at_full_speed(server.port, max(GOALS), seconds=_SECONDS)
        rates = [
            _rate_row(rig, connections, goal) for connections, goal in GOALS.items()
        ]
        return [*rates, _overridden_row(rig), _p99_row(rig), _head_row()]


def _rate_row(rig: Rig, connections: int, goal: float) -> Row:
    ours, floor = [], []
    for _ in range(_ROUNDS):
        ours.append(_rate(rig.service, connections))
        with rig.service_paused():
            floor.append(_rate(rig.floor, connections))
    what = f"health checks/s on one core, {connections} at a time (server CPU for each)"
    return _compared(what, ours, "floor", floor, goal=goal, goal_cpu=GOAL_CPU)


def _overridden_row(rig: Rig) -> Row:
    """Compare the readers' URL of the README with `/`."""
    plain, overridden = [], []
    for _ in range(2 * _ROUNDS):
        plain.append(_rate(rig.service, _READERS))
        overridden.append(_rate(rig.service, _READERS, READER_QUESTION))
    what = f"the same of `{READER_QUESTION}`, {_READERS} at a time"
    return _compared(
        what,
        overridden,
        "`/`",
        plain,
        goal=GOAL_OVERRIDDEN,
        goal_cpu=GOAL_OVERRIDDEN_CPU,
    )


def _compared(
    what: str,
    ours: _Rates,
    beside: str,
    others: _Rates,
    *,
    goal: float,
    goal_cpu: float,
) -> Row:
    ratio = median(
        mine / other for (mine, _), (other, _) in zip(ours, others, strict=True)
    )
    by_cpu = median(
        mine / other for (_, mine), (_, other) in zip(ours, others, strict=True)
    )
    cells = [
        f"{median(r for r, _ in each):,.0f} ({microseconds(median(c for _, c in each))})"
        for each in (ours, others)
    ]
    return Row(
        what,
        cells[0],
        f"{beside} {cells[1]}",
        f"{ratio:.2f}x, CPU {by_cpu:.2f}x",
        f">= {goal}x, CPU <= {goal_cpu}x",
        ratio >= goal and by_cpu <= goal_cpu,
    )


def _rate(
    server: Service | Floor, connections: int, target: str = "/"
) -> tuple[float, float]:
    """Return the health checks per second, and the CPU seconds of the server for each."""
    before = server.process.cpu_seconds
    done = load.at_full_speed(server.port, connections, seconds=_SECONDS, target=target)
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
    latencies = load.at_rate(port, _CHECKS_PER_SECOND, _P99_SECONDS).latencies
    # Within the range of the latencies.
    return quantiles(latencies, n=100, method="inclusive")[-1]


def _head_row() -> Row:
    """Compare the head of 8 KiB that takes longest to read with an ordinary one."""
    costliest = costliest_head()
    costly, ordinary = (
        min(head_seconds(head) for _ in range(_READINGS)) for head in (costliest, _HEAD)
    )
    return Row(
        "CPU to read the head of 8 KiB that takes longest",
        microseconds(costly),
        f"an ordinary one {microseconds(ordinary)}",
        f"{costly / ordinary:.0f}x",
        f"<= {GOAL_HEAD}x",
        costly <= GOAL_HEAD * ordinary,
    )
