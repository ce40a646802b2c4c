"""Reads the settings: flags, environment variables and an env file."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple

from app.kinds import NETWORKS, SECRET
from app.settings.env_file import ENV_FILE, Variable, read_env_file
from app.settings.error import SettingsError, few
from app.settings.settings import TABLE, Settings
from app.text import one_line

ENV_FILE_VARIABLE = "CLUSTERCHECK_ENV_FILE"

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


@dataclass(frozen=True)
class Told:
    """What somebody has set: its text, or that it is set if it is a secret, and where."""

    value: str
    source: str


class Loaded(NamedTuple):
    """Settings as they were read.

    warnings: of one line each. told: what is set, by variable. env_file: the path that was read.
    """

    settings: Settings
    warnings: Sequence[str]
    told: Mapping[str, Told]
    env_file: str | None


class Source(NamedTuple):
    """Where a process reads its settings, beside its environment.

    flags: field of `Settings` to the text that was typed. env_file: the path that was typed.
    """

    flags: Mapping[str, str] = {}
    env_file: str | None = None

    def load(self, *names: str) -> Loaded:
        """Return settings. Raises `SettingsError`.

        names: the fields that the caller uses, if not all; a mistake elsewhere is then a warning.
        """
        path = self.env_file or os.environ.get(ENV_FILE_VARIABLE) or ENV_FILE
        in_file, mistakes = read_env_file(path)
        environ = [Variable(name, value) for name, value in sorted(os.environ.items())]
        typed = [
            Variable(name.upper(), value, TABLE[name].flag)
            for name, value in self.flags.items()
        ]
        given = [one for one in (*in_file, *environ, *typed) if _counts(one)]
        last = {one.field: one for one in given}
        warnings = list(_unknown(environ))
        warnings += (
            f"{one.called} does not count: {_place(last[one.field], path)} sets it"
            for one in given
            if one.where.startswith(path) and one.value != last[one.field].value
        )
        # No mistake: after a rollback, it may be a newer version's.
        warnings += _unknown(in_file)
        if names:
            warnings += mistakes
            mistakes = []
        used = {name: one for name, one in last.items() if name in (names or TABLE)}
        settings = Settings(**values_of(used, mistakes))
        return Loaded(
            settings,
            few([*_lone_networks(settings), *warnings]),
            {one.field.upper(): _told(one) for one in used.values()},
            # Path.exists raises PermissionError.
            one_line(path) if os.path.exists(path) else None,  # noqa: PTH110
        )


def _lone_networks(settings: Settings) -> Iterator[str]:
    # xinetd's only_from takes it for a network.
    for one in settings.clustercheck_allow_from or ():
        if one.num_addresses == 1 and str(one).endswith(".0/32"):
            address = one.network_address
            yield (
                f"CLUSTERCHECK_ALLOW_FROM: {address} counts as one address, not as a network like"
                f" {address}/24"
            )


def _place(variable: Variable, env_file: str) -> str:
    if variable.where.startswith(env_file):
        return "a later line"
    return variable.where or "the environment"


def _told(variable: Variable) -> Told:
    is_secret = TABLE[variable.field].kind is SECRET
    value = "set" if is_secret else one_line(variable.value)
    return Told(value, one_line(variable.where or "environment"))


def _counts(variable: Variable) -> bool:
    row = TABLE.get(variable.field)
    # An empty list of clients is a mistake, and not none.
    return row is not None and (variable.value != "" or row.kind is NETWORKS)


def _unknown(variables: Iterable[Variable]) -> Iterator[str]:
    for variable in variables:
        name, where = variable.name.upper(), variable.where
        if variable.field in TABLE or name == ENV_FILE_VARIABLE:
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
