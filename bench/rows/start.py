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
from bench.table import Row, milliseconds
from harness.service import Service, service_beside

GOAL = 1.5
GOAL_MIB, GOAL_GROWTH_MIB = 64.0, 1.0

_ROUNDS = 12
_CHECKS, _CONNECTIONS = 100_000, 64
_IMPORTS = "import fastapi, aiomysql, pydantic, prometheus_client"


def rows(rig: Rig) -> list[Row]:
    """Measure, alternating between the sides.

    The first round does not count, because it may read from disk.
    """
    pairs = [(_first_answer(rig), _imports()) for _ in range(_ROUNDS + 1)][1:]
    ratio = median(mine / theirs for mine, theirs in pairs)
    with _started(rig) as service:
        service.get("/metrics")
        before = service.process.resident_kib / 1024
        load.at_full_speed(service.port, _CONNECTIONS, checks=_CHECKS)
        after = service.process.resident_kib / 1024
    return [
        Row(
            "time from exec to the first 200",
            milliseconds(median(mine for mine, _ in pairs)),
            f"`{_IMPORTS}` {milliseconds(median(theirs for _, theirs in pairs))}",
            f"{ratio:.2f}x",
            f"<= {GOAL}x",
            ratio <= GOAL,
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


def _first_answer(rig: Rig) -> float:
    begun = time.monotonic()
    with _started(rig):
        return time.monotonic() - begun


@contextmanager
def _started(rig: Rig) -> Iterator[Service]:
    with service_beside(
        rig.node, rig.installation.directory, rig.installation.ports
    ) as service:
        service.wait_for_verdict(200, "synced")
        yield service


def _imports() -> float:
    begun = time.monotonic()
    # With setpriv, because the harness starts every process with it.
    subprocess.run(
        ["setpriv", "--pdeathsig", "KILL", sys.executable, "-c", _IMPORTS], check=True
    )
    return time.monotonic() - begun
