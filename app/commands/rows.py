"""What the rows of watch and status share."""

import os
import sys
from collections.abc import Callable

from app.commands.standard_streams import complain, discard

STOPPED, FAILED = 0, 1
"""Exit statuses of a command that prints until it is stopped. `FAILED`: standard output cannot be written."""

_GREEN, _RED, _PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[0m"


def number(value: object) -> str:
    """Format a number from the node; `-` if it is missing or not a number."""
    return "-" if not isinstance(value, int) or value < 0 else str(value)


def painted(row: str, *, available: bool) -> str:
    """Colour a row by its verdict if standard output is a terminal and NO_COLOR is not set."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return row
    return f"{_GREEN if available else _RED}{row}{_PLAIN}"


def print_until_stopped(run: Callable[[], OSError]) -> int:
    """Run a function that prints until standard output fails and returns that failure; return the exit status."""
    try:
        fault = run()
    except KeyboardInterrupt:
        # The same Ctrl-C may have stopped the program that reads the rows.
        discard(sys.stdout)
        return STOPPED
    if isinstance(fault, BrokenPipeError):
        return STOPPED
    complain(f"standard output: {fault.strerror}")
    return FAILED
