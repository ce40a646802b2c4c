"""The settings: environment variables, a flag each, and an env file, read once into a frozen model."""

import argparse
import difflib
import os
from collections.abc import Mapping, Sequence
from ipaddress import ip_network
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, CliSettingsSource, SettingsConfigDict

from app.database.connection import Database, DatabaseSettingsError
from app.http.guard import IPNetwork
from app.monitor import SLACK_SECONDS
from app.switches import DISABLED_FILE
from app.verdict import Policy

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_ENV_FILE_FLAG = "--env-file"
_ENV_FILE_VARIABLE = "CLUSTERCHECK_ENV_FILE"
_OUR_PREFIXES = ("CLUSTERCHECK_", "AVAILABLE_WHEN_")


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
    mysql_host: str | None = Field(None, description="the server's address, for TCP; localhost means the socket")
    mysql_port: int | None = Field(None, ge=1, le=65535, description="the server's port (3306)")
    mysql_username: str | None = Field(None, description="the account to log in with (the user this runs as)")

    mysql_password_file: str | None = Field(
        None,
        description="a file that holds the password, read at every connect: a rotated one needs no restart",
    )
    defaults_extra_file: str | None = Field(
        None,
        description="an option file of the mysql client, whose [client] holds for what is not set here",
    )
    mysql_ssl: bool | None = Field(
        None,
        description="1: never connect over TCP without TLS (1 where MYSQL_SSL_CA or MYSQL_SSL_CERT is set)",
    )
    mysql_ssl_ca: str | None = Field(None, description="certificates to trust, a PEM file (the system's)")
    mysql_ssl_cert: str | None = Field(None, description="our own certificate, a PEM file")
    mysql_ssl_key: str | None = Field(None, description="its key, a PEM file")
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
        description="while this file exists, the node takes no traffic",
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
        description="addresses and networks that may connect, as in 10.0.0.0/8 fd00::/8; others are hung up on (all)",
    )
    clustercheck_any_path: bool = Field(
        default=False,
        description="1: paths that are no endpoint get the verdict too, as from the clustercheck script",
    )
    clustercheck_log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="what to log")


class Settings(_Flags):
    """All settings; those added here have no flag, because a command line can be read by everybody on the host."""

    mysql_password: SecretStr | None = Field(None, description="the account's password; none with unix_socket")

    @field_validator("clustercheck_allow_from")
    @classmethod
    def _networks(cls, value: str | None) -> str | None:
        words = (value or "").replace(",", " ").split()
        if value is not None and not words:
            message = "names no network: nobody could connect"
            raise ValueError(message)
        for word in words:
            ip_network(word)
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
        return [ip_network(word) for word in self.clustercheck_allow_from.replace(",", " ").split()]

    def policy(self) -> Policy:
        """Give what decides where no request overrides it."""
        return Policy(
            max_age_seconds=self.clustercheck_poll_interval + self.clustercheck_deadline + SLACK_SECONDS,
            available_when_donor=self.available_when_donor,
            available_when_readonly=self.available_when_readonly,
            available_when_full=self.available_when_full,
            max_recv_queue=self.max_recv_queue,
        )


def load_settings(arguments: Sequence[str], parser: argparse.ArgumentParser) -> tuple[Settings, argparse.Namespace]:
    """Read flags, environment and env file into the settings; give back what else the parser knows of as well.

    parser is the program's own; a flag for every setting is added to it. Raises `SettingsError`, and ends the process
    as argparse does for --help and for unknown flags.
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
    parsed = parser.parse_args(arguments)
    env_file = parsed.env_file or os.environ.get(_ENV_FILE_VARIABLE) or None
    if env_file is not None and not os.path.isfile(env_file):  # noqa: PTH113 (Path.is_file may raise)
        message = f"{_ENV_FILE_VARIABLE}: there is no file {env_file}"
        raise SettingsError(message)
    try:
        # Not in the signature that pydantic makes up for type checkers.
        settings = Settings(_env_file=env_file, _cli_settings_source=flags(parsed_args=parsed))  # type: ignore[call-arg]
    except ValidationError as fault:
        raise SettingsError("\n".join(_line(error) for error in fault.errors())) from None
    except (OSError, UnicodeError) as fault:
        message = f"{_ENV_FILE_VARIABLE}: {env_file}: {getattr(fault, 'strerror', None) or 'not UTF-8'}"
        raise SettingsError(message) from None
    return settings, parsed


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Name the variables that look like settings and are none, one line each: a misspelt setting changes nothing."""
    known = [name.upper() for name in Settings.model_fields] + [_ENV_FILE_VARIABLE]
    lines = []
    for name in sorted(environ):
        # Kubernetes sets variables of the latter kinds for every Service it knows.
        if not name.startswith(_OUR_PREFIXES) or name in known or "_SERVICE_" in name or "_PORT_" in name:
            continue
        near = difflib.get_close_matches(name, known, n=1)
        lines.append(f"{name} is not a setting and is ignored" + (f": did you mean {near[0]}?" if near else ""))
    return lines


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
