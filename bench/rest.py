"""`python -m bench.rest FOLDER`: CPU time at rest of this checkout, against that of another one.

Both run beside the same node and take turns, the other one paused. Each counts with what it adds to
mariadbd.
"""

import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median

from bench import load
from bench.rig import Rig
from harness.galera import ACCOUNT, PASSWORD
from harness.service import Service

RATES = (0, 2, 10)
"""Health checks a second."""

_ROUNDS = 4
_SECONDS = 8.0


def main(folder: Path) -> int:
    """Measure, and print a row for each rate."""
    with Rig(partial(print, file=sys.stderr)) as rig, ExitStack() as exits:
        print(rig.description())
        settings = {
            "MYSQL_SOCKET": str(rig.node.socket),
            "MYSQL_USERNAME": ACCOUNT,
            "MYSQL_PASSWORD": PASSWORD,
        }
        command = ["env", "-C", str(folder), sys.executable, "-m", "app"]
        directory, port = rig.installation.directory, rig.installation.ports.free()
        other = Service(directory, port, settings, name="other", command=command)
        exits.callback(other.process.kill)
        other.wait_until_up()
        other.wait_for_verdict(200, "synced")
        for rate in RATES:
            print(_row(rig, other, rate), flush=True)
    return 0


def _row(rig: Rig, other: Service, rate: int) -> str:
    sides = {"this": (rig.service, other), "other": (other, rig.service)}
    shares: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(_ROUNDS):
        with rig.service.process.paused(), other.process.paused():
            begun, used = time.monotonic(), rig.node.process.cpu_seconds
            time.sleep(_SECONDS)
            idle = (rig.node.process.cpu_seconds - used) / (time.monotonic() - begun)
        for name, (measured, paused) in sides.items():
            with paused.process.paused():
                own, node = _share(rig, measured, rate)
            shares[name].append((own, node - idle))
    totals = {name: median(map(sum, found)) for name, found in shares.items()}
    words = [f"{rate:2} health checks/s:"]
    for name, found in shares.items():
        own, node = (median(values) for values in zip(*found, strict=True))
        words.append(f"{name} {own:.3%} + {node:.3%} = {totals[name]:.3%},")
    return " ".join([*words, f"ratio {totals['this'] / totals['other']:.2f}"])


def _share(rig: Rig, service: Service, rate: int) -> tuple[float, float]:
    """Return the shares of a core that a service and mariadbd use."""
    # After the pause, the first poll reads in sync.
    service.wait_for_verdict(200, "synced")
    own, node = service.process.cpu_seconds, rig.node.process.cpu_seconds
    begun = time.monotonic()
    if rate:
        load.at_rate(service.port, rate, _SECONDS)
    else:
        time.sleep(_SECONDS)
    seconds = time.monotonic() - begun
    return (
        (service.process.cpu_seconds - own) / seconds,
        (rig.node.process.cpu_seconds - node) / seconds,
    )


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
