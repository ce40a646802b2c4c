"""The error of everything that somebody typed."""

from collections.abc import Sequence

_MOST_LINES = 20


class SettingsError(Exception):
    """What somebody typed cannot be used: one line for each mistake."""

    def __init__(self, *lines: str) -> None:
        # A variable, or an escape in an option file, may contain a newline.
        joined = ("\\n".join(line.splitlines()) for line in bounded(lines))
        super().__init__("\n".join(joined))


def bounded(lines: Sequence[str]) -> Sequence[str]:
    """Return the first lines, and how many there are more."""
    more = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], f"and {more:,} more"] if more > 0 else lines
