"""Env files: their lines, and names that are no setting."""

# All imported with this module: a service reads its settings again after an upgrade has replaced
# the files of its program.
import difflib
import io
import re
from collections.abc import Iterable, Iterator, Mapping

from dotenv.parser import parse_stream

from app.settings.files import read_file, words_of
from app.settings.variables import Variable

ENV_FILE = "/etc/clustercheckd/clustercheckd.env"
"""Where to look without another path. It need not exist."""

# Pasted keys have longer runs, lower case or more digits.
_WORDS = re.compile(r"[A-Z]{1,12}(_[A-Z]{1,12}){0,5}[0-9]?")
# As difflib counts: MYSQL_PWD is just as close to MYSQL_PASSWORD.
_CLOSE = 0.75


def read_env_file(path: str) -> tuple[list[Variable], list[str]]:
    """Return the variables of an env file, and one line for each mistake, without a value."""
    try:
        text = read_file(path, errors="strict")
    except (OSError, UnicodeError) as fault:
        if path == ENV_FILE and isinstance(fault, FileNotFoundError):
            return [], []
        why = words_of(fault) if isinstance(fault, OSError) else "not UTF-8"
        return [], [f"env file {path}: {why}"]
    variables = []
    mistakes = []
    for number, line in enumerate(text.split("\n"), 1):
        where = f"{path}, line {number}"
        for binding in parse_stream(io.StringIO(line)):
            # No path may contain a zero byte.
            if binding.error or "\0" in line or (binding.key and binding.value is None):
                mistakes.append(f"env file {where} is not NAME=value")
            elif binding.key is not None:
                variables.append(Variable(binding.key, binding.value or "", where))
    return variables, mistakes


def misspelt(variables: Iterable[Variable], settings: Mapping[str, str]) -> list[str]:
    """Return one line for each name that is no setting, with the one that was probably meant.

    settings: names by what may be typed. What may be a pasted key or password is not shown.
    """
    lines = []
    for variable in variables:
        name = variable.name.upper()
        if settings.get(name) == name:
            continue
        meant = difflib.get_close_matches(name, settings, 1, _CLOSE)
        hint = f"; did you mean {settings[meant[0]]}?" if meant else ""
        # Lower case is as good for a setting, but may as well be a passphrase.
        is_harmless = _WORDS.fullmatch(name if meant else variable.name)
        shown = variable if is_harmless else Variable("a name", "", variable.where)
        lines.append(f"{shown.called} is not a setting{hint}")
    return lines


def repetitions(
    variables: Iterable[Variable], settings: Mapping[str, str]
) -> Iterator[str]:
    """Yield one line for each setting that comes again."""
    earlier: dict[str, str] = {}
    for variable in variables:
        name = variable.name.upper()
        if name in earlier and name in settings:
            yield f"{variable.called} is already set: {earlier[name]}"
        earlier[name] = variable.where
