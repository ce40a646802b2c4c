"""Runs worlds by their seeds.

One with `python -m tests.simulation 1234`, a range with `python -m tests.simulation 0 20000`.
"""

import sys

from tests.simulation.simulation import BrokenPromiseError, Simulation

first, *rest = map(int, sys.argv[1:])
seeds = range(first, rest[0] if rest else first + 1)
failed = 0
for seed in seeds:
    try:
        Simulation(seed).run()
    except BrokenPromiseError as fault:
        failed += 1
        print(f"{fault}\n", flush=True)  # noqa: T201 (a command)
print(f"{len(seeds)} seeds, {failed} failed")  # noqa: T201 (a command)
sys.exit(failed > 0)
