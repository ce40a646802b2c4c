"""Standard input, output and error, which may be closed, full or a pipe that nobody reads."""

import os
import sys
from typing import TextIO


def open_missing_streams() -> None:
    """Open /dev/null in the place of what is closed.

    Otherwise the next file or socket takes the number: libuv aborts the process over it, and a message may go to the
    database's server.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest number that is free, and so this one.
            os.open(os.devnull, os.O_RDWR)
    # None for what was closed; print would write what is meant for standard error on standard output.
    sys.stdin = sys.stdin or open(0)  # noqa: SIM115 (open for as long as the process)
    sys.stdout = sys.stdout or open(1, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w")  # noqa: SIM115


def say(line: str) -> None:
    """Print a line; where that cannot be done, say so on standard error, and go on."""
    fault = print_line(line)
    if fault is not None:
        complain(f"standard output: {fault.strerror}")


def complain(line: str) -> None:
    """Print a line on standard error, if that can be done."""
    _print(f"clustercheckd: {line}", sys.stderr)


def print_line(line: str) -> OSError | None:
    """Print a line on standard output; return what went wrong, after which nothing more is written there."""
    return _print(line, sys.stdout)


def discard(stream: TextIO) -> None:
    """Have no more of a stream written: what is left in its buffer would be tried again at exit, and fail it."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)


def _print(line: str, stream: TextIO) -> OSError | None:
    try:
        print(line, file=stream, flush=True)
    except OSError as fault:
        discard(stream)
        return fault
    return None
