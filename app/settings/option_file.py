"""Reads who logs in, and where, from an option file of the mysql and mariadb clients.

The rules are those of my_default.c and my_getopt.c in MariaDB and MySQL. What would name another
server or account there, and is not read here, is an error.
"""

import re
import stat
from pathlib import Path

from app.settings.error import SettingsError
from app.settings.files import read_file, words_of

Options = dict[str, str]
"""Options by their names; empty for one without a value. Any of TLS is "ssl"."""

GROUPS = ("mysql", "mariadb-client", "client", "client-server", "client-mariadb")

_OURS = ("host", "password", "port", "protocol", "socket", "user")
# Quotes protect a #.
_BEFORE_COMMENT = re.compile(r"""([^#'"]|"[^"]*"?|'[^']*'?)*""")
_QUOTED = re.compile(r"""\A(["'])(.*)\1\Z""")


def read_option_file(path: str) -> Options:
    """Return the options of a file. Raises `SettingsError`."""
    options: Options = {}
    group = ""
    for number, line in enumerate(map(str.strip, _text(path).split("\n")), 1):
        problem = ""
        if line.startswith("["):
            group = line.partition("]")[0].lower()
        elif line.startswith("!"):
            problem = "no other file is read: name the one with [client]"
        elif not line or line[0] in "#;":
            continue
        elif not group:
            problem = "the option is not in a group: write [client] above it"
        elif group[1:].strip() in GROUPS:
            name, value = _option(line)
            options[name] = value
            if name not in _OURS and any(one.startswith(name) for one in _OURS):
                problem = "write the whole name of the option"
            elif "\\" in value and name in _OURS:
                problem = "no backslash is read: set the variable of the option"
        if problem:
            raise SettingsError(
                f"DEFAULTS_EXTRA_FILE: {path}, line {number}: {problem}"
            )
    return options


def _option(line: str) -> tuple[str, str]:
    # It matches an empty text too.
    name, _, text = _BEFORE_COMMENT.match(line)[0].partition("=")  # type: ignore[index]
    name = name.strip().lower().replace("_", "-").removeprefix("loose-")
    name = name.removeprefix("enable-")
    value = _QUOTED.sub(r"\2", text.strip())
    return "ssl" if name.startswith("ssl") else name, value


def _text(path: str) -> str:
    try:
        text = read_file(path)
        # The mysql client ignores such a file too.
        is_writable_by_all = Path(path).stat().st_mode & stat.S_IWOTH
    except OSError as fault:
        raise SettingsError(f"DEFAULTS_EXTRA_FILE: {path}: {words_of(fault)}") from None
    if is_writable_by_all:
        raise SettingsError(
            f"DEFAULTS_EXTRA_FILE: {path} is writable by every user: run chmod o-w {path}"
        )
    return text
