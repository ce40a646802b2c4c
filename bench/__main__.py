"""`make bench`: one Markdown table with every figure that the documentation promises."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench.load import WrongAnswerError
from bench.rig import Rig
from bench.rows import cpu, detection, latency, memory, package, queries, rest, start, throughput
from bench.table import Row, markdown
from bench.xinetd import MissingError
from harness.process import ProcessEndedError
from harness.waiting import NotInTimeError

_HEALTH_CHECKS, _HEALTH_CHECKS_IN_FULL = 300_000, 1_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print the table. Return 0 even if a goal is not met: the table shows that."""
    groups: dict[str, Callable[[Rig], list[Row]]] = {
        "cpu": cpu.rows,
        "throughput": throughput.rows,
        "latency": latency.rows,
        "queries": queries.rows,
        "rest": rest.rows,
        "memory": partial(memory.rows, checks=_HEALTH_CHECKS),
        "start": start.rows,
        "detection": detection.rows,
        "package": package.rows,
    }
    parser = argparse.ArgumentParser(prog="make bench", description="Measure clustercheckd on a real Galera node.")
    parser.add_argument("--only", metavar="NAME", choices=groups, action="append", help=f"one of {', '.join(groups)}")
    parser.add_argument(
        "--full",
        action="store_true",
        help=f"memory after {_HEALTH_CHECKS_IN_FULL:,} health checks, not {_HEALTH_CHECKS:,}",
    )
    parser.add_argument("--output", metavar="FILE", type=Path, help="also write the table to this file")
    options = parser.parse_args(arguments)
    if options.output and (options.output.is_dir() or not os.access(options.output.absolute().parent, os.W_OK)):
        parser.error(f"--output {options.output}: is a directory, or in a directory that you may not write")
    if options.full:
        groups["memory"] = partial(memory.rows, checks=_HEALTH_CHECKS_IN_FULL)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if not package.FROZEN.exists():
        if "package" in (options.only or ()):
            parser.error("--only package: there is no package yet: type make package first")
        del groups["package"]
    begun = time.monotonic()

    def tell(what: str) -> None:
        print(f"[{time.monotonic() - begun:5.1f} s] {what}", file=sys.stderr, flush=True)

    try:
        text = _measure({name: groups[name] for name in options.only or groups}, tell)
    except KeyboardInterrupt:
        return 130
    except (MissingError, WrongAnswerError, NotInTimeError, ProcessEndedError) as fault:
        print(f"FAILED: {fault}", file=sys.stderr)
        return 1
    print(text)
    if options.output:
        options.output.write_text(f"{text}\n")
    return 0


def _measure(groups: dict[str, Callable[[Rig], list[Row]]], tell: Callable[[str], None]) -> str:
    rows: list[Row] = []
    with Rig(tell) as rig:
        for name, measure in groups.items():
            tell(f"measuring: {name}")
            rows += measure(rig)
        tell("done")
        how = "Medians over alternating rounds. Ratios of rates and of starts are medians of ratios."
        return f"{rig.description()}\n\n{how}\n\n{markdown(rows)}"


if __name__ == "__main__":
    sys.exit(main())
