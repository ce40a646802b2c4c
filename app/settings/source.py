"""Reads the settings: flags, environment variables and an env file."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from app.kinds import NETWORKS
from app.settings.env_file import ENV_FILE, Variable, read_env_file
from app.settings.error import SettingsError
from app.settings.settings import TABLE, Settings

_ENV_FILE_VARIABLE = "CLUSTERCHECK_ENV_FILE"

_NAME = re.compile("[A-Z_]+")

_LIKE_OURS = (
    "CLUSTERCHECK_",
    "AVAILABLE_WHEN_",
    "MIN_CLUSTER_",
    "MAX_RECV_",
    "MAX_STALL",
    "MAX_SYNC_",
    # Close to a name of ours, and used by other programs.
    "MYSQL_USER",
    "MYSQL_PASS",
    "MYSQL_SSL",
)
"""How a misspelt setting may begin in the environment, where other programs have variables too."""

_ALIKE = 0.75
"""How much a name must be like a setting's to be one that is misspelt, as difflib counts it."""


class Source(NamedTuple):
    """Where a process reads its settings, beside its environment.

    flags: field of `Settings` to the text that was typed. env_file: the path that was typed.
    """

    flags: Mapping[str, str] = {}
    env_file: str | None = None

    def load(self, *names: str, strict: bool = False) -> tuple[Settings, Sequence[str]]:
        """Return settings, and warnings of one line each. Raises `SettingsError`.

        names: the fields that the caller uses, if not all; a mistake elsewhere is then a warning.
        strict: a name in the env file that is no setting is a mistake.
        """
        in_file, mistakes = read_env_file(
            self.env_file or os.environ.get(_ENV_FILE_VARIABLE) or ENV_FILE
        )
        environ = [Variable(name, value) for name, value in sorted(os.environ.items())]
        typed = [
            Variable(name.upper(), value, TABLE[name].flag)
            for name, value in self.flags.items()
        ]
        warnings = list(_unknown(environ))
        known = [one for one in in_file if _counts(one)]
        last = {one.field: one for one in known}
        warnings += (
            f"{one.called} does not count: a later line sets it"
            for one in known
            if one is not last[one.field]
        )
        (mistakes if strict else warnings).extend(_unknown(in_file))
        if names:
            warnings += mistakes
            mistakes = []
        used = {
            one.field: one
            for one in (*in_file, *environ, *typed)
            if _counts(one) and one.field in (names or TABLE)
        }
        return Settings(**values_of(used, mistakes)), warnings


def _counts(variable: Variable) -> bool:
    row = TABLE.get(variable.field)
    # An empty list of clients is a mistake, and not none.
    return row is not None and (variable.value != "" or row.kind is NETWORKS)


def _unknown(variables: Iterable[Variable]) -> Iterator[str]:
    for variable in variables:
        name, where = variable.name.upper(), variable.where
        if variable.field in TABLE or name == _ENV_FILE_VARIABLE:
            continue
        is_like_ours = name.startswith(_LIKE_OURS)
        if not (where or is_like_ours):
            continue
        longer = [known for known in TABLE if known.startswith(variable.field)]
        near = longer or get_close_matches(variable.field, TABLE, 1, _ALIKE)
        # What a line has left of = may be, or have in it, a pasted key or password.
        is_name = _NAME.fullmatch(name) and (near or is_like_ours)
        called = variable._replace(name=name).called if is_name or not where else where
        meant = f"; did you mean {near[0].upper()}?" if near else ""
        yield f"{called} is not a setting{meant}"


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
        except ValueError:
            lines.append(f"{variable.called}: must be {kind.must_be}")
    if lines:
        raise SettingsError(*lines)
    return values
