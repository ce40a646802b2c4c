"""The error of everything that somebody typed."""

from collections.abc import Sequence

from app.text import one_line

_MOST_LINES = 20


def few(lines: Sequence[str]) -> list[str]:
    """Return the first lines, and how many more there are: a long file may be no settings."""
    # A path may contain a newline, or bytes that are no text.
    told = list(map(one_line, lines[:_MOST_LINES]))
    if more := len(lines) - len(told):
        told.append(f"and {more:,} more")
    return told


class SettingsError(Exception):
    """What somebody typed cannot be used: one line for each mistake."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(few(lines)))
