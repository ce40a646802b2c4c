"""Standard input, output and error, which may be closed, full, or a pipe without a reader."""

import io
import os
import sys
from pathlib import Path
from typing import TextIO

_PAGE = Path("docs/reference/reasons.md")
_INSTALLED = Path("/usr/share/doc/clustercheckd") / _PAGE
REASONS_PAGE = _INSTALLED if _INSTALLED.exists() else _PAGE
"""Where this host, or else the project, has the remedy of each word."""


def open_missing_streams() -> None:
    """Replace each closed stream by /dev/null.

    Otherwise the next file or socket takes the number: libuv aborts the process over it, and a
    message may go to the database's server.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The system uses the lowest free number, which is this one.
            os.open(os.devnull, os.O_RDWR)
    # A closed stream is None, and print would then use standard output instead of standard error.
    sys.stdout = sys.stdout or open(1, "w")  # noqa: SIM115 (open for as long as the process)
    sys.stderr = sys.stderr or open(2, "w", errors="backslashreplace")  # noqa: SIM115
    # An argument may contain any byte, and a terminal may have only ASCII. Python does this for
    # standard error.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def say(line: str) -> bool:
    """Print a line, and return whether that worked. If not, report it on standard error."""
    return _print(line, sys.stdout)


def complain(*lines: str, priority: str = "") -> None:
    """Print lines on standard error; ignore a failure.

    priority: that of sd-daemon(3), for the journal.
    """
    for line in lines:
        _print(f"{priority}clustercheckd: {line}", sys.stderr)


def _print(line: str, stream: TextIO) -> bool:
    try:
        print(line, file=stream, flush=True)
    except OSError as fault:
        # At exit, Python would write its buffer again and change the exit status.
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
        if stream is sys.stdout:
            complain(f"standard output: {fault.strerror}")
        return False
    return True
