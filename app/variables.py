"""Variables as written: the lines of an env file, and names that look like settings but are not."""

import difflib
import io
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dotenv import dotenv_values
from dotenv.parser import parse_stream

_OUR_PREFIXES = ("CLUSTERCHECK_", "AVAILABLE_WHEN_")
_LIKE_OURS = ("CLUSTERCHECK", "AVAILABLE", "MYSQL", "MAX_RECV", "DEFAULT")
# Names that other programs use, the mysql client among them.
_OTHER_NAMES = {
    "MYSQL_USER": "MYSQL_USERNAME",
    "MYSQL_PASS": "MYSQL_PASSWORD",
    "MYSQL_PWD": "MYSQL_PASSWORD",
    "MYSQL_HOSTNAME": "MYSQL_HOST",
    "MYSQL_TCP_PORT": "MYSQL_PORT",
    "MYSQL_UNIX_PORT": "MYSQL_SOCKET",
    "MYSQL_SSL_MODE": "MYSQL_SSL",
}
# Kubernetes sets variables with the first two for every Service. Database images use the third.
_OF_OTHERS = ("_SERVICE_", "_PORT_", "_ROOT_")
_HOW_CLOSE = 0.85
# Messages repeat only such names: the parser may take a pasted key or password for a name.
_NAME = re.compile(r"[A-Za-z0-9]+(_[A-Za-z0-9]+)+")


class EnvFileError(Exception):
    """An env file that cannot be read. The message has one line for each mistake, and contains no value."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A setting as it was given. name is in upper case; where: file and line, for messages; flag: as it was typed."""

    name: str
    value: str
    where: str = ""
    flag: str | None = None

    @property
    def called(self) -> str:
        """Name it in a message."""
        return self.flag or f"{self.where}{self.name}"


def variables_of(environ: Mapping[str, str]) -> list[Variable]:
    """Return the variables of the environment."""
    return [Variable(name.upper(), value) for name, value in sorted(environ.items())]


def read_env_file(path: str) -> list[Variable]:
    """Return the variables of an env file, as pydantic-settings will read them. Raises `EnvFileError`."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as fault:
        message = f"{path}: {getattr(fault, 'strerror', None) or 'not UTF-8'}"
        raise EnvFileError(message) from None
    names: dict[str, int] = {}
    complaints = []
    for binding in parse_stream(io.StringIO(text)):
        written = binding.original.string
        # The parser counts the empty lines before a binding as part of it.
        number = binding.original.line + written[: len(written) - len(written.lstrip())].count("\n")
        if binding.error or (binding.key is not None and binding.value is None):
            complaints.append(f"{path}, line {number}: is not NAME=value")
        elif binding.key is not None:
            names[binding.key] = number
    if complaints:
        raise EnvFileError("\n".join(complaints))
    values = dotenv_values(stream=io.StringIO(text))
    return [Variable(name.upper(), values[name] or "", f"{path}, line {number}: ") for name, number in names.items()]


def misspelt_names(environ: Iterable[Variable], env_file: Iterable[Variable], known: Collection[str]) -> list[str]:
    """Return one line for each variable that looks like a setting but is not.

    The environment contains variables of other programs. There, only names with a prefix of ours, or close to a
    setting's name, count. In an env file, every name counts.
    """
    given = [*environ, *env_file]
    is_set = {variable.name for variable in given}
    lines = []
    for variable in given:
        if variable.name in known:
            continue
        meant = _meant_by(variable.name, known)
        if variable.where or _concerns_us(variable.name, meant, is_set):
            name = variable.name if _NAME.fullmatch(variable.name) else "a name"
            line = f"{variable.where}{name} is not a setting and is ignored"
            lines.append(f"{line}: did you mean {meant}?" if meant else line)
    return lines


def _meant_by(name: str, known: Collection[str]) -> str | None:
    # Comparing is slow, and an environment may contain hundreds of unrelated names.
    close = difflib.get_close_matches(name, known, n=1, cutoff=_HOW_CLOSE) if name.startswith(_LIKE_OURS) else []
    return _OTHER_NAMES.get(name) or (close[0] if close else None)


def _concerns_us(name: str, meant: str | None, is_set: Collection[str]) -> bool:
    if any(part in name for part in _OF_OTHERS):
        return False
    return name.startswith(_OUR_PREFIXES) or (meant is not None and meant not in is_set)
