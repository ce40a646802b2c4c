"""What every part of the database settings raises."""


class DatabaseSettingsError(Exception):
    """The settings do not lead to a connection; the message is one line that names the setting."""

    def __init__(self, message: str) -> None:
        # An option file's escapes, or a variable, may hold the end of a line.
        super().__init__("\\n".join(message.splitlines()))
