"""The error of everything that somebody typed."""


class SettingsError(Exception):
    """Settings that cannot be used: one line for each mistake."""

    def __init__(self, *lines: str) -> None:
        # A variable, or an escape in an option file, may contain a newline.
        super().__init__("\n".join("\\n".join(line.splitlines()) for line in lines))
