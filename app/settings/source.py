"""Reads the settings: flags, environment variables and an env file."""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from app.settings.env_file import ENV_FILE, Variable, read_env_file
from app.settings.error import SettingsError, bounded
from app.settings.settings import POLICY, TABLE, Settings

_ENV_FILE_VARIABLE = "CLUSTERCHECK_ENV_FILE"
_NAMES = {*(row.variable for row in TABLE.values()), _ENV_FILE_VARIABLE}

_LIKE_OURS = (
    "CLUSTERCHECK_",
    *("_".join(name.upper().split("_")[:2]) for name in POLICY),
    # Close to a name of ours, and used by other programs.
    *("MYSQL_USER", "MYSQL_PASS", "MYSQL_SSL"),
)
"""How a misspelt setting may begin in the environment, where other programs have variables too."""

# Another name in a file may be a pasted key or password.
_HARMLESS = re.compile(r"[A-Z]+(_[A-Z]+)+")


class Loaded(NamedTuple):
    """Settings as they were read.

    warnings: one line each. variables: the one that decides, for each field that has one.
    """

    settings: Settings
    warnings: Sequence[str]
    variables: Mapping[str, Variable]


class Source(NamedTuple):
    """Where a process reads its settings, beside its environment.

    flags: field of `Settings` to the text that was typed. env_file: the path that was typed.
    """

    flags: Mapping[str, str] = {}
    env_file: str | None = None

    def load(self, *, strict: bool = False) -> Loaded:
        """Read all settings. Raises `SettingsError`.

        strict: a name in the env file that is no setting is a mistake.
        """
        return self._load(None, strict=strict)

    def load_only(self, *names: str) -> Loaded:
        """Read these fields; a mistake elsewhere is a warning. Raises `SettingsError`."""
        return self._load(names, strict=False)

    def _load(self, only: Collection[str] | None, *, strict: bool) -> Loaded:
        in_file, mistakes = read_env_file(
            self.env_file or os.environ.get(_ENV_FILE_VARIABLE) or ENV_FILE
        )
        environ = [Variable(name, value) for name, value in sorted(os.environ.items())]
        typed = [
            Variable(name.upper(), value, TABLE[name].flag)
            for name, value in self.flags.items()
        ]
        warnings = [*_unknown(environ), *_repetitions(in_file)]
        (mistakes if strict else warnings).extend(_unknown(in_file))
        if only is not None:
            warnings += mistakes
            mistakes = []
        used = {
            row.name: variable
            for variable in (*in_file, *environ, *typed)
            if (row := TABLE.get(variable.name.lower()))
            if only is None or row.name in only
            if variable.value or row.never_empty
        }
        settings = Settings(**values_of(used, mistakes))
        if conflicts := list(_conflicts(settings)):
            raise SettingsError(*conflicts)
        return Loaded(settings, bounded(warnings), used)


def _unknown(variables: Iterable[Variable]) -> Iterator[str]:
    for variable in variables:
        name = variable.name.upper()
        if name in _NAMES:
            continue
        if not variable.where and name.startswith(_LIKE_OURS):
            yield f"{name} is not a setting"
        elif variable.where:
            shown = name if _HARMLESS.fullmatch(variable.name) else "a name"
            yield f"{variable.where}: {shown} is not a setting"


def _repetitions(variables: Iterable[Variable]) -> Iterator[str]:
    earlier: dict[str, Variable] = {}
    for variable in variables:
        name = variable.name.upper()
        if name in _NAMES and name in earlier:
            yield f"{earlier[name].called} is ignored: {variable.where} sets it again"
        earlier[name] = variable


def _conflicts(settings: Settings) -> Iterator[str]:
    if settings.mysql_password and settings.mysql_password_file:
        yield "MYSQL_PASSWORD and MYSQL_PASSWORD_FILE are both set: set one"
    if settings.max_sync_wait and not settings.clustercheck_login_interval:
        yield "MAX_SYNC_WAIT: with CLUSTERCHECK_LOGIN_INTERVAL=0 nothing reads in sync"


def values_of(
    variables: Mapping[str, Variable], mistakes: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the values of variables, by field. Raises `SettingsError`.

    mistakes: found before. No message repeats a value: it may be a password, in the wrong variable.
    """
    values = {}
    lines = list(mistakes)
    for name, variable in variables.items():
        kind = TABLE[name].kind
        try:
            values[name] = kind.parse(variable.value)
        except (ValueError, KeyError):
            line = f"{variable.called}: must be {kind.must_be}"
            if variable.value.startswith("tcp://"):
                line += (
                    " (Kubernetes sets it for a Service: set enableServiceLinks: false)"
                )
            lines.append(line)
    if lines:
        raise SettingsError(*lines)
    return values
