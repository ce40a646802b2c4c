"""What the rows of watch and status have in common."""

import os
import sys
from collections.abc import Callable

from app.commands.standard_streams import complain, discard

STOPPED, FAILED = 0, 1
"""The exit codes of a command that prints for ever; `FAILED`: standard output cannot be written."""

_GREEN, _RED, _PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[0m"


def number(value: object) -> str:
    """Write a number from the node; `-` for what it did not send, or sent as something else."""
    return "-" if not isinstance(value, int) or value < 0 else str(value)


def painted(row: str, *, available: bool) -> str:
    """Colour a row by its verdict where standard output is a terminal and NO_COLOR is not set."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return row
    return f"{_GREEN if available else _RED}{row}{_PLAIN}"


def print_until_stopped(run: Callable[[], OSError]) -> int:
    """Run what prints for as long as it can and returns why it cannot; return the exit code."""
    try:
        fault = run()
    except KeyboardInterrupt:
        # Whoever reads the rows may be gone by the same Ctrl-C.
        discard(sys.stdout)
        return STOPPED
    if isinstance(fault, BrokenPipeError):
        return STOPPED
    complain(f"standard output: {fault.strerror}")
    return FAILED
