"""Reads the [client] groups of an option file, as the mysql client does.

The rules are those of my_default.c and my_getopt.c in MariaDB and MySQL: leading blanks, comments
with # and ;, quoted values, trailing comments with # outside quotes, backslash escapes, options
without a value, !include and !includedir.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from app.settings.error import SettingsError, words_of

GROUPS = ("client", "client-server", "client-mariadb")
"""The groups to read."""

_SETTING = "DEFAULTS_EXTRA_FILE"
_BLANKS = " \t\n\v\f\r"  # as isspace(3) in the C locale; str.isspace accepts many more
_DEPTH_LIMIT = 10
# Quotes protect a #, and a backslash protects a quote within them.
_BEFORE_COMMENT = re.compile(r"""([^#'"]|"([^"\\]|\\.)*"?|'([^'\\]|\\.)*'?)*""", re.DOTALL)
_QUOTED = re.compile(r"""(["'])(.*)\1""", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "s": " ", '"': '"', "'": "'", "\\": "\\"}


@dataclass(frozen=True, slots=True)
class OptionFile:
    """The options of DEFAULTS_EXTRA_FILE; none if it is not set.

    They are in the order of the file. If an option comes twice, only the last one is there, at its
    place. The value of an option without one is None.
    """

    path: str = ""
    values: Mapping[str, str | None] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, path: str | None) -> Self:
        """Read a file and the files that it includes. Raises `SettingsError`."""
        values: dict[str, str | None] = {}
        for written, given in _options(Path(path), depth=0) if path else ():
            name, value = _as_the_client_reads_it(written, given)
            values.pop(name, None)
            values[name] = value
        return cls(path or "", values)

    def named(self, option: str) -> str:
        """Return how an error names an option of this file."""
        return f"{_SETTING}: {self.path}: {option}"

    def value(self, option: str) -> str | None:
        """Return the value of an option that needs one; None if the file does not set the option.

        Raises `SettingsError` if the option has no value.
        """
        value = self.values.get(option)
        if value is None and option in self.values:
            raise SettingsError(f"{self.named(option)} has no value: write {option}=...")
        return value


def _as_the_client_reads_it(written: str, value: str | None) -> tuple[str, str | None]:
    """Return the name and value of an option as the client interprets them."""
    name = written.lower().replace("_", "-").removeprefix("loose-")
    for prefix, switched, otherwise in (
        ("skip-", "0", "1"),
        ("disable-", "0", "1"),
        ("enable-", "1", "0"),
    ):
        if name.startswith(prefix):
            return name.removeprefix(prefix), otherwise if value == "0" else switched
    return name, value


def _options(path: Path, *, depth: int) -> Iterator[tuple[str, str | None]]:
    group: str | None = None
    for number, line in enumerate(_lines(path), 1):
        where = f"{path}, line {number}"
        if not line or line[0] in "#;":
            continue
        if line[0] == "!":
            if depth == _DEPTH_LIMIT:
                raise _fault(
                    f"{where}: the files include each other more than {_DEPTH_LIMIT} levels deep"
                )
            for file in _included(line, where):
                yield from _options(file, depth=depth + 1)
        elif line[0] == "[":
            name, bracket, _ = line[1:].partition("]")
            if not bracket:
                raise _fault(f"{where}: the group has no closing bracket: write [client]")
            group = name.rstrip(_BLANKS).lower()
        elif group is None:
            raise _fault(f"{where}: the option is not in a group: write [client] above it")
        elif group in GROUPS:
            name, equals, value = _BEFORE_COMMENT.match(line)[0].partition("=")  # type: ignore[index]
            yield name.strip(_BLANKS), _unquoted(value.strip(_BLANKS)) if equals else None


def _lines(path: Path) -> list[str]:
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise _fault(f"{path} is not a regular file")
        if mode & stat.S_IWOTH:
            # The mysql client ignores such a file too.
            raise _fault(f"{path} is writable by every user: run chmod o-w {path}")
        # Not as text: Python would treat a carriage return as the end of a line.
        lines = path.read_bytes().decode("utf-8", "surrogateescape").split("\n")
    except OSError as fault:
        raise _fault(f"{path}: {words_of(fault)}") from None
    # The client is written in C: for it, a line ends at a zero byte.
    return [line.partition("\0")[0].strip(_BLANKS) for line in lines]


def _included(line: str, where: str) -> list[Path]:
    # Not str.split, which accepts more kinds of blanks than the client does.
    directive, *rest = re.split(f"[{_BLANKS}]+", line[1:].strip(_BLANKS), maxsplit=1)
    if directive not in ("include", "includedir"):
        return []  # the client ignores it too
    if not rest:
        raise _fault(f"{where}: !{directive} has no path: write !{directive} PATH")
    path = Path(rest[0])
    if directive == "include":
        # The client ignores a file that it cannot open, but not a directory.
        return [path] if os.access(path, os.R_OK) else []
    try:
        return sorted(
            entry for entry in path.iterdir() if entry.name.endswith(".cnf") and not entry.is_dir()
        )
    except OSError as fault:
        raise _fault(f"{where}: {path}: {fault.strerror}") from None


def _unquoted(value: str) -> str:
    quoted = _QUOTED.fullmatch(value)
    return _ESCAPE.sub(
        lambda found: _ESCAPES.get(found[1], found[0]), quoted[2] if quoted else value
    )


def _fault(words: str) -> SettingsError:
    return SettingsError(f"{_SETTING}: {words}")
