"""Waiting for conditions, with a deadline, and telling how long it has taken so far."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import TextIO, TypeVar

T = TypeVar("T")

_PAUSE_SECONDS = 0.02


def tell_with_seconds(stream: TextIO | None = None) -> Callable[[str], None]:
    """Return what prints a line with the seconds since now. stream: standard output, if None."""
    began_at = time.monotonic()

    def tell(what: str) -> None:
        seconds = time.monotonic() - began_at
        print(f"[{seconds:5.1f} s] {what}", file=stream, flush=True)

    return tell


class NotInTimeError(AssertionError):
    """A condition did not become true in time."""


def wait_for(
    what: str, condition: Callable[[], T | None], *, seconds: float = 30.0
) -> T:
    """Call condition until it returns a true value, and return that value.

    Raises `NotInTimeError` after seconds. Its message has what and the last value.
    """
    end = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > end:
            raise NotInTimeError(
                f"not within {seconds:g} s: {what} (last answer: {answer!r})"
            )
        time.sleep(_PAUSE_SECONDS)


@contextmanager
def meanwhile(
    act: Callable[[Event], object], pause_seconds: float, *, threads: int = 1
) -> Iterator[None]:
    """Call act again and again while the block runs, then raise what it has raised.

    It gets the event of the block's end.
    """
    ending = Event()

    def repeat() -> None:
        while not ending.wait(pause_seconds):
            act(ending)

    with ThreadPoolExecutor(threads) as pool:
        running = [pool.submit(repeat) for _ in range(threads)]
        try:
            yield
        finally:
            ending.set()
    for one in running:
        one.result()
