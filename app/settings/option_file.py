"""Reads an option file as the mysql and mariadb clients do, their own groups included.

The rules are those of my_default.c and my_getopt.c in MariaDB and MySQL.
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from app.settings.error import SettingsError
from app.settings.files import read_file, words_of

Options = dict[str, str | None]
"""Options by their names; None for one without a value."""

GROUPS = ("mysql", "mariadb-client", "client", "client-server", "client-mariadb")

# How the clients' options begin that no other one begins so.
_BEGINNINGS = {
    "host": "ho",
    "password": "pas",
    "port": "po",
    "protocol": "prot",
    "socket": "so",
    "ssl-cert": "ssl-ce",
    "ssl-key": "ssl-k",
    "ssl-mode": "ssl-m",
    "ssl-verify-server-cert": "ssl-v",
    "user": "us",
}

_BLANKS = " \t\n\v\f\r"  # as isspace(3) in the C locale; str.isspace accepts many more
_DEPTH_LIMIT = 10
# Quotes protect a #, and a backslash protects a quote within them.
_BEFORE_COMMENT = re.compile(
    r"""([^#'"]|"([^"\\]|\\.)*"?|'([^'\\]|\\.)*'?)*""", re.DOTALL
)
_DIRECTIVE = re.compile(
    r"!\s*include(?P<is_directory>dir)?(?:\s+(?P<path>.*))?", re.ASCII | re.DOTALL
)
_QUOTED = re.compile(r"""\A(["'])(.*)\1\Z""", re.DOTALL)
_ESCAPE = re.compile(r"""\\([ntrbs"'\\])""")
_BLANK_OF = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "s": " "}


def read_option_file(path: str) -> Options:
    """Return the options of a file and of those that it includes. Raises `SettingsError`."""
    return dict(_options(Path(path), depth=0))


def _options(path: Path, *, depth: int) -> Iterator[tuple[str, str | None]]:
    group: str | None = None
    for number, line in enumerate(_lines(path), 1):
        where = f"{path}, line {number}"
        first = line[:1]
        if first in ("", "#", ";"):
            continue
        if first == "!":
            if depth == _DEPTH_LIMIT:
                raise _error(
                    where, f"more than {_DEPTH_LIMIT} files include each other"
                )
            for file in _included(line, where):
                yield from _options(file, depth=depth + 1)
        elif first == "[":
            name, bracket, _ = line[1:].partition("]")
            if not bracket:
                raise _error(where, "the group has no closing bracket: write [client]")
            group = name.rstrip(_BLANKS).lower()
        elif group is None:
            raise _error(where, "the option is not in a group: write [client] above it")
        elif group in GROUPS:
            yield _option(line)


def _option(line: str) -> tuple[str, str | None]:
    # It matches an empty text too.
    name, equals, text = _BEFORE_COMMENT.match(line)[0].partition("=")  # type: ignore[index]
    name = name.strip(_BLANKS).lower().replace("_", "-").removeprefix("loose-")
    value = _unquoted(text.strip(_BLANKS)) if equals else None
    switch, _, switched = name.partition("-")
    if switch in ("skip", "disable", "enable"):
        # skip-ssl=0 is a double negation.
        is_on = (switch == "enable") != (value == "0")
        return _whole(switched), "1" if is_on else "0"
    return _whole(name), value


def _whole(name: str) -> str:
    for whole, beginning in _BEGINNINGS.items():
        if name.startswith(beginning) and whole.startswith(name):
            return whole
    return name


def _lines(path: Path) -> list[str]:
    try:
        text = read_file(str(path))
        # The mysql client ignores such a file too.
        is_writable_by_all = path.stat().st_mode & stat.S_IWOTH
    except OSError as fault:
        raise _error(path, words_of(fault)) from None
    if is_writable_by_all:
        raise SettingsError(
            f"DEFAULTS_EXTRA_FILE: {path} is writable by every user: run chmod o-w {path}"
        )
    # The client is written in C: for it, a line ends at a zero byte.
    return [line.partition("\0")[0].strip(_BLANKS) for line in text.split("\n")]


def _included(line: str, where: str) -> list[Path]:
    directive = _DIRECTIVE.fullmatch(line)
    if directive is None:
        return []  # the client ignores it too
    if not directive["path"]:
        raise _error(where, "the path is missing")
    path = Path(directive["path"])
    if not directive["is_directory"]:
        # The client ignores a file that it cannot open, but not a directory.
        return [path] if os.access(path, os.R_OK) else []
    try:
        return [
            file
            for file in sorted(path.iterdir())
            if file.name.endswith(".cnf")
            if not file.is_dir()
        ]
    except OSError as fault:
        raise _error(f"{where}: {path}", words_of(fault)) from None


def _unquoted(value: str) -> str:
    value = _QUOTED.sub(r"\2", value)
    return _ESCAPE.sub(lambda escape: _BLANK_OF.get(escape[1], escape[1]), value)


def _error(where: str | Path, problem: str) -> SettingsError:
    return SettingsError(f"DEFAULTS_EXTRA_FILE: {where}: {problem}")
