"""How a row of the table of settings is written, and how the text of each kind is read.

The rows are the fields of `Policy`, `Database` and `Settings`: one for each setting. Flags, help,
messages, the schema and the completions come from them.
"""

import re
from collections.abc import Callable
from dataclasses import field
from ipaddress import ip_address, ip_network
from typing import Any, NamedTuple


class Kind(NamedTuple):
    """What a setting takes.

    must_be: for the message. parse: raises ValueError for another text.
    """

    must_be: str
    parse: Callable[[str], Any]


class Row(NamedTuple):
    """A setting. typed: its default as it is typed; empty for none. description: for --help."""

    name: str
    typed: str
    description: str
    kind: Kind

    @property
    def flag(self) -> str:
        """The flag that sets it."""
        return "--" + self.name.removeprefix("clustercheck_").replace("_", "-")

    @property
    def words(self) -> str:
        """What it means, with the default."""
        return self.description + (f" (default: {self.typed})" if self.typed else "")


def row(description: str, kind: Kind, typed: str = "") -> Any:  # noqa: ANN401 (as for `dataclasses.field`)
    """Return the field of a dataclass that is a setting. The arguments are those of `Row`."""
    default = kind.parse(typed) if typed else None
    # pydantic shows the description in the schema.
    metadata = {"typed": typed, "description": description, "kind": kind}
    return field(default=default, repr=kind is not SECRET, metadata=metadata)


def whole(least: int = 0, most: int = 10**6) -> Kind:
    """Return the kind of a number with these limits."""
    return _within(_whole_in, least, most, f"a whole number from {least} to {most}")


def duration(least: float, most: float) -> Kind:
    """Return the kind of a duration with these limits, in seconds."""
    must_be = f"a duration from {least:g} to {most:g} s, such as 0.25, 250ms, 1s, 5m"
    return _within(_seconds_in, least, most, must_be)


def choice(*words: str) -> Kind:
    """Return the kind that is one of these words."""
    return Kind(" or ".join(words), lambda text: words[words.index(text)])


def _within(
    parse: Callable[[str], float], least: float, most: float, must_be: str
) -> Kind:
    def parse_within(text: str) -> float:
        number = parse(text)
        if not least <= number <= most:
            raise ValueError
        return number

    return Kind(must_be, parse_within)


_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)(ms|s|m|h|)")
_HOST_NAME = re.compile(r"[^\s:/@\[\]]+")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "": 1}


def _whole_in(text: str) -> int:
    # int takes 1_0, blanks, and the digits of any script.
    if not (text.isascii() and text.isdigit()):
        raise ValueError
    return int(text)


def _seconds_in(text: str) -> float:
    found = _DURATION.fullmatch(text.lower())
    if found is None:
        raise ValueError
    number, unit = found.groups()
    return round(float(number) * _UNITS[unit], 6)


def _absolute(path: str) -> str:
    # A relative one would depend on where each command is started.
    if not path.startswith("/"):
        raise ValueError
    return path


def _host_in(text: str) -> str:
    address = text.removeprefix("[").removesuffix("]")
    return text if _HOST_NAME.fullmatch(text) else str(ip_address(address))


def _networks_in(text: str) -> list[Any]:
    networks = [ip_network(word) for word in text.replace(",", " ").split()]
    if not networks:
        raise ValueError
    return networks


def _is_on(text: str) -> bool:
    words = ("0", "no", "false", "off", "1", "yes", "true", "on")
    return words.index(text.strip().lower()) > 3  # noqa: PLR2004 (where on begins)


TEXT = Kind("text", str)
SECRET = Kind("a secret", str)
"""It has no flag, because every user of the host can read a command line, and is not shown."""
BOOLEAN = Kind("0 or 1", _is_on)
MOST_PORT = 65535
PORT = whole(1, MOST_PORT)
HOST = Kind("a host name or an IP address alone", _host_in)
PATH = Kind("an absolute path", _absolute)
NETWORKS = Kind(
    "addresses and networks, such as 10.0.0.0/8 fd00::7, without host bits as in 10.0.0.1/8; to"
    " allow everybody, remove it",
    _networks_in,
)
"""An empty variable is a mistake: unset would allow everybody."""
