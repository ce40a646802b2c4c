"""The options of the option file, under the names that the mariadb client knows, and how errors name them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from app.database.option_file import OptionFileError, read_options
from app.settings_error import SettingsError

_SETTING = "DEFAULTS_EXTRA_FILE"


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The options of DEFAULTS_EXTRA_FILE; none if it is not set.

    They are in the order of the file. If an option comes twice, only the last one is there, at its place.
    """

    path: str = ""
    values: Mapping[str, str | None] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, path: str | None) -> Self:
        """Read a file. Raises `SettingsError` if that fails."""
        if not path:
            return cls()
        try:
            options = read_options(path)
        except OptionFileError as fault:
            message = f"{_SETTING}: {fault}"
            raise SettingsError(message) from None
        values: dict[str, str | None] = {}
        for written, given in options.items():
            name, value = _as_the_client_reads_it(written, given)
            values.pop(name, None)
            values[name] = value
        return cls(path, values)

    def named(self, option: str) -> str:
        """Return how an error names an option of this file."""
        return f"{_SETTING}: {self.path}: {option}"

    def value(self, option: str) -> str | None:
        """Return the value of an option that needs one; None if the file does not set the option.

        Raises `SettingsError` if the option has no value.
        """
        value = self.values.get(option)
        if value is None and option in self.values:
            message = f"{self.named(option)} has no value: write {option}=..."
            raise SettingsError(message)
        return value


def _as_the_client_reads_it(written: str, value: str | None) -> tuple[str, str | None]:
    """Return the name and value of an option as the mariadb client interprets them (my_getopt.c)."""
    name = written.lower().replace("_", "-").removeprefix("loose-")
    for prefix, switched, otherwise in (("skip-", "0", "1"), ("disable-", "0", "1"), ("enable-", "1", "0")):
        if name.startswith(prefix):
            return name.removeprefix(prefix), otherwise if value == "0" else switched
    return name, value
