"""The settings: flags, environment variables and an env file, read once into a frozen dataclass."""

# All imported with this module: a service reads its settings again after an upgrade has replaced
# the files of its program.
import difflib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

from pydantic import BeforeValidator, Field, ValidationError
from pydantic.dataclasses import dataclass
from pydantic_core import ErrorDetails

from app.settings.database import MOST_PORT, Database
from app.settings.disabled_file import DISABLED_FILE
from app.settings.env_file import ENV_FILE, read_env_file
from app.settings.error import SettingsError
from app.settings.values import Variable, seconds_in
from app.text import one_line
from app.verdict.rules import Policy

_ENV_FILE_VARIABLE = "CLUSTERCHECK_ENV_FILE"

WITHOUT_FLAG = ("mysql_password",)
"""Every user of the host can read a command line."""

_MUST_BE = {
    "bool_parsing": "0 or 1",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number",
    "greater_than_equal": "at least {ge:g}",
    "less_than_equal": "at most {le:g}",
    "literal_error": "{expected}",
    "string_pattern_mismatch": f"an absolute path, such as {DISABLED_FILE}",
    "string_unicode": "UTF-8",
    "too_short": "a network, or nobody could connect; to allow everybody, remove it",
    "value_error": "{error}",
}
"""What a value must be, by the type of pydantic's error."""

# An empty variable is not set. For these, that might do the opposite of what is meant.
_NEVER_EMPTY = ("clustercheck_allow_from", "clustercheck_disabled_file")


def _networks_in(text: str) -> list[IPv4Network | IPv6Network]:
    try:
        return [ip_network(word) for word in text.replace(",", " ").split()]
    except ValueError as fault:
        raise ValueError(
            f"addresses and networks, such as 10.0.0.0/8 fd00::7: {fault}"
        ) from None


Networks = list[IPv4Network | IPv6Network] | None

_DURATION = BeforeValidator(seconds_in)
_NETWORKS = BeforeValidator(_networks_in)


@dataclass(frozen=True)
class Settings(Policy, Database):
    """All settings; the environment variables have the fields' names."""

    # Again, with their limits.
    mysql_port: Annotated[int | None, Field(ge=1, le=MOST_PORT)] = None
    min_cluster_size: Annotated[int, Field(ge=0)] = 0
    max_recv_queue: Annotated[int | None, Field(ge=0)] = None
    max_sync_wait: Annotated[float | None, Field(ge=0.1, le=3600), _DURATION] = None

    # A relative path would depend on where each command is started.
    clustercheck_disabled_file: Annotated[
        str, "the node is drained while it exists", Field(pattern="^/")
    ] = DISABLED_FILE
    clustercheck_drain_status: Annotated[
        Literal["404", "503"], "HTTP status for planned reasons"
    ] = "503"
    clustercheck_drain_seconds: Annotated[
        float, "how long to drain after SIGTERM", Field(le=3600), _DURATION
    ] = 0
    clustercheck_poll_interval: Annotated[
        float, "how often to poll the server", Field(ge=0.05, le=60), _DURATION
    ] = 0.25
    clustercheck_login_interval: Annotated[
        float, "how often to log in again; 0 is never", Field(le=3600), _DURATION
    ] = 2
    clustercheck_deadline: Annotated[
        float, "time that one poll may take", Field(ge=0.05, le=60), _DURATION
    ] = 0.8
    clustercheck_host: Annotated[str, "the service's address; * is all"] = "*"
    clustercheck_port: Annotated[
        int, "the service's port; 0 is any", Field(ge=0, le=MOST_PORT)
    ] = 9200
    clustercheck_allow_from: Annotated[
        Networks,
        "clients, e.g. 10.0.0.0/8 (default: everybody)",
        Field(min_length=1),
        _NETWORKS,
    ] = None
    clustercheck_any_path: Annotated[bool, "return the verdict on every path"] = False
    clustercheck_log_level: Annotated[
        Literal["debug", "info", "warning", "error"], "debug, info, warning or error"
    ] = "info"
    clustercheck_log_format: Annotated[Literal["text", "json"], "text or json"] = "text"

    def database(self) -> Database:
        """Return the database settings, for the poller."""
        return Database(**{name: getattr(self, name) for name in DATABASE})

    def policy(self) -> Policy:
        """Return the policy for health checks that do not override it."""
        return Policy(**{name: getattr(self, name) for name in POLICY})


_types_of = partial(get_type_hints, include_extras=True)
# With the words that the parents have.
FIELDS = _types_of(Settings) | _types_of(Database) | _types_of(Policy)
"""The type and the words of each setting, in their order."""

DATABASE = [field.name for field in fields(Database)]
POLICY = [field.name for field in fields(Policy)]
"""A query overrides them by the same names."""

LISTENING = ["clustercheck_host", "clustercheck_port"]

_LIKE_OURS = (
    "CLUSTERCHECK_",
    *("_".join(name.upper().split("_")[:2]) + "_" for name in POLICY),
    # Close to a name of ours, and used by other programs.
    *("MYSQL_USER", "MYSQL_PASS", "MYSQL_SSL"),
)
"""How a misspelt setting may begin in the environment."""


def flag_of(name: str) -> str:
    """Return the flag that sets a field of `Settings`."""
    return "--" + name.removeprefix("clustercheck_").removeprefix("poll_").replace(
        "_", "-"
    )


_MEANT = {
    word: name.upper()
    for name in (*FIELDS, _ENV_FILE_VARIABLE)
    for word in (name.upper(), flag_of(name)[2:].replace("-", "_").upper())
}
"""Each setting by its name and by its flag's."""

# Pasted keys have longer runs, lower case or more digits.
_WORDS = re.compile(r"[A-Z]{1,12}(_[A-Z]{1,12}){0,5}[0-9]?")
# As difflib counts: MYSQL_PWD is just as close to MYSQL_PASSWORD.
_CLOSE = 0.75


def default_of(name: str) -> str:
    """Return a field's default as it is typed; empty for None."""
    default = getattr(Settings, name)
    if isinstance(default, bool):
        return str(int(default))
    return "" if default is None else str(default)


def about(name: str) -> str:
    """Say what a field means."""
    return str(FIELDS[name].__metadata__[0])


def kinds_of(name: str) -> tuple[Any, ...]:
    """Return a field's type, and the members of a union or literal."""
    kind = FIELDS[name].__origin__
    return (kind, *get_args(kind))


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
        return self._load(FIELDS, strict=strict, lenient=False)

    def load_only(self, *names: str) -> Loaded:
        """Read these fields; a mistake elsewhere is a warning. Raises `SettingsError`."""
        return self._load(names, strict=False, lenient=True)

    def _load(self, names: Collection[str], *, strict: bool, lenient: bool) -> Loaded:
        in_file, mistakes = read_env_file(
            self.env_file or os.environ.get(_ENV_FILE_VARIABLE) or ENV_FILE
        )
        environ = [Variable(name, value) for name, value in sorted(os.environ.items())]
        typed = [
            Variable(name.upper(), value, flag_of(name))
            for name, value in self.flags.items()
        ]
        warnings = [*_misspelt(environ), *_repetitions(in_file)]
        (mistakes if strict else warnings).extend(_misspelt(in_file))
        if lenient:
            warnings += mistakes
            mistakes = []
        used = effective([*in_file, *environ, *typed], names)
        return Loaded(settings_of(used, mistakes), warnings, used)


def _misspelt(variables: Iterable[Variable]) -> list[str]:
    """Return a line for each name that is no setting, with the one that was probably meant.

    What may be a pasted key or password is not shown.
    """
    lines = []
    for variable in variables:
        name = variable.name.upper()
        # Other programs have variables in the environment too.
        is_ours = variable.where or name.startswith(_LIKE_OURS)
        if not is_ours or _MEANT.get(name) == name:
            continue
        meant = difflib.get_close_matches(name, _MEANT, 1, _CLOSE)
        hint = f"; did you mean {_MEANT[meant[0]]}?" if meant else ""
        # Lower case is as good for a setting, but may as well be a passphrase.
        is_harmless = _WORDS.fullmatch(name if meant else variable.name)
        shown = variable if is_harmless else Variable("a name", "", variable.where)
        lines.append(f"{shown.called} is not a setting{hint}")
    return lines


def _repetitions(variables: Iterable[Variable]) -> Iterator[str]:
    earlier: dict[str, str] = {}
    for variable in variables:
        name = variable.name.upper()
        if name in earlier and name in _MEANT:
            yield f"{variable.called} is already set: {earlier[name]}"
        earlier[name] = variable.where


def effective(
    variables: Iterable[Variable], only: Collection[str] = FIELDS
) -> dict[str, Variable]:
    """Return the last variable that sets each field, if any does."""
    return {
        field: variable
        for variable in variables
        if (field := variable.name.lower()) in only
        if variable.value or field in _NEVER_EMPTY
    }


def settings_of(used: Mapping[str, Variable], mistakes: Sequence[str] = ()) -> Settings:
    """Return the settings of variables, by field.

    mistakes: found before. Raises `SettingsError`.
    """
    lines = list(mistakes)
    values: dict[str, Any] = {field: variable.value for field, variable in used.items()}
    try:
        settings = Settings(**values)
    except ValidationError as fault:
        lines += [_line(error, used[str(error["loc"][0])]) for error in fault.errors()]
    else:
        lines += _conflicts(settings)
    if lines:
        raise SettingsError(*lines)
    return settings


def _conflicts(settings: Settings) -> Iterator[str]:
    if settings.mysql_password and settings.mysql_password_file:
        yield "MYSQL_PASSWORD and MYSQL_PASSWORD_FILE are both set: set one"
    if settings.max_sync_wait and not settings.clustercheck_login_interval:
        yield "MAX_SYNC_WAIT: with CLUSTERCHECK_LOGIN_INTERVAL=0 nothing reads in sync"


def _line(error: ErrorDetails, variable: Variable) -> str:
    value = one_line(variable.value)
    allowed = _MUST_BE[error["type"]].format(**error.get("ctx", {})).replace("'", "")
    # A password may be in the wrong one of these, or in a line that lacks its end.
    if variable.name.upper().startswith("MYSQL_") or {"=", "@"} & set(value):
        value = "(not repeated here)"
        allowed = allowed.partition(": ")[0]
    # A duration out of its bounds is often one in milliseconds.
    unit = " s" if isinstance(error["input"], float) else ""
    return f"{variable.called}: {value}: must be {allowed}{unit}"
