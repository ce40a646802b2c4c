"""Measured times and their bounds, and what a busy machine does to them and to real nodes."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from harness.service import Service

STALLED = {"timeout", "stale", "non-primary", "disconnected"}
"""The reasons of a node that gets no time for a second or two: it hangs, or is lost to the other members."""


class DisturbedError(AssertionError):
    """What a fault causes, and a busy machine as well: pytest repeats the test, twice at the most (pyproject.toml)."""


def record(measured: str) -> None:
    """Print what was measured; pytest -rP shows it."""
    print(f"MEASURED {measured}")  # noqa: T201 (how a test reports)


def within(what: str, seconds: float, bound: float) -> None:
    """Record a measured time. Raise `DisturbedError` if it is beyond its bound, for other work only ever adds to it."""
    record(f"{what}: {seconds:.2f} s (bound {bound:g} s)")
    if seconds > bound:
        message = f"{what}: {seconds:.2f} s, and its bound is {bound:g} s"
        raise DisturbedError(message)


@contextmanager
def undisturbed(*services: Service, expected: Collection[str] = ()) -> Iterator[None]:
    """Raise `DisturbedError` if the block fails and a service's node stalled meanwhile.

    expected: reasons that the block itself brings about. The failure's notes have all changes of verdict.
    """
    before = [service.status()["changes"] for service in services]
    try:
        yield
    except Exception as fault:
        reasons = set()
        for service, known in zip(services, before, strict=True):
            for change in service.status()["changes"]:
                if change not in known:
                    reasons.add(change["reason"])
                    fault.add_note(f"{service.name} at {change['at']} {change['reason']}: {change['detail']}")
        if stalled := reasons & STALLED - set(expected):
            message = f"{fault!r} after a node's {', '.join(sorted(stalled))}"
            raise DisturbedError(message) from fault
        raise
