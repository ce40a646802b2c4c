"""The error of everything that somebody typed."""

from app.text import one_line


class SettingsError(Exception):
    """What somebody typed cannot be used: one line for each mistake."""

    def __init__(self, *lines: str) -> None:
        # A path may contain a newline.
        super().__init__("\n".join(map(one_line, lines)))
