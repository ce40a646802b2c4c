"""A new service: the time from exec to the first 200, and its memory.

The memory is measured before and after many health checks.

The time is compared with that to import the packages that it uses.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from bench import load
from bench.rig import Rig
from bench.rows.cpu import children_seconds
from bench.table import Row, milliseconds
from harness.service import Service

GOAL, GOAL_CPU = 1.0, 0.8
GOAL_MIB, GOAL_GROWTH_MIB = 64.0, 1.0

_ROUNDS = 12
_WALL, _CPU = 0, 1
_CHECKS, _CONNECTIONS = 100_000, 64
_IMPORTS = "import fastapi, aiomysql, pydantic, prometheus_client"


def rows(rig: Rig) -> list[Row]:
    """Measure, alternating between the sides.

    The first round does not count, because it may read from disk.
    """
    pairs = [(_first_answer(rig), _imports()) for _ in range(_ROUNDS + 1)][1:]
    ratios = [
        median(mine[of] / theirs[of] for mine, theirs in pairs) for of in (_WALL, _CPU)
    ]
    with _started(rig) as service:
        service.get("/metrics")
        before = service.process.resident_kib / 1024
        load.at_full_speed(service.port, _CONNECTIONS, checks=_CHECKS)
        after = service.process.resident_kib / 1024
    return [
        *(
            Row(
                f"{what} from exec to the first 200",
                milliseconds(median(mine[of] for mine, _ in pairs)),
                f"`{_IMPORTS}` {milliseconds(median(theirs[of] for _, theirs in pairs))}",
                f"{ratios[of]:.2f}x",
                f"<= {goal}x",
                ratios[of] <= goal,
            )
            for of, what, goal in ((_WALL, "time", GOAL), (_CPU, "CPU", GOAL_CPU))
        ),
        Row(
            f"memory (RSS) after the start and a scrape, and after {_CHECKS:,} health checks",
            f"{before:.1f} MiB, {after:.1f} MiB",
            "",
            f"growth {after - before:.1f} MiB",
            f"<= {GOAL_MIB:.0f} MiB, growth < {GOAL_GROWTH_MIB:.0f} MiB",
            max(before, after) <= GOAL_MIB and after - before < GOAL_GROWTH_MIB,
        ),
    ]


def _first_answer(rig: Rig) -> tuple[float, float]:
    begun = time.monotonic()
    with _started(rig) as service:
        return time.monotonic() - begun, service.process.cpu_seconds


@contextmanager
def _started(rig: Rig) -> Iterator[Service]:
    with rig.beside() as service:
        service.wait_for_verdict(200, "synced")
        yield service


def _imports() -> tuple[float, float]:
    begun, used = time.monotonic(), children_seconds()
    # With setpriv, because the harness starts every process with it.
    subprocess.run(
        ["setpriv", "--pdeathsig", "KILL", sys.executable, "-c", _IMPORTS], check=True
    )
    return time.monotonic() - begun, children_seconds() - used
