"""Standard output and error, which may be closed, full, or a pipe without a reader."""

import os
from contextlib import suppress
from pathlib import Path

_PAGE = Path("docs/reference/reasons.md")
_INSTALLED = Path("/usr/share/doc/clustercheckd") / _PAGE
SEE_REASONS = (
    f"For what to do, see each word in {_INSTALLED if _INSTALLED.exists() else _PAGE}"
)
"""This host, or else the project, has the remedies there."""


def open_missing_streams() -> None:
    """Replace each closed stream by /dev/null.

    Otherwise the next socket takes the number, and a message may go to the database's server.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The system uses the lowest free number, which is this one.
            os.open(os.devnull, os.O_RDWR)


def say(line: str) -> bool:
    """Print a line, and return whether that worked. If not, report it on standard error."""
    try:
        _print(line, 1)
    except OSError as fault:
        complain(f"standard output: {fault.strerror}")
        return False
    return True


def complain(*lines: str, priority: str = "") -> None:
    """Print lines on standard error; ignore a failure.

    priority: that of sd-daemon(3), for the journal.
    """
    with suppress(OSError):
        for line in lines:
            _print(f"{priority}clustercheckd: {line}", 2)


def _print(line: str, descriptor: int) -> None:
    # Python would write what is left in its own streams at exit, and change the exit status.
    with open(descriptor, "w", errors="backslashreplace", closefd=False) as stream:
        print(line, file=stream)
