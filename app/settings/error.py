"""The error of everything that somebody typed."""

from app.text import one_line

_MOST_LINES = 20


class SettingsError(Exception):
    """What somebody typed cannot be used: one line for each mistake."""

    def __init__(self, *lines: str) -> None:
        told = list(lines[:_MOST_LINES])
        # The settings may name another, long file.
        if more := len(lines) - len(told):
            told.append(f"and {more:,} more")
        # A path may contain a newline.
        super().__init__("\n".join(map(one_line, told)))
