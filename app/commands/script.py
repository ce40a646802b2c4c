"""The inputs of the clustercheck script: positional arguments, variables, and files of NAME=value lines."""

import itertools
import re
import shlex
from collections.abc import Container, Iterator, Sequence
from pathlib import Path

CONFIGURATION_FILES = ("/etc/default/clustercheck", "/etc/sysconfig/clustercheck")
"""Files of NAME=value lines. They take precedence over the environment, because the script sources them."""

DEFAULTS = {
    "MYSQL_USERNAME": "clustercheckuser",
    "MYSQL_PASSWORD": "clustercheckpassword!",
    "AVAILABLE_WHEN_DONOR": "0",
    "ERR_FILE": "/dev/null",
    "AVAILABLE_WHEN_READONLY": "1",
    "DEFAULTS_EXTRA_FILE": "/etc/my.cnf",
}
"""The script's defaults."""

_POSITIONALS = (
    "MYSQL_USERNAME",
    "MYSQL_PASSWORD",
    "AVAILABLE_WHEN_DONOR",
    "ERR_FILE",
    "AVAILABLE_WHEN_READONLY",
    "DEFAULTS_EXTRA_FILE",
)
_ACCOUNT_POSITIONALS = 2


class _EveryName:
    """Contains every name of a variable."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.isidentifier()


EVERY_NAME = _EveryName()
"""For `assignments`: every assignment."""


def all_positionals(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with user and password first; both are empty if the first argument is a dash.

    Newer versions of the script accept the dash. The account is then in the option file, and no secret is on the
    command line.
    """
    if arguments[:1] == ["-"]:
        return [*[""] * _ACCOUNT_POSITIONALS, *arguments[1:]]
    return list(arguments)


def positionals(arguments: Sequence[str]) -> dict[str, str]:
    """Return the variables that the positional arguments set."""
    return dict(zip(_POSITIONALS, all_positionals(arguments), strict=False))


def assignments(path: str, names: Container[str], complaints: list[str]) -> Iterator[tuple[int, str, str]]:
    """Parse NAME=value lines as a shell does, without running anything; yield line number, name and value of each.

    Other names are ignored. Each mistake in the file is appended to complaints.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError as fault:
        complaints.append(f"{path}: {fault.strerror}")
        return
    for number, line in enumerate(lines, 1):
        try:
            words = _shell_words(line)
        except ValueError:
            complaints.append(f"{path}, line {number}: a quote is not closed; the line is ignored")
            continue
        for word in words:
            name, equals, value = word.partition("=")
            if not equals or name not in names:
                continue
            if "'" not in line and re.search(r"[$`]", value):
                complaints.append(f"{path}, line {number}: {name} is used as written: clustercheckd does not expand it")
            yield number, name, value


def _shell_words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    # In a shell, a comment begins with a word. shlex would split pass#word.
    lexer.commenters = ""
    return list(itertools.takewhile(lambda word: not word.startswith("#"), lexer))
