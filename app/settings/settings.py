"""The settings: flags, environment variables and an env file, read once into a frozen model."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
)
from pydantic_core import ErrorDetails

from app.settings.address import MOST_PORT
from app.settings.env_file import ENV_FILE, misspelt, read_env_file, repetitions
from app.settings.files import SettingsError
from app.settings.switches import DISABLED_FILE
from app.settings.target import Database
from app.settings.variables import Variable, seconds_in
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
    "string_unicode": "UTF-8",
    "value_error": "{error}",
}
"""What a value must be, by the type of pydantic's error."""

# An empty variable is not set. For these, that might do the opposite of what is meant.
_NEVER_EMPTY = ("clustercheck_allow_from", "clustercheck_disabled_file")


def _networks_in(text: str) -> list[IPv4Network | IPv6Network]:
    try:
        networks = [ip_network(word) for word in text.replace(",", " ").split()]
    except ValueError as fault:
        raise ValueError(
            f"addresses and networks, such as 10.0.0.0/8 fd00::7: {fault}"
        ) from None
    if not networks:
        raise ValueError(
            "a network, or nobody could connect; to allow everybody, remove it"
        )
    return networks


def _absolute(path: str) -> str:
    # Otherwise it would depend on where each command is started.
    if not path.startswith("/"):
        raise ValueError(f"an absolute path, such as {DISABLED_FILE}")
    return path


LogLevel = Literal["debug", "info", "warning", "error"]
AbsolutePath = Annotated[str, AfterValidator(_absolute)]
Seconds = Annotated[float, BeforeValidator(seconds_in)]
Limit = Annotated[float | None, BeforeValidator(seconds_in)]
Networks = Annotated[
    list[IPv4Network | IPv6Network] | None, BeforeValidator(_networks_in)
]


class Settings(BaseModel, frozen=True):
    """All settings; the environment variables have the fields' names."""

    mysql_socket: str | None = Field(
        None, description="unix socket (default: the first usual place)"
    )
    mysql_host: str | None = Field(
        None, description="the server's name or address, for TCP"
    )
    mysql_port: int | None = Field(
        None, ge=1, le=MOST_PORT, description="the server's port (3306); it means TCP"
    )
    mysql_username: str | None = Field(
        None, description="account (default: clustercheckd's own user)"
    )
    mysql_password: SecretStr | None = Field(
        None, description="the account's password; none with unix_socket"
    )
    mysql_password_file: str | None = Field(
        None, description="file that contains the password"
    )
    defaults_extra_file: str | None = Field(
        None, description="option file of the mysql client, for [client]"
    )
    mysql_ssl: bool | None = Field(
        None, description="require TLS; other MYSQL_SSL_* imply it"
    )
    mysql_ssl_ca: str | None = Field(
        None, description="certificates to trust (default: the system's)"
    )
    mysql_ssl_cert: str | None = Field(None, description="client certificate, PEM")
    mysql_ssl_key: str | None = Field(
        None, description="its key, PEM (default: in the same file)"
    )
    mysql_ssl_verify: Literal["identity", "ca", "none"] | None = Field(
        None, description="identity (default), ca, none"
    )

    available_when_donor: bool = Field(
        default=False, description="accept a donor or desynced node"
    )
    available_when_readonly: bool = Field(
        default=True, description="accept a read-only node"
    )
    available_when_full: bool = Field(
        default=True, description="accept a node at max_connections"
    )
    min_cluster_size: int = Field(
        0, ge=0, description="fewest members of the node's component (0: no limit)"
    )
    max_recv_queue: int | None = Field(
        None, ge=0, description="longest receive queue (default: no limit)"
    )
    max_sync_wait: Limit = Field(
        None, ge=0.1, le=3600, description="longest wait of a read in sync (no limit)"
    )

    clustercheck_disabled_file: AbsolutePath = Field(
        DISABLED_FILE, description="the node is drained while it exists"
    )
    clustercheck_drain_status: Literal["404", "503"] = Field(
        "503", description="HTTP status for planned reasons"
    )
    clustercheck_drain_seconds: Seconds = Field(
        0, ge=0, le=3600, description="how long to drain after SIGTERM"
    )
    clustercheck_poll_interval: Seconds = Field(
        0.25, ge=0.05, le=60, description="how often to poll the server"
    )
    clustercheck_login_interval: Seconds = Field(
        2, ge=0, le=3600, description="how often to log in again; 0 is never"
    )
    clustercheck_deadline: Seconds = Field(
        0.8, ge=0.05, le=60, description="time that one poll may take"
    )
    clustercheck_host: str = Field("*", description="the service's address; * is all")
    clustercheck_port: int = Field(
        9200, ge=0, le=MOST_PORT, description="the service's port; 0 is any"
    )
    clustercheck_allow_from: Networks = Field(
        None, description="clients, e.g. 10.0.0.0/8 (default: everybody)"
    )
    clustercheck_any_path: bool = Field(
        default=False, description="return the verdict on every path"
    )
    clustercheck_log_level: LogLevel = Field(
        "info", description="debug, info, warning or error"
    )
    clustercheck_log_format: Literal["text", "json"] = Field(
        "text", description="text or json"
    )

    def database(self) -> Database:
        """Return the database settings, for the poller. Raises `SettingsError`."""
        if self.mysql_password is not None and self.mysql_password_file is not None:
            raise SettingsError(
                "MYSQL_PASSWORD and MYSQL_PASSWORD_FILE are both set: set one"
            )
        given = {name.removeprefix("mysql_"): getattr(self, name) for name in DATABASE}
        if self.mysql_password is not None:
            given["password"] = self.mysql_password.get_secret_value()
        return Database(**given)

    def policy(self) -> Policy:
        """Return the policy for health checks that do not override it. Raises `SettingsError`."""
        if self.max_sync_wait is not None and not self.clustercheck_login_interval:
            raise SettingsError(
                "MAX_SYNC_WAIT: with CLUSTERCHECK_LOGIN_INTERVAL=0 nothing reads in sync"
            )
        return Policy(**{name: getattr(self, name) for name in POLICY})

    def require_usable(self) -> None:
        """Raise `SettingsError` if the settings give no login, or exclude each other.

        Every connection reads the files: a wrong path would only show as a 503.
        """
        self.database().target()
        self.policy()


DATABASE = [
    name for name in Settings.model_fields if name.startswith(("mysql_", "defaults_"))
]
"""The settings of the database."""

POLICY = [field.name for field in fields(Policy)]
"""The settings of the policy, which a query overrides by the same names."""

LISTENING = ["clustercheck_host", "clustercheck_port"]
"""The settings of the service's address."""

_LIKE_OURS = (
    "CLUSTERCHECK_",
    *(f"{name.upper().rpartition('_')[0]}_" for name in POLICY),
    # Close to a name of ours, and used by other programs.
    *("MYSQL_USER", "MYSQL_PASS", "MYSQL_SSL"),
)
"""How a misspelt setting may begin. All other names in the environment are of other programs."""


def flag_of(name: str) -> str:
    """Return the flag that sets a field of `Settings`."""
    return "--" + name.removeprefix("clustercheck_").removeprefix("poll_").replace(
        "_", "-"
    )


_MEANT = {
    **{
        flag_of(name)[2:].replace("-", "_").upper(): name.upper()
        for name in Settings.model_fields
    },
    **{name.upper(): name.upper() for name in Settings.model_fields},
    _ENV_FILE_VARIABLE: _ENV_FILE_VARIABLE,
}
"""Each setting by its name, and by that of its flag."""


def default_of(name: str) -> str:
    """Return the default of a field of `Settings` as it is typed; empty for None."""
    default = Settings.model_fields[name].default
    if isinstance(default, bool):
        return str(int(default))
    return "" if default is None else str(default)


def load_settings(
    flags: Mapping[str, str],
    env_file: str | None = None,
    only: Collection[str] | None = None,
    *,
    strict: bool = False,
) -> tuple[Settings, list[str]]:
    """Read flags, environment and env file; return the settings and warnings, one line each.

    flags: field to the text that was typed. only: the fields that the caller uses; a mistake
    elsewhere in the env file is then a warning. strict: a name in it that is no setting is a
    mistake. Raises `SettingsError`.
    """
    in_file, others, mistakes = read_variables(flags, env_file)
    like_ours = [each for each in others if each.name.upper().startswith(_LIKE_OURS)]
    warnings = misspelt(like_ours, _MEANT)
    warnings += repetitions(in_file, _MEANT)
    (mistakes if strict else warnings).extend(misspelt(in_file, _MEANT))
    if only is not None:
        warnings += mistakes
        mistakes = []
    return settings_of(
        [*in_file, *others], only or Settings.model_fields, mistakes
    ), warnings


Load = Callable[..., tuple[Settings, list[str]]]
"""`load_settings` with the flags and the env file that were typed."""


def read_variables(
    flags: Mapping[str, str], env_file: str | None
) -> tuple[list[Variable], list[Variable], list[str]]:
    """Return the variables of the env file, others, which take precedence, and mistakes."""
    if env_file is None:
        env_file = os.environ.get(_ENV_FILE_VARIABLE) or ENV_FILE
    in_file, mistakes = read_env_file(env_file) if env_file else ([], [])
    environ = [Variable(name, value) for name, value in sorted(os.environ.items())]
    typed = [
        Variable(name.upper(), value, flag_of(name)) for name, value in flags.items()
    ]
    return in_file, [*environ, *typed], mistakes


def sources(flags: Mapping[str, str], env_file: str | None) -> dict[str, Variable]:
    """Return the variable that decides each field of `Settings` that has one."""
    in_file, others, _ = read_variables(flags, env_file)
    return effective([*in_file, *others])


def effective(
    variables: Iterable[Variable], only: Collection[str] = Settings.model_fields
) -> dict[str, Variable]:
    """Return the variable that decides each field of `Settings` that has one."""
    used: dict[str, Variable] = {}
    for variable in variables:
        field = variable.name.lower()
        if field in only and (variable.value or field in _NEVER_EMPTY):
            used[field] = variable
    return used


def settings_of(
    variables: Iterable[Variable],
    only: Collection[str] = Settings.model_fields,
    mistakes: Sequence[str] = (),
) -> Settings:
    """Return the settings of variables. Raises `SettingsError`, with the mistakes found before."""
    settings = _validated(effective(variables, only), mistakes)
    if mistakes:
        raise SettingsError(*mistakes)
    return settings


def overridden(policy: Policy, values: Mapping[str, str]) -> Policy:
    """Return policy with other values for some of its fields. Raises `SettingsError`."""
    settings = _validated(
        {name: Variable(name, value) for name, value in values.items()}
    )
    return replace(policy, **{name: getattr(settings, name) for name in values})


def _validated(used: Mapping[str, Variable], mistakes: Sequence[str] = ()) -> Settings:
    try:
        return Settings.model_validate({field: used[field].value for field in used})
    except ValidationError as fault:
        lines = [_line(error, used[str(error["loc"][0])]) for error in fault.errors()]
        raise SettingsError(*mistakes, *lines) from None


def _line(error: ErrorDetails, variable: Variable) -> str:
    """Say what is wrong with a value, and where it is set."""
    value = one_line(variable.value)
    allowed = _MUST_BE[error["type"]].format(**error.get("ctx", {})).replace("'", "")
    # A password may be in the wrong one of these, or in a line that lacks its end.
    if variable.name.upper().startswith("MYSQL_") or {"=", "@"} & set(value):
        value = "(not repeated here)"
        allowed = allowed.partition(": ")[0]
    # A duration out of its bounds is often one in milliseconds.
    unit = " s" if isinstance(error["input"], float) else ""
    return f"{variable.called}: {value}: must be {allowed}{unit}"
