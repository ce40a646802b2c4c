"""`make bench`: Markdown tables with every figure that the documentation promises."""

import argparse
import sys
from collections.abc import Callable

from bench.load import WrongAnswerError
from bench.rig import Rig
from bench.rows import cpu, detection, http, reload, start
from bench.table import Row, markdown
from harness.process import ProcessEndedError, interrupt_once
from harness.waiting import NotInTimeError, tell_with_seconds

GROUPS: dict[str, Callable[[Rig], list[Row]]] = {
    "cpu": cpu.rows,
    "http": http.rows,
    "start": start.rows,
    "detection": detection.rows,
    "reload": reload.rows,
}


def main() -> int:
    """Measure and print the tables. Return 0 even if a goal is not met: the tables show that."""
    parser = argparse.ArgumentParser(
        prog="make bench", description="Measure clustercheckd on a real Galera node."
    )
    parser.add_argument(
        "--only",
        metavar="NAME",
        choices=GROUPS,
        action="append",
        help=f"one of {', '.join(GROUPS)}",
    )
    options = parser.parse_args()
    interrupt_once()
    tell = tell_with_seconds(sys.stderr)
    try:
        with Rig(tell) as rig:
            print(rig.description())
            for name in options.only or GROUPS:
                tell(f"measuring: {name}")
                # At once: if a later group fails, the minutes before were not in vain.
                print(f"\n{markdown(GROUPS[name](rig))}", flush=True)
    except KeyboardInterrupt:
        return 130
    except (WrongAnswerError, NotInTimeError, ProcessEndedError) as fault:
        print(f"FAILED: {fault}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
