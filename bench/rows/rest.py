"""The CPU time without any health check: that of the service, and what its polls add to mariadbd.

This figure is not a ratio: it grows if other processes fill the CPU's caches. The idle floor, which wakes ten times a
second and does nothing, shows by how much.
"""

import time
from statistics import median

from bench.rig import Rig
from bench.table import Row

GOAL = 0.006

_ROUNDS = 4
_SECONDS = 5.0


def rows(rig: Rig) -> list[Row]:
    """Measure mariadbd without and with the service, alternating."""
    service, added, floor = [], [], []
    for _ in range(_ROUNDS):
        node_alone = rig.node_idle_share(_SECONDS)
        before = _used(rig)
        time.sleep(_SECONDS)
        used = [(now - then) / _SECONDS for then, now in zip(before, _used(rig), strict=True)]
        service.append(used[0])
        added.append(used[1] - node_alone)
        floor.append(used[2])
    total = median(one + other for one, other in zip(service, added, strict=True))
    return [
        Row(
            "CPU at rest, share of a core: service + what it adds to mariadbd",
            f"{median(service):.2%} + {median(added):.2%}",
            f"floor {median(floor):.2%}",
            f"{total:.2%}",
            f"<= {GOAL:.1%}",
            total <= GOAL,
        ),
    ]


def _used(rig: Rig) -> tuple[float, float, float]:
    return rig.service.process.cpu_seconds, rig.node_cpu_seconds(), rig.floor.process.cpu_seconds
