"""How a row of the table of settings is written, and how the text of each kind is read.

The rows are the fields of `Policy`, `Database` and `Settings`: one for each setting. Flags, help,
messages, the schema and the completions come from them.
"""

import re
from collections.abc import Callable
from dataclasses import field
from ipaddress import ip_network
from typing import Any, NamedTuple


class Kind(NamedTuple):
    """What a setting takes.

    must_be: for the message. parse: raises ValueError or KeyError for another text. words: all that
    it may be, if they are few.
    """

    must_be: str
    parse: Callable[[str], Any]
    words: tuple[str, ...] = ()


class Row(NamedTuple):
    """A setting. description: for --help. is_secret: it has no flag, and is not shown.

    never_empty: an empty variable is a mistake; others it leaves unset.
    """

    name: str
    default: Any
    description: str
    kind: Kind
    is_secret: bool = False
    never_empty: bool = False

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return self.name.upper()

    @property
    def flag(self) -> str:
        """The flag that sets it, unless it is a secret."""
        name = self.name.removeprefix("clustercheck_").removeprefix("poll_")
        return "--" + name.replace("_", "-")

    @property
    def typed_default(self) -> str:
        """The default as it is typed; empty for None."""
        if isinstance(self.default, bool):
            return str(int(self.default))
        return "" if self.default is None else str(self.default)

    @property
    def words(self) -> str:
        """What it means, with the default."""
        default = self.typed_default
        return (
            f"{self.description} (default: {default})" if default else self.description
        )


def row(default: Any, description: str, kind: Kind, **more: bool) -> Any:  # noqa: ANN401 (as for `dataclasses.field`)
    """Return the field of a dataclass that is a setting. more: as in `Row`."""
    # In the schema, pydantic shows the description.
    metadata = {"description": description, "kind": kind, **more}
    return field(default=default, repr=not more.get("is_secret"), metadata=metadata)


def whole(least: int = 0, most: int = 10**6) -> Kind:
    """Return the kind of a number with these limits."""
    return Kind(f"a whole number from {least} to {most}", _within(int, least, most))


def duration(least: float, most: float) -> Kind:
    """Return the kind of a duration with these limits, in seconds."""
    return Kind(
        f"a duration from {least:g} to {most:g} s, such as 0.25, 250ms, 1s, 5m",
        _within(seconds_in, least, most),
    )


def choice(*words: str) -> Kind:
    """Return the kind that is one of these words."""
    return Kind(" or ".join(words), {word: word for word in words}.__getitem__, words)


_SWITCH = {"1": True, "yes": True, "true": True, "on": True}
_SWITCH |= {"0": False, "no": False, "false": False, "off": False}
_DURATION = re.compile(r"(?P<number>[0-9]+(\.[0-9]*)?|\.[0-9]+) ?(?P<unit>ms|s|m|h)?")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


def seconds_in(text: str) -> float:
    """Return a duration in seconds. Raises `ValueError`."""
    written = _DURATION.fullmatch(text.strip().lower())
    if written is None:
        raise ValueError
    return round(float(written["number"]) * _UNITS[written["unit"] or "s"], 6)


def _within(
    parse: Callable[[str], float], least: float, most: float
) -> Callable[[str], float]:
    def parse_within(text: str) -> float:
        number = parse(text)
        if not least <= number <= most:
            raise ValueError
        return number

    return parse_within


def _absolute(path: str) -> str:
    # A relative one would depend on where each command is started.
    if not path.startswith("/"):
        raise ValueError
    return path


def _networks_in(text: str) -> list[Any]:
    networks = [ip_network(word) for word in text.replace(",", " ").split()]
    if not networks:
        raise ValueError
    return networks


TEXT = Kind("text", str)
BOOLEAN = Kind("0 or 1", lambda text: _SWITCH[text.strip().lower()], ("0", "1"))
MOST_PORT = 65535
PORT = whole(1, MOST_PORT)
PATH = Kind("an absolute path", _absolute)
NETWORKS = Kind(
    "addresses and networks, such as 10.0.0.0/8 fd00::7, without host bits as in 10.0.0.1/8; to"
    " allow everybody, remove it",
    _networks_in,
)
