"""Importing much in a thread, beside an event loop that has to answer."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from threading import get_ident

_TURN_SECONDS = 1.0
"""A loop that takes longer may itself wait for a module that the thread imports."""


@contextmanager
def giving_way(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Let an event loop have a turn before each module that this thread imports in the block.

    Whenever the loop has called the system, a busy thread keeps the interpreter for 5 ms: with
    little CPU, a health check beside a flood took seconds.
    """
    before = _Turn(loop)
    # Another list: the loop may be going through this one.
    sys.meta_path = [before, *sys.meta_path]
    try:
        yield
    finally:
        sys.meta_path = [finder for finder in sys.meta_path if finder is not before]


class _Turn(MetaPathFinder):
    """Finds no module, but is asked for each."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread: int | None = get_ident()

    def find_spec(self, *_of_the_module: object) -> None:
        """Wait until the loop has had its turn."""
        if get_ident() == self._thread:
            turn = asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self._loop)
            try:
                turn.result(_TURN_SECONDS)
            except TimeoutError:
                self._thread = None
