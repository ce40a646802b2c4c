"""Measured times and their bounds, and what a busy machine does to them and to real nodes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

STALLED = {"timeout", "stale", "non-primary", "disconnected"}
"""The reasons of a node that gets no time for a second or two."""


class DisturbedError(AssertionError):
    """What a fault causes, and a busy machine as well.

    pytest repeats the test, twice at the most (pyproject.toml).
    """


def record(measured: str) -> None:
    """Print what was measured; pytest -rP shows it."""
    print(f"MEASURED {measured}")  # noqa: T201 (how a test reports)


def within(what: str, seconds: float, bound: float) -> None:
    """Record a measured time.

    Raise `DisturbedError` if it is beyond its bound, for other work only ever adds to it.
    """
    record(f"{what}: {seconds:.2f} s (bound {bound:g} s)")
    if seconds > bound:
        raise DisturbedError(f"{what}: {seconds:.2f} s, and its bound is {bound:g} s")


@contextmanager
def done_within(what: str, bound: float) -> Iterator[None]:
    """Measure the time that the block takes, and compare it as `within` does."""
    began_at = time.monotonic()
    yield
    within(what, time.monotonic() - began_at, bound)


def let_pass(seconds: float) -> None:
    """Sleep. Only for a test about a duration: all others wait for a condition."""
    time.sleep(seconds)


def for_seconds(seconds: float) -> Iterator[None]:
    """Have a loop repeat its body for so long."""
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        yield
