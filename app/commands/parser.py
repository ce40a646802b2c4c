"""The command line: a command, then its flags, and one line for each mistake.

A flag sets what the variable of its name sets: `--mysql-host` is MYSQL_HOST, `--port` is CLUSTERCHECK_PORT.
"""

import argparse
import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn, get_args

from app import __version__
from app.commands.exit_status import AVAILABLE, DONE, FAILED, MISUSED, NOT_AVAILABLE
from app.commands.output import say
from app.settings import DATABASE, POLICY, WITHOUT_FLAG, Settings, default_of, flag_of
from app.settings_error import SettingsError

_PROGRAM = "clustercheckd"
_HOW_CLOSE = 0.7
# Anything else may be a secret in the wrong place: it is not repeated.
_HARMLESS = re.compile(r"-[A-Za-z]|--?[a-z-]{0,40}|[a-z]{2,12}")
_PASSWORD_FLAG = re.compile(r"-p(?!ort\b).*|--(?i:(mysql[-_]?)?(pass?wor[dt]|passwd|pass|pwd|pw))", re.DOTALL)
_IN_WORDS = {"expected one argument": "needs a value", "ignored explicit argument": "takes no value"}
"""argparse's, and ours."""

_CHECK = (*DATABASE, *POLICY, "clustercheck_disabled_file", "clustercheck_deadline")
_DRAIN = ("clustercheck_disabled_file", "clustercheck_port")
_DRAIN_EXITS = {DONE: "the service sees the change", FAILED: "it does not, or the file cannot be changed"}
_MISUSED = "a setting or an argument cannot be used"
_TAKES = {
    "serve": "no arguments; a command comes before its flags",
    "drain": "no arguments; for a comment use --reason, for another node run it there",
    "migrate": "one PATH",
}
_JSON = {"--json": {"action": "store_true", "help": "print JSON"}}


@dataclass(frozen=True, slots=True)
class Command:
    """A word after `clustercheckd`.

    example: its arguments. exits: what the exit statuses mean, but for 2. settings: the fields of `Settings` that it
    has flags for. own: its other arguments, as for `add_argument`.
    """

    about: str
    example: str
    exits: Mapping[int, str]
    settings: Collection[str] = ()
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


COMMANDS = {
    "serve": Command(
        "run the service: poll the node, and answer health checks (default)",
        "--env-file /etc/clustercheckd/clustercheckd.env",
        {DONE: "after SIGTERM or Ctrl-C", MISUSED: f"{_MISUSED}, or the port is in use"},
        Settings.model_fields,
        {"--check-settings": {"action": "store_true", "help": "only say whether the settings can be used"}},
    ),
    "check": Command(
        "poll the node once, as the service would, and print the verdict",
        "--available-when-donor",
        {AVAILABLE: "the node is available", NOT_AVAILABLE: "it is not"},
        _CHECK,
        _JSON,
    ),
    "status": Command(
        "ask running services, and print a row for each",
        "db1 db2 db3",
        {AVAILABLE: "all nodes are available", NOT_AVAILABLE: "at least one is not, or does not answer"},
        ("clustercheck_host", "clustercheck_port"),
        {
            **_JSON,
            "--watch": {"action": "store_true", "help": "ask every second until Ctrl-C"},
            "addresses": {"nargs": "*", "metavar": "HOST[:PORT] ...", "help": "a service (default: this host's)"},
        },
    ),
    "drain": Command(
        "remove the node of this host from the pool",
        "--reason 'upgrade, ticket 42'",
        _DRAIN_EXITS,
        _DRAIN,
        {"--reason": {"metavar": "TEXT", "help": "why, for /status, the log and who looks at the file"}},
    ),
    "undrain": Command("return the node of this host to the pool", "", _DRAIN_EXITS, _DRAIN),
    "migrate": Command(
        "print or write the clustercheck script's settings as an env file",
        "--output /etc/clustercheckd/clustercheckd.env",
        {DONE: "the env file is complete", FAILED: "nothing here runs clustercheck", MISUSED: "any other failure"},
        own={
            "--output": {"metavar": "PATH", "help": "env file to write, with the password file (default: print it)"},
            "--password-file": {"metavar": "PATH", "help": "password file (default: /etc/clustercheckd/password)"},
            "path": {"nargs": "?", "metavar": "PATH", "help": "xinetd service (default: the one in /etc/xinetd.d)"},
        },
    ),
}


class Parser(argparse.ArgumentParser):
    """argparse's parser for one command, but each mistake is a `SettingsError` of one line."""

    def __init__(self, name: str) -> None:
        self._command, command = name, COMMANDS[name]
        words = (f" [{own['metavar']}]" for word, own in command.own.items() if not word.startswith("-"))
        exits = {**command.exits, MISUSED: command.exits.get(MISUSED, _MISUSED)}
        example = f"Example:\n  $ {_PROGRAM} {name} {command.example}".rstrip()
        statuses = "\n".join(f"  {code}  {meaning}" for code, meaning in exits.items())
        super().__init__(
            prog=f"{_PROGRAM} {name}",
            usage=f"%(prog)s [FLAG ...]{''.join(words)}",
            description=f"{command.about[0].upper()}{command.about[1:]}.",
            epilog=f"{example}\n\nExit status:\n{statuses}",
            formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=34, width=80),
            # --mysql-password would be taken for --mysql-password-file.
            allow_abbrev=False,
            add_help=False,
        )
        self._optionals.title, self._positionals.title = "Flags", "Arguments"
        self.add_argument("--help", "-h", action="store_true", default=argparse.SUPPRESS, help="print this help")
        if command.settings:
            self.add_argument("--env-file", metavar="FILE", help="file of NAME=value lines")
        for word, own in command.own.items():
            self.add_argument(word, **own)
        for setting in command.settings:
            if setting not in WITHOUT_FLAG:
                self._add_setting(setting)

    def error(self, message: str) -> NoReturn:
        """Raise `SettingsError`, with what to run for help."""
        # argparse repeats a value that a flag does not take, which may be a secret, in quotes of either kind.
        said = re.split(r""" ['"]""", message, maxsplit=1)[0]
        for its_words, ours in _IN_WORDS.items():
            said = re.sub(f"argument (.+): {its_words}", rf"\1 {ours}", said)
        raise SettingsError(f"{said}; for help, run: {self.prog} --help")

    def format_help(self) -> str:
        """Return what --help prints: as help2man reads it, for the manual pages."""
        return super().format_help().replace("usage:", "Usage:", 1)

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse the arguments after the command. Raises `SettingsError`."""
        given, unknown = self.parse_known_intermixed_args(arguments)
        for action in self._actions:
            if getattr(given, action.dest, None) == "":
                name = action.option_strings[0] if action.option_strings else action.metavar
                self.error(f"argument {name}: expected one argument")
        if unknown:
            # What follows an unknown flag is probably its value.
            argument = next((one for one in unknown if one.startswith("-")), unknown[0])
            flag = argument.partition("=")[0]
            if _PASSWORD_FLAG.fullmatch(flag):
                self.error("every user of this host can read a command line: set MYSQL_PASSWORD_FILE")
            if argument.startswith("-"):
                close = _close_to(flag.replace("--clustercheck-", "--"), self.flags())
                self.error(f"{self._command} has no flag {_shown(flag)}{close}")
            self.error(
                f"{self._command} takes {_TAKES.get(self._command, 'no arguments; for another node, run it there')}"
            )
        return given

    def flags(self) -> list[str]:
        """Return the long flags."""
        return [name for action in self._actions for name in action.option_strings if name.startswith("--")]

    def _add_setting(self, setting: str) -> None:
        flag, field, default = flag_of(setting), Settings.model_fields[setting], default_of(setting)
        text = f"{field.description}{f' (default: {default})' if default else ''}"
        add = partial(self.add_argument, dest=setting, default=argparse.SUPPRESS)
        if bool in (field.annotation, *get_args(field.annotation)):
            add(flag, nargs="?", const="1", metavar="0|1", help=text)
            add(flag.replace("--", "--no-", 1), action="store_const", const="0", help=argparse.SUPPRESS)
        else:
            add(flag, metavar=setting.rpartition("_")[2].upper(), help=text)


def parse(arguments: Sequence[str]) -> tuple[str, dict[str, str], str | None, dict[str, Any]]:
    """Parse a command line. Raises `SettingsError`; prints --help and --version and exits.

    Return the command, its settings (field of `Settings` to text), the env file, and the command's own arguments.
    """
    first, rest = (arguments[0], arguments[1:]) if arguments else ("serve", ())
    if first in ("--help", "-h", "help", "--version", "-V"):
        say(f"{_PROGRAM} {__version__}" if first in ("--version", "-V") else help_text())
        raise SystemExit(0)
    if first.startswith("-"):
        first, rest = "serve", arguments
    if first not in COMMANDS:
        said = f"{_shown(first)} is not a command{_close_to(first, COMMANDS)}"
        raise SettingsError(f"{said}; for help, run: {_PROGRAM} --help")
    parser = Parser(first)
    if {"--help", "-h"} & set(rest):
        say(parser.format_help().rstrip())
        raise SystemExit(0)
    own = vars(parser.parse(rest))
    settings = {name: own.pop(name) for name in COMMANDS[first].settings if name in own}
    return first, settings, own.pop("env_file", None), own


def help_text() -> str:
    """Return what `clustercheckd --help` prints."""
    commands = "\n".join(f"  {name:<9}{command.about}" for name, command in COMMANDS.items())
    return (
        f"Usage: {_PROGRAM} [COMMAND] [FLAG ...]\n   or: {_PROGRAM} --version\n\n"
        "Tells load balancers whether a Galera node may take traffic: 200 or 503, with\n"
        f"the reason.\n\nCommands:\n{commands}\n\n"
        f"`{_PROGRAM} COMMAND --help` lists the flags of a command. A flag sets what\n"
        "the environment variable of its name sets: --mysql-host is MYSQL_HOST, --port\n"
        "is CLUSTERCHECK_PORT. Only the password has no flag: set MYSQL_PASSWORD_FILE."
    )


def _shown(word: str) -> str:
    return word if _HARMLESS.fullmatch(word) else "(not repeated here)"


def _close_to(word: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(word.lower(), known, n=1, cutoff=_HOW_CLOSE)
    return f": did you mean {close[0]}?" if close else ""
