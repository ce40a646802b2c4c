"""Imports in a thread, beside an event loop."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, get_ident

_TURN_SECONDS = 1.0
"""A loop that imports takes so long: importlib asks the finder under the lock of all imports."""


@contextmanager
def giving_way(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Let an event loop have a turn before each module that this thread imports in the block.

    After each system call the loop would get the interpreter back 5 ms later.
    """
    finder = _TurnFinder(loop)
    # Another list: the loop may be going through this one.
    sys.meta_path = [finder, *sys.meta_path]
    try:
        yield
    finally:
        sys.meta_path = [other for other in sys.meta_path if other is not finder]


class _TurnFinder:
    """Finds no module, but is asked for each."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread: int | None = get_ident()

    def find_spec(self, *_of_the_module: object) -> None:
        """Wait for the loop's turn; after one that took too long, for no more."""
        if get_ident() == self._thread:
            had_turn = Event()
            # After what is due, and what that makes due.
            self._loop.call_soon_threadsafe(self._loop.call_soon, had_turn.set)
            if not had_turn.wait(_TURN_SECONDS):
                self._thread = None
