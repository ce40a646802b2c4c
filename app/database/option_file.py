"""Reads the [client] groups of option files, as the mysql client does.

The rules are those of my_default.c in MariaDB and MySQL: leading blanks, comments with # and ;, quoted values, trailing
comments with # outside quotes, backslash escapes, options without a value, !include and !includedir.
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

GROUPS = ("client", "client-server", "client-mariadb")
"""The groups to read. If an option comes twice, the last one applies."""

_BLANKS = " \t\n\v\f\r"  # as isspace(3) in the C locale; str.isspace accepts many more
_DEPTH_LIMIT = 10
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "s": " ", '"': '"', "'": "'", "\\": "\\"}


class OptionFileError(Exception):
    """An option file cannot be read. The message is one line that names the file and, for its content, the line."""


def read_options(path: str | Path) -> dict[str, str | None]:
    """Return the client options of a file and of the files it includes, with the names as written.

    The value of an option without one is None. If an option comes twice, only the last one is there, at its place.

    Raises `OptionFileError`.
    """
    options: dict[str, str | None] = {}
    for name, value in _options(Path(path), depth=0):
        options.pop(name, None)
        options[name] = value
    return options


def _options(path: Path, *, depth: int) -> Iterator[tuple[str, str | None]]:
    group: str | None = None
    for number, raw in enumerate(_lines(path), 1):
        line = raw.strip(_BLANKS)
        where = f"{path}, line {number}"
        if not line or line[0] in "#;":
            continue
        if line[0] == "!":
            yield from _included(line, where, depth)
        elif line[0] == "[":
            name, bracket, _ = line[1:].partition("]")
            if not bracket:
                message = f"{where}: the group has no closing bracket: write [client]"
                raise OptionFileError(message)
            group = name.rstrip(_BLANKS).lower()
        elif group is None:
            message = f"{where}: the option is not in a group: write [client] above it"
            raise OptionFileError(message)
        elif group in GROUPS:
            yield _option(line)


def _lines(path: Path) -> list[str]:
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            message = f"{path} is not a regular file"
            raise OptionFileError(message)
        if mode & stat.S_IWOTH:
            # The mysql client ignores such a file too.
            message = f"{path} is writable by every user: type chmod o-w {path}"
            raise OptionFileError(message)
        # Not as text: Python would treat a carriage return as the end of a line.
        lines = path.read_bytes().decode("utf-8", "surrogateescape").split("\n")
    except OSError as fault:
        message = f"{path}: {fault.strerror}"
        raise OptionFileError(message) from None
    # The client is written in C: for it, a line ends at a zero byte.
    return [line.partition("\0")[0] for line in lines]


def _included(line: str, where: str, depth: int) -> Iterator[tuple[str, str | None]]:
    # Not str.split, which accepts more kinds of blanks than the client does.
    directive, *rest = re.split(f"[{_BLANKS}]+", line[1:].strip(_BLANKS), maxsplit=1)
    if directive not in ("include", "includedir"):
        return  # the client ignores it too
    if not rest:
        message = f"{where}: !{directive} has no path: write !{directive} PATH"
        raise OptionFileError(message)
    target = rest[0]
    if depth == _DEPTH_LIMIT:
        message = f"{where}: the files include each other more than {_DEPTH_LIMIT} levels deep"
        raise OptionFileError(message)
    found = Path(target)
    if directive == "include":
        # The client ignores a file that it cannot open, but not a directory.
        if os.access(found, os.R_OK):
            yield from _options(found, depth=depth + 1)
        return
    try:
        files = sorted(entry for entry in found.iterdir() if entry.name.endswith(".cnf") and not entry.is_dir())
    except OSError as fault:
        message = f"{where}: {found}: {fault.strerror}"
        raise OptionFileError(message) from None
    for file in files:
        yield from _options(file, depth=depth + 1)


def _option(line: str) -> tuple[str, str | None]:
    name, equals, value = _without_comment(line).partition("=")
    return name.strip(_BLANKS), _unquoted(value.strip(_BLANKS)) if equals else None


def _without_comment(line: str) -> str:
    quote = ""
    escaped = False
    for position, character in enumerate(line):
        if quote:
            if character == quote and not escaped:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character == "#":
            return line[:position]
        escaped = character == "\\" and bool(quote) and not escaped
    return line


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    result = ""
    characters = iter(value)
    for character in characters:
        if character != "\\":
            result += character
            continue
        following = next(characters, None)
        result += "\\" if following is None else _ESCAPES.get(following, f"\\{following}")
    return result
