"""`python -m tests.haproxy.measure`: the times of docs/haproxy.md, from faults at random moments on stand-in nodes."""

import os
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from harness.haproxy import READER, WRITER
from harness.network import RemoteHost
from harness.ports import Ports
from harness.process import with_system_path
from harness.waiting import wait_for
from tests.haproxy.front import Front, StandIns, switch
from tests.haproxy.stand_in import StandIn

SIDE_BY_SIDE = 5
EACH = 8

Fault = Callable[[StandIn], object]
SEEN_AT_ONCE: dict[str, tuple[Fault, Fault]] = {
    "says 503": (lambda node: setattr(node, "says", "non-primary"), lambda node: setattr(node, "says", "synced")),
    "says 404": (lambda node: setattr(node, "says", "disabled"), lambda node: setattr(node, "says", "synced")),
    "killed": (lambda node: node.stop(), lambda node: node.start()),
    "hangs": (lambda node: setattr(node, "hangs", True), lambda node: setattr(node, "hangs", False)),
}


def main() -> None:
    """Measure, and print a row for each fault: least, median, most."""
    version = subprocess.run(
        ["haproxy", "-v"], env=with_system_path(os.environ), capture_output=True, text=True, check=True, timeout=10
    )
    print(version.stdout.splitlines()[0])  # noqa: T201 (a table to read)
    ports = Ports()
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        Path(directory).chmod(0o755)

        def all_of(measured: Callable[[Path, Ports, str], Iterator[float]], what: str, times: int) -> list[float]:
            directories = [Path(tempfile.mkdtemp(dir=directory)) for _ in range(times)]
            return [
                seconds
                for seen in pool.map(lambda own: list(measured(own, ports, what)), directories)
                for seconds in seen
            ]

        for what in SEEN_AT_ONCE:
            show(f"writer {what}: next node serves", all_of(writer_switches, what, SIDE_BY_SIDE))
        # There is one network of our own at a time.
        show("writer's host silent: next node serves", all_of(silent_switches, "", 1))
        for what in ("disabled", "lagging"):
            show(f"reader {what}: no new clients", all_of(reader_leaves, what, SIDE_BY_SIDE))
    ports.close()


def show(what: str, seconds: list[float]) -> None:
    """Print a row."""
    least, median, most = min(seconds), statistics.median(seconds), max(seconds)
    row = f"{what} | {len(seconds)} times | {least:.2f} s | {median:.2f} s | {most:.2f} s"
    print(row, flush=True)  # noqa: T201 (likewise)


def writer_switches(directory: Path, ports: Ports, what: str) -> Iterator[float]:
    """Give how long each of some switches took."""
    fail, mend = SEEN_AT_ONCE[what]
    with StandIns(directory, ports) as nodes:
        front = nodes.front()
        for _ in range(EACH):
            _any_moment()
            old = nodes.writer(front)
            yield switch(front, old, lambda: fail(old)).next_seconds  # noqa: B023 (runs in this turn)
            mend(old)
            front.wait_for_status(WRITER, old, "UP")


def silent_switches(directory: Path, ports: Ports, _: str) -> Iterator[float]:
    """Give how long each of some switches took away from a host that no packet comes from any more."""
    with RemoteHost() as host, StandIns(directory, ports, remote=host.address) as nodes:
        first = nodes.nodes[0]
        with host.entered():
            first.start()
        front = nodes.front()
        for _turn in range(EACH):
            _any_moment()
            with ExitStack() as network:
                yield switch(front, first, lambda: network.enter_context(host.cut_off())).next_seconds
            front.wait_for_status(WRITER, first, "UP")
            back_to_the_first(front)


def back_to_the_first(front: Front) -> None:
    """Have node1 take the writes again."""
    for name in ("node2", "node3"):
        front.haproxy.ask(f"set server {WRITER}/{name} state maint")
    wait_for("node1 to take the writes", lambda: front.writers.lands_on() == "node1")
    for name in ("node2", "node3"):
        front.haproxy.ask(f"set server {WRITER}/{name} state ready")


def reader_leaves(directory: Path, ports: Ports, what: str) -> Iterator[float]:
    """Give how long each of some readers went on getting new clients once it should not."""
    with StandIns(directory, ports) as nodes:
        front = nodes.front()
        node = nodes.nodes[0]
        for _ in range(EACH):
            _any_moment()
            with front.readers.arriving() as came:
                failed_at = time.monotonic()
                node.says = what
                front.wait_for_status(READER, node, "NOLB" if what == "disabled" else "DOWN")
                known_at = time.monotonic()
                wait_for("a client after it", lambda: came[-1].asked_at > known_at)  # noqa: B023 (runs in this turn)
            last_at = max((client.asked_at for client in came if client.node == node.name), default=failed_at)
            yield max(0.0, last_at - failed_at)
            node.says = "synced"
            front.wait_for_status(READER, node, "UP")


def _any_moment() -> None:
    time.sleep(random.uniform(0, 1.1))


if __name__ == "__main__":
    main()
