"""Memory after the start and a first scrape, and after many health checks, each on its own connection."""

import sys

from bench import load
from bench.machine import on_cores_of_their_own
from bench.rig import Rig
from bench.table import Row
from harness.service import Service

GOAL_KIB = 56 * 1024
GOAL_GROWTH_KIB = 1024

_CONNECTIONS = 64
# Users install requirements/service.txt, which does not have cryptography. The tests need it, and the driver imports it
# (8 MiB) if it is installed.
_AS_INSTALLED = (
    sys.executable,
    "-c",
    "import sys; sys.modules['cryptography'] = None; from app.__main__ import main; sys.exit(main())",
)


def rows(rig: Rig, checks: int) -> list[Row]:
    """Measure a new service that has not answered anything before."""
    service = Service.of(rig.node, rig.installation.directory, rig.installation.ports.free(), command=_AS_INSTALLED)
    try:
        service.wait_until_up()
        service.wait_for_verdict(200, "synced")
        service.get("/metrics")
        with on_cores_of_their_own([service.process]):
            started = service.process.resident_kib
            load.at_full_speed(service.port, _CONNECTIONS, checks=checks)
            after = service.process.resident_kib
    finally:
        service.process.kill()
    return [
        Row(
            f"memory (RSS) after the start and a scrape, and after {checks:,} health checks",
            f"{_mebibytes(started)}, {_mebibytes(after)}",
            "",
            f"growth {_mebibytes(after - started)}",
            f"<= {_mebibytes(GOAL_KIB, 0)}, growth < {_mebibytes(GOAL_GROWTH_KIB, 0)}",
            max(started, after) <= GOAL_KIB and after - started < GOAL_GROWTH_KIB,
        ),
    ]


def _mebibytes(kib: int, digits: int = 1) -> str:
    return f"{kib / 1024:.{digits}f} MiB"
