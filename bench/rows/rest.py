"""What it costs with nobody asking: CPU of the service, and what its observations add to mariadbd."""

import time
from statistics import median

from bench.machine import cpu_seconds
from bench.rig import Rig
from bench.table import Row

GOAL = 0.01

_ROUNDS = 4
_SECONDS = 5.0


def rows(rig: Rig) -> list[Row]:
    """Measure mariadbd with and without the service in turns."""
    service, added = [], []
    for _ in range(_ROUNDS):
        node_alone = rig.node_idle_share(_SECONDS)
        before = cpu_seconds(rig.service.process), rig.node_cpu_seconds()
        time.sleep(_SECONDS)
        service.append((cpu_seconds(rig.service.process) - before[0]) / _SECONDS)
        added.append((rig.node_cpu_seconds() - before[1]) / _SECONDS - node_alone)
    total = median(one + other for one, other in zip(service, added, strict=True))
    return [
        Row(
            "CPU at rest, share of a core: service + what it adds to mariadbd",
            f"{median(service):.2%} + {median(added):.2%}",
            "",
            f"{total:.2%}",
            f"<= {GOAL:.0%}",
            total <= GOAL,
        ),
    ]
