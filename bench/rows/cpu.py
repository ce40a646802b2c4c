"""CPU time at rest and at low rates of health checks, and for each health check at full speed.

Each side counts its own processes and what it adds to mariadbd. What mariadbd uses by itself is
measured in each round, with clustercheckd stopped. The load generator does not count, and neither
does xinetd.
"""

import os
import resource
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from bench import load
from bench.rig import Rig
from bench.script import script_command
from bench.table import Row, microseconds

GOALS = {0: 0.0045, 2: 0.008}
"""The share of a core at so many health checks a second: that of the service, and what it adds to
mariadbd."""
GOAL_LESS = 100.0
DROP_IN = [str(Path(__file__).parents[2] / "packaging" / "clustercheck"), "-", "1"]

_ROUNDS = 4
_SECONDS = 5.0
_CONNECTIONS = 8


def rows(rig: Rig) -> list[Row]:
    """Measure, alternating between rates and sides, and take medians over the rounds."""
    command = script_command(rig.node, rig.installation.directory)
    shares: dict[int, list[tuple[float, float]]] = {rate: [] for rate in GOALS}
    ours, script, drop_in = [], [], []

    def service_seconds() -> float:
        return rig.service.process.cpu_seconds

    def drop_in_seconds() -> float:
        return children_seconds() + service_seconds()

    for _ in range(_ROUNDS):
        with rig.service_paused():
            _, node_idle, _ = cost(
                rig, service_seconds, partial(at_rate, rig.service.port, 0, _SECONDS)
            )
        for rate, measured in shares.items():
            own, node, _ = cost(
                rig, service_seconds, partial(at_rate, rig.service.port, rate, _SECONDS)
            )
            measured.append((own, node - node_idle))
        own, node, per_second = cost(
            rig, service_seconds, partial(_at_full_speed, rig.service.port)
        )
        ours.append((own + node - node_idle) / per_second)
        with rig.service_paused():
            own, node, per_second = cost(
                rig, children_seconds, partial(_run_again_and_again, command)
            )
        script.append((own + node - node_idle) / per_second)
        own, node, per_second = cost(
            rig,
            drop_in_seconds,
            partial(_run_again_and_again, DROP_IN, rig.service.port),
        )
        drop_in.append((own + node - node_idle) / per_second)
    less = median(script) / median(ours)
    return [
        *(_share_row(rate, measured, GOALS[rate]) for rate, measured in shares.items()),
        Row(
            "CPU per health check at full speed (service + mariadbd; bash + client + mariadbd)",
            microseconds(median(ours)),
            f"script {microseconds(median(script))}",
            f"{less:,.0f}x less",
            f">= {GOAL_LESS:.0f}x less",
            less >= GOAL_LESS,
        ),
        Row(
            "CPU per health check by the command `clustercheck` (bash + service + mariadbd)",
            microseconds(median(drop_in)),
            f"script {microseconds(median(script))}",
            f"{median(script) / median(drop_in):.1f}x less",
            "at most the script's",
            median(drop_in) <= median(script),
        ),
    ]


def _share_row(rate: int, measured: list[tuple[float, float]], goal: float) -> Row:
    service, node = (median(values) for values in zip(*measured, strict=True))
    total = median(map(sum, measured))
    return Row(
        f"CPU at {rate} health checks/s, share of a core: service + what it adds to mariadbd",
        f"{service:.2%} + {node:.2%}",
        "",
        f"{total:.2%}",
        f"<= {goal:.2%}",
        total <= goal,
    )


def cost(
    rig: Rig, side: Callable[[], float], work: Callable[[], int]
) -> tuple[float, float, float]:
    """Return the shares of a core that the side and mariadbd used, and health checks per second."""
    begun, own, node = time.monotonic(), side(), rig.node.process.cpu_seconds
    checks = work()
    seconds = time.monotonic() - begun
    return (
        (side() - own) / seconds,
        (rig.node.process.cpu_seconds - node) / seconds,
        checks / seconds,
    )


def children_seconds() -> float:
    """Return the CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def at_rate(port: int, rate: int, seconds: float) -> int:
    """Send health checks at this rate, which may be 0, and return how many."""
    if rate:
        return load.at_rate(port, rate, seconds).checks
    time.sleep(seconds)
    return 0


def _at_full_speed(port: int) -> int:
    return load.at_full_speed(port, _CONNECTIONS, seconds=_SECONDS).checks


def _run_again_and_again(command: list[str], port: int = 0) -> int:
    end = time.monotonic() + _SECONDS
    checks = 0
    while time.monotonic() < end:
        subprocess.run(
            command,
            check=True,
            env={**os.environ, "CLUSTERCHECK_PORT": str(port)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        checks += 1
    return checks
