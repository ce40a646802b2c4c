"""The command line: a command, then its flags, and one line for each mistake.

A flag sets what the variable of its name sets: `--mysql-host` is MYSQL_HOST, `--port` is CLUSTERCHECK_PORT.
"""

import argparse
import difflib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, get_args

from app import __version__
from app.commands.output import say
from app.settings import WITHOUT_FLAG, Settings, default_of, flag_of
from app.settings_error import SettingsError

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

_PROGRAM = "clustercheckd"
_HOW_CLOSE = 0.7
# Anything else may be a secret in the wrong place: it is not repeated.
_HARMLESS = re.compile(r"-[A-Za-z]|--?[a-z-]{0,40}|[a-z]{2,12}")
_PASSWORD_FLAG = re.compile(r"-p(?!ort\b).*|--(?i:(mysql[-_]?)?(pass?wor[dt]|passwd|pass|pwd|pw))", re.DOTALL)

_SERVER = tuple(name for name in Settings.model_fields if name.startswith(("mysql_", "defaults_")))
_POLICY = ("available_when_donor", "available_when_readonly", "available_when_full", "max_recv_queue")


class Parser(argparse.ArgumentParser):
    """argparse's parser, but each mistake is a `SettingsError` of one line."""

    def __init__(self, command: str, about: str, words: str = "") -> None:
        self._command = command
        super().__init__(
            prog=f"{_PROGRAM} {command}",
            usage=f"{_PROGRAM} {command} [FLAG ...]{words}",
            description=f"{about[0].upper()}{about[1:]}.",
            formatter_class=partial(argparse.HelpFormatter, max_help_position=34, width=80),
            # --mysql-password would be taken for --mysql-password-file.
            allow_abbrev=False,
            add_help=False,
        )
        self._optionals.title = "flags"
        self.add_argument("--help", "-h", action="help", help="print this help")

    def print_help(self, file: "SupportsWrite[str] | None" = None) -> None:
        """Print the help, and report a failure."""
        del file
        say(self.format_help().rstrip())

    def error(self, message: str) -> NoReturn:
        """Raise `SettingsError`, with what to run for help."""
        found = re.match(r"argument (--[a-z-]+).*?: (expected|ignored)", message)
        if found:
            message = f"{found[1]} {'needs a value' if found[2] == 'expected' else 'takes no value'}"
        full = f"{message}; for help, run: {self.prog} --help"
        raise SettingsError(full)

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse the arguments after the command. Raises `SettingsError`."""
        given, unknown = self.parse_known_intermixed_args(arguments)
        for action in self._actions:
            if getattr(given, action.dest, None) == "":
                self.error(f"{action.option_strings[0]} needs a value")
        if unknown:
            # What follows an unknown flag is probably its value.
            self._refuse(next((one for one in unknown if one.startswith("-")), unknown[0]))
        return given

    def flags(self) -> list[str]:
        """Return the long flags."""
        return [name for action in self._actions for name in action.option_strings if name.startswith("--")]

    def _refuse(self, argument: str) -> NoReturn:
        flag = argument.partition("=")[0]
        if _PASSWORD_FLAG.fullmatch(flag):
            self.error("every user of this host can read a command line: set MYSQL_PASSWORD_FILE")
        if argument.startswith("-"):
            close = _close_to(flag.replace("--clustercheck-", "--"), self.flags())
            self.error(f"{self._command} has no flag {_shown(flag)}{close}")
        self.error(f"{self._command} works on this host and takes flags only, after the command")


@dataclass(frozen=True, slots=True)
class Command:
    """A word after `clustercheckd`.

    settings: the fields of `Settings` that it has flags for. own: adds its other arguments. words: those without a
    flag, for its usage.
    """

    about: str
    settings: Collection[str] = ()
    own: Callable[[Parser], object] = lambda _: None
    words: str = ""


def _json(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _status(parser: Parser) -> None:
    _json(parser)
    parser.add_argument("--watch", action="store_true", help="ask every second until Ctrl-C")
    parser.add_argument(
        "addresses", nargs="*", metavar="HOST[:PORT]", help="a service (default: the one configured on this host)"
    )


def _reason(parser: Parser) -> None:
    parser.add_argument("--reason", metavar="TEXT", help="why, for /status, the log and who looks at the file")


MIGRATE = "migrate"
COMMANDS = {
    "serve": Command("run the service: poll the node, and answer health checks (default)", Settings.model_fields),
    "check": Command(
        "poll the node once, as the service would, and print the verdict",
        (*_SERVER, *_POLICY, "clustercheck_disabled_file", "clustercheck_deadline"),
        _json,
    ),
    "status": Command(
        "ask running services, and print a row for each",
        ("clustercheck_host", "clustercheck_port"),
        _status,
        " [HOST[:PORT] ...]",
    ),
    "drain": Command(
        "remove the node of this host from the pool", ("clustercheck_disabled_file", "clustercheck_port"), _reason
    ),
    "undrain": Command("return the node of this host to the pool", ("clustercheck_disabled_file", "clustercheck_port")),
    MIGRATE: Command("print the clustercheck script's settings as an env file"),
}


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What was typed. settings: field of `Settings` to text. own: the command's other arguments.

    rest: all arguments of migrate.
    """

    command: str
    settings: Mapping[str, str]
    env_file: str | None
    own: Mapping[str, Any]
    rest: Sequence[str] = ()


def parse(arguments: Sequence[str]) -> CommandLine:
    """Parse a command line. Raises `SettingsError`; prints --help and --version and exits."""
    first, rest = (arguments[0], arguments[1:]) if arguments else ("serve", ())
    if first in ("--help", "-h", "help", "--version"):
        say(f"{_PROGRAM} {__version__}" if first == "--version" else help_text())
        raise SystemExit(0)
    if first.startswith("-"):
        first, rest = "serve", arguments
    if first == MIGRATE:
        return CommandLine(first, {}, None, {}, rest)
    if first not in COMMANDS:
        raise SettingsError(
            f"{_shown(first)} is not a command{_close_to(first, COMMANDS)}; for help, run: {_PROGRAM} --help"
        )
    own = vars(parser_of(first).parse(rest))
    settings = {name: own.pop(name) for name in COMMANDS[first].settings if name in own}
    return CommandLine(first, settings, own.pop("env_file"), own)


def help_text() -> str:
    """Return what `clustercheckd --help` prints."""
    commands = "\n".join(f"  {name:<9}{command.about}" for name, command in COMMANDS.items())
    return (
        f"usage: {_PROGRAM} [COMMAND] [FLAG ...]\n\n"
        "Tells load balancers whether a Galera node may take traffic: 200 or 503, with\n"
        f"the reason.\n\ncommands:\n{commands}\n\n"
        f"`{_PROGRAM} COMMAND --help` lists the flags of a command. A flag sets what\n"
        "the environment variable of its name sets: --mysql-host is MYSQL_HOST, --port\n"
        "is CLUSTERCHECK_PORT. Only the password has no flag: set MYSQL_PASSWORD_FILE.\n"
        f"`{_PROGRAM} --version` prints the version."
    )


def parser_of(name: str) -> Parser:
    """Return the parser of a command other than migrate."""
    command = COMMANDS[name]
    parser = Parser(name, command.about, command.words)
    parser.add_argument("--env-file", metavar="FILE", help="file of NAME=value lines")
    command.own(parser)
    for setting in command.settings:
        if setting not in WITHOUT_FLAG:
            _add_flag(parser, setting)
    return parser


def _add_flag(parser: Parser, setting: str) -> None:
    flag, field, default = flag_of(setting), Settings.model_fields[setting], default_of(setting)
    text = f"{field.description}{f' (default: {default})' if default else ''}"
    if bool in (field.annotation, *get_args(field.annotation)):
        add = partial(parser.add_argument, dest=setting, default=argparse.SUPPRESS)
        add(flag, nargs="?", const="1", metavar="0|1", help=text)
        add(flag.replace("--", "--no-", 1), action="store_const", const="0", help=argparse.SUPPRESS)
    else:
        metavar = setting.rpartition("_")[2].upper()
        parser.add_argument(flag, dest=setting, metavar=metavar, default=argparse.SUPPRESS, help=text)


def _shown(word: str) -> str:
    return word if _HARMLESS.fullmatch(word) else "(not repeated here)"


def _close_to(word: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(word.lower(), known, n=1, cutoff=_HOW_CLOSE)
    return f": did you mean {close[0]}?" if close else ""
