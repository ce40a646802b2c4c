"""Runs worlds by their seeds.

One with `python -m tests.simulation 1234`, a range with `python -m tests.simulation 0 20000`.
"""

import sys

from tests.simulation.simulation import BrokenPromiseError, Simulation


def main(first: int, after: int) -> int:
    """Run the worlds of a range, print the stories of those that fail, return the exit status."""
    failed = 0
    for seed in range(first, after):
        try:
            Simulation(seed).run()
        except BrokenPromiseError as fault:
            failed += 1
            print(f"{fault}\n", flush=True)  # noqa: T201 (a command)
    print(f"{after - first} seeds, {failed} failed")  # noqa: T201 (a command)
    return int(failed > 0)


first, *rest = map(int, sys.argv[1:])
sys.exit(main(first, rest[0] if rest else first + 1))
