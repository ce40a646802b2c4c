"""Waiting for conditions, with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_PAUSE_SECONDS = 0.02


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
