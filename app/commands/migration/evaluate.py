"""Evaluates the script's assignments, without running the script.

There are several versions of the script:

- Percona's packages read positional arguments and no variables.
- Later versions by the same author, and Red Hat's, read variables from a file that they source, and ignore arguments.
- Configuration management may write the account into the script itself.

The assignments show which version it is:

    MYSQL_USERNAME="${1-clustercheckuser}"        AVAILABLE_WHEN_DONOR=${AVAILABLE_WHEN_DONOR:-0}
    MYSQL_PASSWORD="s3cret"                       . /etc/sysconfig/clustercheck
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app.commands.migration.found import Given
from app.commands.script import CONFIGURATION_FILES, DEFAULTS, all_positionals, assignments, positionals

NAMES = (*DEFAULTS, "MYSQL_HOST", "MYSQL_PORT", "MYSQL_SOCKET", "CLUSTERCHECK_DISABLED_FILE", "CLUSTERCHECK_DEADLINE")
"""The variables to find."""

_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)=(.*)")
_SOURCED = re.compile(r"\s*(?:\.|source)\s+[\"']?(/[^\s\"';]+)")
_DISABLED_FILE = re.compile(r"-[ef]\s+[\"']?(/[^\s\"']*disabled)")
_TAKES_DASH = re.compile(r"\$\{?1\}?[\"']?\s*==?\s*[\"']?-[\"'\s]")
_PARAMETER = re.compile(r"\$(?:\{(\w+)(:?[-=])|\{(\w+)\}|(\d|[A-Za-z_]\w*))")
# A default's quotes and backslashes depend on the quotes around it.
_QUOTING = "'\"\\"
_ESCAPED_IN_QUOTES = ("$", '"', "\\", "`")


class _NotPlainError(Exception):
    """A word that only a shell can evaluate."""


@dataclass(slots=True)
class Evaluated:
    """The values that the script uses, and remarks about how they were found."""

    values: dict[str, Given] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def evaluate(
    script: Path | None,
    arguments: Sequence[str],
    where: str,
    environ: Mapping[str, Given],
    configuration_files: Sequence[str] = CONFIGURATION_FILES,
) -> Evaluated:
    """Return the values that the script uses. where: where the arguments are written.

    script is None if there is none. If the script cannot be read, assume the precedence of this package's
    `clustercheck`: arguments, then files, then variables.
    """
    result = Evaluated()
    text = _text_of(script) if script is not None else None
    if text is not None and script is not None:
        _Script(script, arguments, where, result, environ).read(text)
        return result
    if script is not None:
        result.remarks.append(
            f"{script} is not a readable shell script: assumed that its arguments take precedence over"
            f" {' and '.join(configuration_files)}, and these over variables"
        )
    result.values = {name: Given(value, "the script's default") for name, value in DEFAULTS.items()}
    result.values.update({name: given for name, given in environ.items() if name in NAMES})
    if script is not None:
        for path in configuration_files:
            if Path(path).exists():
                result.values.update(_assigned(path, NAMES, result.remarks))
    result.values.update({name: Given(value, where) for name, value in positionals(arguments).items()})
    return result


def _text_of(script: Path) -> str | None:
    try:
        text = script.read_text(errors="surrogateescape")
    except OSError:
        return None
    shebang = text.partition("\n")[0]
    return text if re.search(r"#!.*sh\b", shebang) else None


def _assigned(path: str, names: Collection[str], remarks: list[str]) -> dict[str, Given]:
    return {name: Given(value, f"{path}, line {number}") for number, name, value in assignments(path, names, remarks)}


class _Script:
    """Follows a script's assignments, whatever branch they are in."""

    def __init__(
        self,
        path: Path,
        arguments: Sequence[str],
        where: str,
        result: Evaluated,
        environ: Mapping[str, Given],
    ) -> None:
        self._path = path
        self._given = list(arguments)
        self._arguments = list(arguments)
        self._where = where
        self._result = result
        self._variables = dict(environ)
        self._used: set[int] = set()

    def read(self, text: str) -> None:
        """Evaluate the text of the script, and fill in the result."""
        if _TAKES_DASH.search(text):
            self._arguments = all_positionals(self._arguments)
        names = set(re.findall(r"[A-Za-z_]\w+", text))
        # A variable that the script does not mention has no effect, except MYSQL_HOST: the mysql client reads it.
        self._variables = {name: given for name, given in self._variables.items() if name in names | {"MYSQL_HOST"}}
        for number, line in enumerate(text.splitlines(), 1):
            if line.lstrip().startswith("#"):
                continue
            if sourced := _SOURCED.match(line):
                self._source(sourced[1], names)
            elif _ASSIGNMENT.match(line):
                self._assign(line, f"{self._path}, line {number}")
            elif "CLUSTERCHECK_DISABLED_FILE" not in self._variables and (found := _DISABLED_FILE.search(line)):
                self._variables["CLUSTERCHECK_DISABLED_FILE"] = Given(found[1], f"{self._path}, line {number}")
        self._result.values = {name: self._variables[name] for name in NAMES if name in self._variables}
        self._say_what_is_ignored()

    def _source(self, path: str, names: Collection[str]) -> None:
        if Path(path).exists():
            self._variables.update(_assigned(path, names, self._result.remarks))

    def _assign(self, text: str, where: str) -> None:
        """Follow the assignments of one line. Those in front of a command apply to that command only."""
        pending: dict[str, Given] = {}
        while assignment := _ASSIGNMENT.match(text):
            name = assignment[1]
            word = _Word(assignment[2], self._parameter)
            try:
                value, text = word.read()
            except _NotPlainError:
                if name in NAMES:
                    self._variables.pop(name, None)
                    self._result.remarks.append(f"{where}: only a shell can evaluate {name}: set it by hand")
                return
            pending[name] = Given(value, ", ".join(word.sources) or where)
            if not text or text[0] in "#;":
                self._variables |= pending
                text, pending = text.removeprefix(";"), {}

    def _parameter(self, name: str) -> Given | None:
        if not name.isdecimal():
            return self._variables.get(name)
        number = int(name)
        self._used.add(number)
        if 0 < number <= len(self._arguments):
            return Given(self._arguments[number - 1], self._where)
        return None

    def _say_what_is_ignored(self) -> None:
        if self._given and not self._used:
            self._result.remarks.append(
                f"{self._where}: {self._path} ignores its arguments, so they are not in this file"
            )


class _Word:
    """One word of a shell, with quotes, and with parameters whose values are known."""

    def __init__(self, text: str, parameter: Callable[[str], Given | None]) -> None:
        self._text = text
        self._parameter = parameter
        self._at = 0
        self.sources: list[str] = []

    def read(self) -> tuple[str, str]:
        """Return the word's value, and the text after it. Raises `_NotPlainError`."""
        value = self._until("")
        return value, self._text[self._at :].strip()

    def _until(self, end: str) -> str:
        """Read to the character end, or to the end of the word if end is empty."""
        value, quote = "", ""
        ends = end or " \t;&|"
        while self._at < len(self._text) and (quote or self._text[self._at] not in ends):
            character = self._text[self._at]
            if quote == "'" and character != "'":
                value += character
            elif character == "$":
                value += self._expanded()
                continue
            elif character == "`" or (character in "()~" and not quote) or (end and character in _QUOTING):
                raise _NotPlainError
            elif character == quote or (character in "\"'" and not quote):
                quote = "" if quote else character
            else:
                if character == "\\" and (not quote or self._text[self._at + 1 : self._at + 2] in _ESCAPED_IN_QUOTES):
                    self._at += 1
                value += self._text[self._at : self._at + 1]
            self._at += 1
        if quote:
            raise _NotPlainError
        return value

    def _expanded(self) -> str:
        found = _PARAMETER.match(self._text, self._at)
        if found is None:
            raise _NotPlainError
        self._at = found.end()
        name, operator = found[1] or found[3] or found[4], found[2]
        given = self._parameter(name)
        if not operator:
            return self._known(given)
        sources = list(self.sources)
        default = self._until("}")
        if self._at >= len(self._text):
            raise _NotPlainError
        self._at += 1
        if given is None or (operator.startswith(":") and not given.value):
            return default
        self.sources = sources
        return self._known(given)

    def _known(self, given: Given | None) -> str:
        if given is None:
            return ""
        if given.where not in self.sources:
            self.sources.append(given.where)
        return given.value
