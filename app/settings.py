"""The settings: environment variables, a flag each, and an env file, read once into a frozen model."""

import argparse
import difflib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, CliSettingsSource, SettingsConfigDict

from app.database import Database
from app.monitor import SLACK_SECONDS
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
        "/var/tmp/clustercheck.disabled",  # noqa: S108 (the script's own place)
        description="while this file exists, the node takes no traffic",
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
    clustercheck_log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="what to log")


class Settings(_Flags):
    """All settings; those added here have no flag, because a command line can be read by everybody on the host."""

    mysql_password: SecretStr | None = Field(None, description="the account's password; none with unix_socket")

    def database(self) -> Database:
        """Give what the observer is to connect to."""
        return Database(
            socket=self.mysql_socket,
            host=self.mysql_host,
            port=self.mysql_port,
            username=self.mysql_username,
            password=self.mysql_password.get_secret_value() if self.mysql_password else None,
        )

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
    parser.add_argument(
        _ENV_FILE_FLAG, metavar="FILE", help="read NAME=value lines from here; variables go before them"
    )
    flags: CliSettingsSource[argparse.ArgumentParser] = CliSettingsSource(_Flags, root_parser=parser)
    parsed = parser.parse_args(arguments)
    env_file = parsed.env_file or os.environ.get(_ENV_FILE_VARIABLE) or None
    if env_file is not None and not Path(env_file).is_file():
        message = f"{_ENV_FILE_VARIABLE}: there is no file {env_file}"
        raise SettingsError(message)
    try:
        # Not in the signature that pydantic makes up for type checkers.
        return Settings(_env_file=env_file, _cli_settings_source=flags(parsed_args=parsed)), parsed  # type: ignore[call-arg]
    except ValidationError as fault:
        raise SettingsError("\n".join(_line(error) for error in fault.errors())) from None


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
    field = str(error["loc"][0]) if error["loc"] else ""
    name = field.upper()
    said = error["msg"][:1].lower() + error["msg"][1:]
    if field not in _Flags.model_fields:
        return f"{name}: {said}"
    value = str(error["input"])
    line = f"{name}={value}: {said}"
    if value.startswith(("tcp://", "udp://")):
        line += " (Kubernetes sets this variable for a Service of that name: enableServiceLinks: false stops it)"
    return line
