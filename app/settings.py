"""The settings: environment variables, a flag each, and an env file, read once into a frozen model."""

import argparse
import os
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, CliSettingsSource, SettingsConfigDict

from app.database.login import Database
from app.database.settings_error import DatabaseSettingsError
from app.monitor import oldest_usable_seconds
from app.switches import DISABLED_FILE
from app.variables import EnvFileError, Variable, misspelt_names, read_env_file, variables_of
from app.verdict import Policy

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

IPNetwork = IPv4Network | IPv6Network

_ENV_FILE_FLAG = "--env-file"
_ENV_FILE_VARIABLE = "CLUSTERCHECK_ENV_FILE"


_IPV4_MAPPED = IPv6Network("::ffff:0:0/96")
_NEVER_EMPTY = ("CLUSTERCHECK_ALLOW_FROM", "CLUSTERCHECK_DISABLED_FILE")


class SettingsError(Exception):
    """Settings that cannot be used; the message has one line for each, naming the setting."""


class _Flags(BaseSettings):
    """Tells load balancers whether a Galera node may take traffic: 200 or 503 over HTTP, with the reason."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="ignore",
        # An empty variable is what an env file or a unit file leaves behind: not set.
        env_ignore_empty=True,
        cli_kebab_case=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
        cli_show_env_vars=True,
    )

    mysql_socket: str | None = Field(None, description="the server's unix socket; found in the usual places if not set")
    mysql_host: str | None = Field(
        None,
        description="the server's address, for TCP; localhost means the socket, unless MYSQL_PORT is set",
    )
    mysql_port: int | None = Field(
        None,
        ge=1,
        le=65535,
        description="the server's port (3306); where it is set, TCP is used, to this machine if no host is set",
    )
    mysql_username: str | None = Field(None, description="the account to log in with (the user this runs as)")

    mysql_password_file: str | None = Field(
        None,
        description="a file that holds the password, read at every connect: a rotated one needs no restart",
    )
    defaults_extra_file: str | None = Field(
        None,
        description="an option file of the mysql client; its [client] group applies where a setting is missing, its TLS"
        " options only where no MYSQL_SSL* is set",
    )
    mysql_ssl: bool | None = Field(
        None,
        description="1: never connect over TCP without TLS (1 where another MYSQL_SSL_* is set)",
    )
    mysql_ssl_ca: str | None = Field(None, description="certificates to trust, a PEM file (the system's)")
    mysql_ssl_cert: str | None = Field(None, description="our own certificate, a PEM file")
    mysql_ssl_key: str | None = Field(None, description="its key, a PEM file (in the same file)")
    mysql_ssl_verify: Literal["identity", "ca", "none"] = Field(
        "identity",
        description="what to check of the server's certificate: issuer and host name, issuer only, nothing",
    )

    available_when_donor: bool = Field(
        default=False,
        description="1: a donor or desynced node takes traffic, wsrep_local_state 2, or 3 where wsrep_ready is ON",
    )
    available_when_readonly: bool = Field(default=True, description="0: a read-only node takes no traffic")
    available_when_full: bool = Field(
        default=True,
        description="0: a node at max_connections takes no new traffic; its sessions stay",
    )
    max_recv_queue: int | None = Field(
        None,
        ge=0,
        description="the most write-sets wsrep_local_recv_queue may hold before the node counts as lagging (no limit)",
    )

    clustercheck_disabled_file: str = Field(
        DISABLED_FILE,
        description="an absolute path; while this file exists or cannot be looked for, the node takes no traffic",
    )
    clustercheck_drain_status: Literal["404", "503"] = Field(
        "503",
        description="the status of a node that is unavailable in a planned way; 404 suits http-check disable-on-404",
    )
    clustercheck_drain_seconds: float = Field(
        0,
        ge=0,
        le=3600,
        allow_inf_nan=False,
        description="how long to answer shutting-down after SIGTERM before ending",
    )
    clustercheck_poll_interval: float = Field(
        0.25,
        ge=0.05,
        le=60,
        allow_inf_nan=False,
        description="seconds from the beginning of one observation to the next",
    )
    clustercheck_deadline: float = Field(
        0.8,
        ge=0.05,
        le=60,
        allow_inf_nan=False,
        description="seconds one observation may take in all: connect, login and queries",
    )
    clustercheck_host: str = Field("*", description="the address to listen on; * is every IPv4 and IPv6 address")
    clustercheck_port: int = Field(9200, ge=0, le=65535, description="the port to listen on; 0 takes a free one")
    clustercheck_allow_from: str | None = Field(
        None,
        description="addresses and networks that may connect, as in 10.0.0.0/8 fd00::/8; others are closed (all)",
    )
    clustercheck_any_path: bool = Field(
        default=False,
        description="1: paths that are no endpoint get the verdict too, as from the clustercheck script",
    )
    clustercheck_log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="what to log")
    clustercheck_log_format: Literal["text", "json"] = Field("text", description="how to write a line of the log")


class Settings(_Flags):
    """All settings; those added here have no flag, because a command line can be read by everybody on the host."""

    mysql_password: SecretStr | None = Field(None, description="the account's password; none with unix_socket")

    @field_validator("clustercheck_disabled_file")
    @classmethod
    def _absolute(cls, value: str) -> str:
        # Otherwise it would depend on where each command is started.
        if not value.startswith("/"):
            message = f"must be an absolute path, as {DISABLED_FILE}"
            raise ValueError(message)
        return value

    @field_validator("clustercheck_allow_from")
    @classmethod
    def _networks(cls, value: str | None) -> str | None:
        if value is not None and not _networks_in(value):
            message = "names no network: nobody could connect (0.0.0.0/0 ::/0 lets everybody in)"
            raise ValueError(message)
        return value

    @model_validator(mode="after")
    def _one_password(self) -> Self:
        if self.mysql_password is not None and self.mysql_password_file is not None:
            message = "MYSQL_PASSWORD and MYSQL_PASSWORD_FILE are both set: set one"
            raise ValueError(message)
        return self

    def database(self) -> Database:
        """Give what the observer is to connect to."""
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
        """Raise `SettingsError` where the database settings lead nowhere.

        What is read anew at every connect must be readable at the start: better a clear end than a puzzling 503.
        """
        try:
            self.database().login()
        except DatabaseSettingsError as fault:
            raise SettingsError(str(fault)) from None

    def allowed_networks(self) -> list[IPNetwork] | None:
        """Give the networks that may connect; None for all."""
        if self.clustercheck_allow_from is None:
            return None
        return _networks_in(self.clustercheck_allow_from)

    def policy(self) -> Policy:
        """Give what decides where no request overrides it."""
        return Policy(
            max_age_seconds=oldest_usable_seconds(self.clustercheck_poll_interval, self.clustercheck_deadline),
            available_when_donor=self.available_when_donor,
            available_when_readonly=self.available_when_readonly,
            available_when_full=self.available_when_full,
            max_recv_queue=self.max_recv_queue,
        )


def load_settings(
    arguments: Sequence[str], parser: argparse.ArgumentParser
) -> tuple[Settings, argparse.Namespace, list[str]]:
    """Read flags, environment and env file; return the settings, what else the parser knows of, and warnings.

    parser is the program's own; a flag for every setting is added to it. Each warning is a line about a name that is
    not a setting. Raises `SettingsError`, and exits as argparse does for --help and for unknown flags.
    """
    parser.formatter_class = _HelpFormatter
    # Or else --mysql-password would be taken for --mysql-password-file.
    parser.allow_abbrev = False
    parser.epilog = (
        f"Without a flag, because a command line can be read by everybody: MYSQL_PASSWORD. For {_ENV_FILE_FLAG}:"
        f" {_ENV_FILE_VARIABLE}."
    )
    parser.add_argument(
        _ENV_FILE_FLAG, metavar="FILE", help="read NAME=value lines from here; variables go before them"
    )
    flags: CliSettingsSource[argparse.ArgumentParser] = CliSettingsSource(_Flags, root_parser=parser)
    # Options may stand between the arguments of a command: status --json db1.
    parsed = parser.parse_intermixed_args(arguments)
    env_file = parsed.env_file or os.environ.get(_ENV_FILE_VARIABLE) or None
    if env_file is not None and not os.path.isfile(env_file):  # noqa: PTH113 (Path.is_file may raise)
        message = f"{_ENV_FILE_VARIABLE}: there is no file {env_file}"
        raise SettingsError(message)
    environ = variables_of(os.environ)
    try:
        in_file = read_env_file(env_file) if env_file else []
        _refuse_empty([*environ, *in_file])
        # The program's own arguments would be parsed as well, lists as if they were JSON.
        given = {name: value for name, value in vars(parsed).items() if name in _Flags.model_fields}
        # Not in the signature that pydantic makes up for type checkers.
        settings = Settings(_env_file=env_file, _cli_settings_source=flags(parsed_args=given))  # type: ignore[call-arg]
    except EnvFileError as fault:
        message = "\n".join(f"{_ENV_FILE_VARIABLE}: {line}" for line in str(fault).splitlines())
        raise SettingsError(message) from None
    except ValidationError as fault:
        raise SettingsError("\n".join(_line(error) for error in fault.errors())) from None
    known = [*(name.upper() for name in Settings.model_fields), _ENV_FILE_VARIABLE]
    return settings, parsed, misspelt_names(environ, in_file, known)


def _networks_in(words: str) -> list[IPNetwork]:
    return [_as_clients_have_it(ip_network(word)) for word in words.replace(",", " ").split()]


def _as_clients_have_it(network: IPNetwork) -> IPNetwork:
    """Return an IPv4-mapped network, as ::ffff:10.0.0.0/104, as the IPv4 one that its clients are compared with."""
    if not isinstance(network, IPv6Network) or not network.subnet_of(_IPV4_MAPPED):
        return network
    return IPv4Network((int(network.network_address) & 0xFFFF_FFFF, network.prefixlen - _IPV4_MAPPED.prefixlen))


def _refuse_empty(variables: Iterable[Variable]) -> None:
    """Raise `SettingsError` for an empty variable that, taken as not set, might do the opposite of what is meant."""
    for variable in variables:
        if variable.name in _NEVER_EMPTY and not variable.value:
            message = f"{variable.where}{variable.name} is set but empty: give it a value or remove it"
            raise SettingsError(message)


class _HelpFormatter(argparse.HelpFormatter):
    def _expand_help(self, action: argparse.Action) -> str:
        # What None stands for is said in each description.
        return super()._expand_help(action).replace(" (default: None)", "")


def _line(error: "ErrorDetails") -> str:
    said = error["msg"].removeprefix("Value error, ")
    if not error["loc"]:
        return said
    field = str(error["loc"][0])
    name = field.upper()
    said = said[:1].lower() + said[1:]
    if field not in _Flags.model_fields:
        return f"{name}: {said}"
    value = str(error["input"])
    line = f"{name}={value}: {said}"
    if value.startswith(("tcp://", "udp://")):
        line += " (Kubernetes sets this variable for a Service of that name: enableServiceLinks: false stops it)"
    return line
