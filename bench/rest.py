"""`python -m bench.rest [--beside REF]`: what the service and its server use when little is asked.

One row for each rate of health checks: the service's CPU time, what it adds to mariadbd's, and its
memory. With a commit beside it, both run on the same node and take turns, the other one paused.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench.rig import Rig
from bench.rows.cpu import at_rate, cost
from harness.service import PROGRAM, Service

RATES = (0, 2, 10)
"""Health checks a second."""

_ROUNDS = 5
_SECONDS = 8.0

_HEADER = """
| health checks/s | build | service | what it adds to mariadbd | both | resident memory |
|---|---|---|---|---|---|"""


class Use(NamedTuple):
    """What a service uses: shares of a core, and memory."""

    own: float
    node: float
    both: float
    resident_kib: float


def main() -> int:
    """Measure, and print the rows of each rate."""
    parser = argparse.ArgumentParser(prog="python -m bench.rest")
    parser.add_argument(
        "--beside", metavar="REF", help="a commit to measure in turns with this one"
    )
    ref = parser.parse_args().beside
    with Rig(partial(print, file=sys.stderr)) as rig, ExitStack() as exits:
        builds = {"this": rig.service}
        if ref:
            builds[ref] = exits.enter_context(_build_of(ref, rig))
        print(f"{datetime.now(UTC):%Y-%m-%d}, {rig.description()}")
        print(_HEADER)
        for rate in RATES:
            uses = _uses(rig, builds, rate)
            for name, use in uses.items():
                print(_row(str(rate), name, use), flush=True)
            if ref:
                print(_ratio(uses["this"], uses[ref]), flush=True)
    return 0


@contextmanager
def _build_of(ref: str, rig: Rig) -> Iterator[Service]:
    """Run the service of another commit, beside the same node."""
    checkout = str(Path(__file__).parents[1])
    archive = ["git", "-C", checkout, "archive", ref, "app"]
    with TemporaryDirectory() as folder:
        files = subprocess.run(archive, check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(["tar", "-x", "-C", folder], check=True, input=files)
        command = ["env", "-C", folder, *PROGRAM]
        with rig.beside(command=command) as service:
            yield service


def _uses(rig: Rig, builds: dict[str, Service], rate: int) -> dict[str, Use]:
    """Return the median over the rounds of what each build uses."""
    found: dict[str, list[Use]] = {name: [] for name in builds}
    for _ in range(_ROUNDS):
        with _all_paused_but(None, builds):
            _, idle, _ = cost(rig, lambda: 0.0, partial(at_rate, 0, 0, _SECONDS))
        for name, service in builds.items():
            with _all_paused_but(service, builds):
                found[name].append(_use(rig, service, rate, idle))
    return {
        name: Use(*map(median, zip(*uses, strict=True))) for name, uses in found.items()
    }


@contextmanager
def _all_paused_but(
    service: Service | None, builds: dict[str, Service]
) -> Iterator[None]:
    with ExitStack() as paused:
        for other in builds.values():
            if other is not service:
                paused.enter_context(other.process.paused())
        yield


def _use(rig: Rig, service: Service, rate: int, idle: float) -> Use:
    """Return what a service uses. idle: what mariadbd uses without any."""
    # After a pause, the first poll reads in sync.
    service.wait_for_verdict(200, "synced")
    process = service.process
    asking = partial(at_rate, service.port, rate, _SECONDS)
    own, node, _ = cost(rig, lambda: process.cpu_seconds, asking)
    return Use(own, node - idle, own + node - idle, process.resident_kib)


def _row(rate: str, name: str, use: Use) -> str:
    memory = f"{use.resident_kib / 1024:.0f} MiB"
    return f"| {rate} | {name} | {use.own:.2%} | {use.node:.2%} | {use.both:.2%} | {memory} |"


def _ratio(this: Use, other: Use) -> str:
    ratios = [
        f"{ours / theirs:.2f}" if theirs > 0 else "-"
        for ours, theirs in zip(this, other, strict=True)
    ]
    return f"| | ratio | {' | '.join(ratios)} |"


if __name__ == "__main__":
    sys.exit(main())
