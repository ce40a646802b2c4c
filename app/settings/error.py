"""The error of everything that somebody typed."""

from app.text import one_line

_MOST_LINES = 20


class SettingsError(Exception):
    """What somebody typed cannot be used: one line for each mistake."""

    def __init__(self, *lines: str) -> None:
        # Any file may be named as the env file, and a path may contain a newline.
        super().__init__("\n".join(map(one_line, lines[:_MOST_LINES])))
