"""The inputs of the clustercheck script: positional arguments, variables, and their files."""

import itertools
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence

from app.settings.files import read_file
from app.settings.values import Variable

CONFIGURATION_FILES = ("/etc/default/clustercheck", "/etc/sysconfig/clustercheck")
"""Files of NAME=value lines. The script sources them, so they precede the environment."""

# In the order of the positional arguments.
DEFAULTS = {
    "MYSQL_USERNAME": "clustercheckuser",
    "MYSQL_PASSWORD": "clustercheckpassword!",
    "AVAILABLE_WHEN_DONOR": "0",
    "ERR_FILE": "/dev/null",
    "AVAILABLE_WHEN_READONLY": "1",
    "DEFAULTS_EXTRA_FILE": "/etc/my.cnf",
}
"""The script's defaults."""

VARIABLES = (
    *DEFAULTS,
    "MYSQL_HOST",
    "MYSQL_PORT",
    "MYSQL_SOCKET",
    "CLUSTERCHECK_DISABLED_FILE",
    "CLUSTERCHECK_DEADLINE",
)
"""Every variable that is read; others are ignored."""

_QUOTED = re.compile(r"""'[^']*'|(?P<double>"(?:\\.|[^"\\])*")|\\.""")

# The script uses an empty user name or password as it is. For any other variable, empty means the
# default.
_KEPT_EMPTY = ("MYSQL_USERNAME", "MYSQL_PASSWORD")


def positionals(arguments: Sequence[str], where: str = "") -> list[Variable]:
    """Return the variables that the positional arguments set.

    A dash stands for an empty user and an empty password, as in newer versions of the script. The
    account is then in the option file, and no secret is on the command line.
    """
    if arguments and arguments[0] == "-":
        arguments = ["", "", *arguments[1:]]
    return [
        Variable(name, value, where)
        for name, value in zip(DEFAULTS, arguments, strict=False)
    ]


def assignments(paths: Iterable[str], complaints: list[str]) -> Iterator[Variable]:
    """Parse those files of NAME=value lines that exist, as a shell does.

    Expand and run nothing. complaints: where to append each mistake.
    """
    for path in paths:
        try:
            lines = read_file(path).split("\n")
        except FileNotFoundError:
            continue
        except OSError as fault:
            complaints.append(f"{path}: {fault.strerror}")
            continue
        for number, line in enumerate(lines, 1):
            where = f"{path}, line {number}"
            try:
                words = _shell_words(line)
            except ValueError:
                complaints.append(
                    f"{where}: no NAME=value of a shell; the line is ignored"
                )
                continue
            for word in words:
                name, equals, value = word.partition("=")
                if equals and name in VARIABLES:
                    if re.search(r"[$`]", value):
                        complaints.append(
                            f"{where}: {name} has a $ or `, which is not expanded"
                        )
                    yield Variable(name, value, where)


def effective(variables: Iterable[Variable]) -> dict[str, Variable]:
    """Return what applies for each variable: the last one, or else the script's default."""
    defaults = [
        Variable(name, value, "the script's default")
        for name, value in DEFAULTS.items()
    ]
    return {
        variable.name: variable
        for variable in (*defaults, *variables)
        if variable.name in VARIABLES
        if variable.value or variable.name in _KEPT_EMPTY
    }


def _shell_words(line: str) -> list[str]:
    """Return the words of a line, without a comment. Raises ValueError."""
    if "\0" in line:
        raise ValueError("no variable may contain a zero byte")
    words = _QUOTED.sub(_for_shlex, line.rstrip("\r"))
    lexer = shlex.shlex(words, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    # In a shell, a comment begins with a word. shlex would split pass#word.
    lexer.commenters = ""
    return list(itertools.takewhile(lambda word: not word.startswith("#"), lexer))


def _for_shlex(quoted: re.Match[str]) -> str:
    # In double quotes, a shell reads \$ as $ and \` as `. shlex would keep the backslash.
    if quoted["double"]:
        return re.sub(r"\\([$`])", r"\1", quoted[0])
    return quoted[0]
