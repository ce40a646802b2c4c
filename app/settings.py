"""The settings: flags, environment variables and an env file, read once into a frozen model."""

import os
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TYPE_CHECKING, Annotated, Literal, Self, get_args

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from app.database.login import Database
from app.database.settings_error import DatabaseSettingsError
from app.durations import seconds_in
from app.monitor import oldest_usable_seconds
from app.node_state import one_line
from app.switches import DISABLED_FILE
from app.variables import EnvFileError, Variable, misspelt_names, read_env_file, variables_of
from app.verdict import Policy

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

IPNetwork = IPv4Network | IPv6Network

_ENV_FILE_FLAG = "--env-file"
_ENV_FILE_VARIABLE = "CLUSTERCHECK_ENV_FILE"

MOST_PORT = 65535
WITHOUT_FLAG = ("mysql_password",)
"""Every user of the host can read a command line."""

TRUE_WORDS, FALSE_WORDS = ("1", "yes", "true", "on"), ("0", "no", "false", "off")

_IPV4_MAPPED = IPv6Network("::ffff:0:0/96")
_NEVER_EMPTY = ("CLUSTERCHECK_ALLOW_FROM", "CLUSTERCHECK_DISABLED_FILE")


class SettingsError(Exception):
    """Settings that cannot be used; the message has one line for each mistake and names the setting."""


def _seconds(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return seconds_in(value)
    except ValueError as fault:
        message = f"{one_line(value)} {fault}"
        raise ValueError(message) from None


Seconds = Annotated[float, BeforeValidator(_seconds)]
"""A duration."""


class Settings(BaseSettings):
    """All settings; the environment variables have the fields' names."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="ignore",
        # An empty variable is what an env file or a unit file leaves behind: not set.
        env_ignore_empty=True,
    )

    mysql_socket: str | None = Field(None, description="unix socket (default: the first usual place)")
    mysql_host: str | None = Field(None, description="the server's name or address, for TCP")
    mysql_port: int | None = Field(
        None, ge=1, le=MOST_PORT, description="the server's port (3306); if set, TCP is used"
    )
    mysql_username: str | None = Field(None, description="account (default: clustercheckd's own user)")
    mysql_password: SecretStr | None = Field(None, description="the account's password; none with unix_socket")
    mysql_password_file: str | None = Field(None, description="file that contains the password")
    defaults_extra_file: str | None = Field(None, description="option file of the mysql client, for [client]")
    mysql_ssl: bool | None = Field(None, description="require TLS; other MYSQL_SSL_* imply it")
    mysql_ssl_ca: str | None = Field(None, description="certificates to trust (default: the system's)")
    mysql_ssl_cert: str | None = Field(None, description="client certificate, PEM")
    mysql_ssl_key: str | None = Field(None, description="its key, PEM (default: in the same file)")
    mysql_ssl_verify: Literal["identity", "ca", "none"] = Field("identity", description="verify identity, ca or none")

    available_when_donor: bool = Field(default=False, description="accept a donor or desynced node")
    available_when_readonly: bool = Field(default=True, description="accept a read-only node")
    available_when_full: bool = Field(default=True, description="accept a node at max_connections")
    max_recv_queue: int | None = Field(None, ge=0, description="longest receive queue (default: no limit)")

    clustercheck_disabled_file: str = Field(DISABLED_FILE, description="the node is drained while this file exists")
    clustercheck_drain_status: Literal["404", "503"] = Field("503", description="HTTP status for planned reasons")
    clustercheck_drain_seconds: Seconds = Field(0, ge=0, le=3600, description="how long to drain after SIGTERM")
    clustercheck_poll_interval: Seconds = Field(0.25, ge=0.05, le=60, description="how often to poll the server")
    clustercheck_login_interval: Seconds = Field(
        2, ge=0, le=3600, description="how often to log in again; 0 keeps one session"
    )
    clustercheck_deadline: Seconds = Field(0.8, ge=0.05, le=60, description="time that one poll may take")
    clustercheck_host: str = Field("*", description="the service's address; * is all")
    clustercheck_port: int = Field(9200, ge=0, le=MOST_PORT, description="the service's port; 0 is any")
    clustercheck_allow_from: str | None = Field(None, description="clients, e.g. 10.0.0.0/8 (default: everybody)")
    clustercheck_any_path: bool = Field(default=False, description="return the verdict on every path")
    clustercheck_log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="debug, info, warning or error"
    )
    clustercheck_log_format: Literal["text", "json"] = Field("text", description="text or json")

    @field_validator("clustercheck_disabled_file")
    @classmethod
    def _absolute(cls, value: str) -> str:
        # Otherwise it would depend on where each command is started.
        if not value.startswith("/"):
            message = f"{one_line(value)} is not an absolute path; example: {DISABLED_FILE}"
            raise ValueError(message)
        return value

    @field_validator("clustercheck_host")
    @classmethod
    def _without_port(cls, value: str) -> str:
        host, colon, port = value.rpartition(":")
        if colon and port.isdecimal() and (":" not in host or host.endswith("]")):
            bare = one_line(host.strip("[]")) or "*"
            message = f"{one_line(value)} contains a port: set CLUSTERCHECK_HOST={bare} and CLUSTERCHECK_PORT={port}"
            raise ValueError(message)
        return value

    @field_validator("clustercheck_allow_from")
    @classmethod
    def _networks(cls, value: str | None) -> str | None:
        if value is not None and not _networks_in(value):
            message = f"{one_line(value)!r} contains no network: nobody could connect; to allow everybody, remove it"
            raise ValueError(message)
        return value

    @model_validator(mode="after")
    def _one_password(self) -> Self:
        if self.mysql_password is not None and self.mysql_password_file is not None:
            message = "MYSQL_PASSWORD and MYSQL_PASSWORD_FILE are both set: set one"
            raise ValueError(message)
        return self

    def database(self) -> Database:
        """Return the database settings, for the poller."""
        return Database(
            socket=self.mysql_socket,
            host=self.mysql_host,
            port=self.mysql_port,
            username=self.mysql_username,
            password=self.mysql_password.get_secret_value() if self.mysql_password else None,
            password_file=self.mysql_password_file,
            defaults_extra_file=self.defaults_extra_file,
            tls=self.mysql_ssl,
            ssl_ca=self.mysql_ssl_ca,
            ssl_cert=self.mysql_ssl_cert,
            ssl_key=self.mysql_ssl_key,
            # The default leaves it to the option file.
            ssl_verify=self.mysql_ssl_verify if "mysql_ssl_verify" in self.model_fields_set else None,
        )

    def require_login(self) -> None:
        """Raise `SettingsError` if the database settings give no login.

        Every connection reads the files again. Without this check, a wrong path would not stop the start, and would
        only show as a 503.
        """
        try:
            self.database().login()
        except DatabaseSettingsError as fault:
            raise SettingsError(str(fault)) from None

    def allowed_networks(self) -> list[IPNetwork] | None:
        """Return the networks that may connect; None for all."""
        if self.clustercheck_allow_from is None:
            return None
        return _networks_in(self.clustercheck_allow_from)

    def policy(self) -> Policy:
        """Return the policy for health checks that do not override it."""
        return Policy(
            max_age_seconds=oldest_usable_seconds(self.clustercheck_poll_interval, self.clustercheck_deadline),
            available_when_donor=self.available_when_donor,
            available_when_readonly=self.available_when_readonly,
            available_when_full=self.available_when_full,
            max_recv_queue=self.max_recv_queue,
        )


DURATIONS = [name for name, field in Settings.model_fields.items() if field.annotation is float]


def flag_of(name: str) -> str:
    """Return the flag that sets a field of `Settings`."""
    return "--" + name.removeprefix("clustercheck_").removeprefix("poll_").replace("_", "-")


def default_of(name: str) -> str:
    """Return the default of a field of `Settings` as it is typed; empty for None."""
    value = Settings.model_fields[name].default
    return "" if value is None else str(int(value) if isinstance(value, bool) else value)


def load_settings(flags: Mapping[str, str], env_file: str | None = None) -> tuple[Settings, list[str]]:
    """Read flags, environment and env file; return the settings and warnings.

    flags: field to the text that was typed. Each warning is a line about a name that is not a setting. Raises
    `SettingsError`.
    """
    where = _ENV_FILE_FLAG if env_file is not None else _ENV_FILE_VARIABLE
    if env_file is None:
        env_file = os.environ.get(_ENV_FILE_VARIABLE) or None
    if env_file is not None and not os.path.isfile(env_file):  # noqa: PTH113 (Path.is_file may raise)
        # Not a pipe either: the file is read twice.
        words = "is not a regular file" if os.path.exists(env_file) else "does not exist"  # noqa: PTH110
        message = f"{where}: {one_line(env_file)} {words}"
        raise SettingsError(message)
    environ = variables_of(os.environ)
    typed = [Variable(name.upper(), value, flag=flag_of(name)) for name, value in flags.items()]
    try:
        in_file = read_env_file(env_file) if env_file else []
        _refuse_empty([*environ, *in_file])
        # Not in the signature that pydantic makes up for type checkers.
        settings = Settings(_env_file=env_file, **flags)  # type: ignore[call-arg, arg-type]
    except EnvFileError as fault:
        message = "\n".join(f"{where}: {line}" for line in str(fault).splitlines())
        raise SettingsError(message) from None
    except ValidationError as fault:
        given = {variable.name: variable for variable in (*in_file, *environ, *typed) if variable.value}
        raise SettingsError("\n".join(_line(error, given) for error in fault.errors())) from None
    known = [*(name.upper() for name in Settings.model_fields), _ENV_FILE_VARIABLE]
    return settings, misspelt_names(environ, in_file, known)


def _networks_in(words: str) -> list[IPNetwork]:
    return [_as_clients_have_it(_network(word)) for word in words.replace(",", " ").split()]


def _network(word: str) -> IPNetwork:
    try:
        return ip_network(word)
    except ValueError:
        try:
            meant = ip_network(word, strict=False)
        except ValueError:
            message = f"{one_line(word)} is not an address or a network; example: 10.0.0.21 10.1.0.0/16"
        else:
            message = f"{word} has host bits set: did you mean {meant}, or the address {word.partition('/')[0]}?"
        raise ValueError(message) from None


def _as_clients_have_it(network: IPNetwork) -> IPNetwork:
    """Return an IPv4-mapped network, as ::ffff:10.0.0.0/104, as the IPv4 one that its clients are compared with."""
    if not isinstance(network, IPv6Network) or not network.subnet_of(_IPV4_MAPPED):
        return network
    return IPv4Network((int(network.network_address) & 0xFFFF_FFFF, network.prefixlen - _IPV4_MAPPED.prefixlen))


def _refuse_empty(variables: Iterable[Variable]) -> None:
    """Raise `SettingsError` for an empty value that, taken as not set, might do the opposite of what is meant."""
    for variable in variables:
        if variable.name in _NEVER_EMPTY and not variable.value:
            message = f"{variable.called} is set but empty: set a value or remove it"
            raise SettingsError(message)


def _line(error: "ErrorDetails", given: Mapping[str, Variable]) -> str:
    """Say what is wrong with a value: where it is set, the value unless it is secret, and what fits."""
    said = error["msg"].removeprefix("Value error, ")
    if not error["loc"]:
        return said
    field = str(error["loc"][0])
    variable = given.get(field.upper(), Variable(field.upper(), ""))
    if field in WITHOUT_FLAG:
        return f"{variable.called}: {said}"
    value = one_line(variable.value)
    if value.startswith(("tcp://", "udp://")):
        return (
            f"{variable.called}: {value}: Kubernetes sets this variable for a Service of that name; in the pod's spec,"
            " set enableServiceLinks: false"
        )
    complaint = _complaint(error["type"], field)
    return f"{variable.called}: {value} {complaint}" if complaint else f"{variable.called}: {said}"


def _complaint(kind: str, field: str) -> str | None:
    if kind == "string_unicode":
        return "is not UTF-8"
    if kind.startswith(("int_", "float_")):
        return "is not a whole number"
    if kind.startswith("bool_"):
        return "is neither 1 (yes, true, on) nor 0 (no, false, off)"
    if kind == "literal_error":
        return f"is not one of {', '.join(get_args(Settings.model_fields[field].annotation))}"
    if kind in ("greater_than_equal", "less_than_equal"):
        return f"is out of range ({_range(field)})"
    return None


def _range(field: str) -> str:
    """Write the bounds of a number."""
    constraints = Settings.model_fields[field].metadata
    lowest = next(bound.ge for bound in constraints if hasattr(bound, "ge"))
    highest = next((bound.le for bound in constraints if hasattr(bound, "le")), None)
    if highest is None:
        return f"{lowest} or more"
    return f"{lowest}-{highest}{' seconds' if field in DURATIONS else ''}"
