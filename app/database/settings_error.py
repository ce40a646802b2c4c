"""The error that every part of the database settings raises."""


class DatabaseSettingsError(Exception):
    """The database settings cannot be used. The message is one line that names the setting."""

    def __init__(self, message: str) -> None:
        # A variable, or an escape in an option file, may contain a newline.
        super().__init__("\\n".join(message.splitlines()))
