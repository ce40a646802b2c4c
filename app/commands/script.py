"""What the clustercheck script reads: its positional arguments, its variables, its files of NAME=value lines."""

import itertools
import re
import shlex
from collections.abc import Container, Iterator, Sequence
from pathlib import Path

CONFIGURATION_FILES = ("/etc/default/clustercheck", "/etc/sysconfig/clustercheck")
"""Files of NAME=value lines; what they set goes before the environment, as where the script sourced them."""

DEFAULTS = {
    "MYSQL_USERNAME": "clustercheckuser",
    "MYSQL_PASSWORD": "clustercheckpassword!",
    "AVAILABLE_WHEN_DONOR": "0",
    "ERR_FILE": "/dev/null",
    "AVAILABLE_WHEN_READONLY": "1",
    "DEFAULTS_EXTRA_FILE": "/etc/my.cnf",
}
"""What the script takes where nothing is set."""

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
"""For `assignments`: whatever is assigned."""


def all_positionals(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the account's two in front, empty where a dash stands for both.

    Newer versions of the script take the dash, which leaves the account to the option file: nothing secret on the
    command line.
    """
    if arguments[:1] == ["-"]:
        return [*[""] * _ACCOUNT_POSITIONALS, *arguments[1:]]
    return list(arguments)


def positionals(arguments: Sequence[str]) -> dict[str, str]:
    """Return the variables that the positional arguments stand for."""
    return dict(zip(_POSITIONALS, all_positionals(arguments), strict=False))


def assignments(path: str, names: Container[str], complaints: list[str]) -> Iterator[tuple[int, str, str]]:
    """Read NAME=value lines as a shell would, but carry nothing out: line number, name and value of each.

    Only these names count. What is wrong with the file is added to complaints.
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
            complaints.append(f"{path}, line {number}: a quote without its end; the line is passed over")
            continue
        for word in words:
            name, equals, value = word.partition("=")
            if not equals or name not in names:
                continue
            if "'" not in line and re.search(r"[$`]", value):
                complaints.append(f"{path}, line {number}: {name} is taken as written, no shell expands it")
            yield number, name, value


def _shell_words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    # A shell knows a comment by the beginning of a word; shlex would cut pass#word in two.
    lexer.commenters = ""
    return list(itertools.takewhile(lambda word: not word.startswith("#"), lexer))
