"""The one error of everything that reads settings."""


class SettingsError(Exception):
    """Settings that cannot be used: one line for each mistake, which names the setting."""

    def __init__(self, *lines: str) -> None:
        # A variable, or an escape in an option file, may contain a newline.
        super().__init__("\n".join("\\n".join(line.splitlines()) for line in lines))


def words_of(fault: OSError) -> str:
    """Say why a file that a setting names cannot be read."""
    hint = ": the user that runs clustercheckd must be able to read it" if isinstance(fault, PermissionError) else ""
    return f"{fault.strerror}{hint}"
