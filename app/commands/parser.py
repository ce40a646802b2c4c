"""The command line: the flags of each command, and one line for each mistake.

A flag sets what the variable of its name sets: `--mysql-host` is MYSQL_HOST, `--port` is CLUSTERCHECK_PORT.
"""

import argparse
import difflib
import re
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, NoReturn, get_args

from app import __version__
from app.commands.standard_streams import say
from app.settings import DURATIONS, FALSE_WORDS, TRUE_WORDS, WITHOUT_FLAG, Settings, SettingsError, default_of, flag_of

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

_PROGRAM = "clustercheckd"
_ABOUT = "Tells load balancers whether a Galera node may take traffic: 200 or 503, with the reason."
_EPILOG = (
    f"`{_PROGRAM} COMMAND --help` lists the flags of a command. Each flag sets what the environment variable of its"
    " name sets: --mysql-host is MYSQL_HOST, --port is CLUSTERCHECK_PORT. Only the password has no flag: set"
    " MYSQL_PASSWORD_FILE or MYSQL_PASSWORD."
)
_WIDTH, _HELP_COLUMN = 80, 34
_HOW_CLOSE = 0.7
# A longer word, or one with other characters, may be a secret in the wrong place: it is not repeated.
_HARMLESS_WORD = re.compile(r"[a-z]{2,12}")
_HARMLESS_FLAG = re.compile(r"-[A-Za-z]?|--[a-z-]{0,40}")
_PASSWORD_FLAG = re.compile(r"-p.*|--(?i:(mysql[-_]?)?(pass?wor[dt]|passwd|pass|pwd|pw))")
_VARIABLE = re.compile(r"([A-Z]+(?:_[A-Z]+)+)=.*", re.DOTALL)
_TYPOGRAPHIC_DASHES = ("\N{EN DASH}", "\N{EM DASH}", "\N{MINUS SIGN}")
_OTHER_NAMES = {
    "-P": "--mysql-port",
    "-S": "--mysql-socket",
    "-u": "--mysql-username",
    "--user": "--mysql-username",
    "--socket": "--mysql-socket",
    "--poll-interval": "--interval",
    "--clustercheck-poll-interval": "--interval",
    "--timeout": "--deadline",
    "--config": "--env-file",
    "--listen": "--host",
    "--bind": "--host",
}
"""What other programs call a flag, the mysql client among them."""

_OTHER_COMMANDS = {"run": "serve", "start": "serve", "disable": "drain", "enable": "undrain", "version": "--version"}
"""What other programs call a command."""

_METAVARS = (
    ("DURATION", ("_interval", "_deadline", "_seconds")),
    ("PATH", ("_socket", "_file", "_ca", "_cert", "_key")),
    ("HOST", ("_host",)),
    ("PORT", ("_port",)),
    ("NAME", ("_username",)),
    ("NETWORKS", ("_from",)),
    ("NUMBER", ("_queue",)),
    ("STATUS", ("_status",)),
    ("WORD", ("_verify", "_level", "_format")),
)

_LISTENING = ("clustercheck_host", "clustercheck_port")
_SERVER = tuple(name for name in Settings.model_fields if name.startswith(("mysql_", "defaults_")))
_POLICY = (
    "available_when_donor",
    "available_when_readonly",
    "available_when_full",
    "max_recv_queue",
    "clustercheck_disabled_file",
)
_POLLING = (*_SERVER, *_POLICY, "clustercheck_deadline")
_DRAINING = ("clustercheck_disabled_file", *_LISTENING)
_HEADINGS = {
    "server and account": _SERVER,
    "policy": (*_POLICY, "clustercheck_drain_status", "clustercheck_drain_seconds"),
}
"""The other flags stand under "flags"."""

_FLAGS = {name: flag_of(name) for name in Settings.model_fields if name not in WITHOUT_FLAG}
_FLAGS_OF_NO_SETTING = ("--env-file", "--output", "--password-file")
"""Those with a value."""

_JSON = {"json": "print JSON"}


@dataclass(frozen=True, slots=True)
class Command:
    """A word after `clustercheckd`.

    summary: one line for the list of commands. settings: the fields of `Settings` that it has flags for. switches:
    flags that set nothing, with their help. words: name and help of the arguments that are not flags, if it takes any.
    """

    summary: str
    about: str
    settings: tuple[str, ...]
    switches: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, str] | None = None


COMMANDS = {
    "serve": Command(
        "run the service (the default)",
        "Run the service: poll the node and answer health checks over HTTP. `clustercheckd` alone does the same.",
        tuple(Settings.model_fields),
    ),
    "check": Command(
        "poll the node once and print the verdict",
        "Poll the node once and print the verdict. Exit status: 0 available, 1 not available.",
        _POLLING,
        _JSON,
    ),
    "watch": Command(
        "poll the node every second and print a row each time",
        "Poll the node every second and print a row each time, until Ctrl-C.",
        (*_POLLING, "clustercheck_drain_status"),
    ),
    "status": Command(
        "ask running services and print a row for each",
        "Ask running services and print a row for each. Exit status: 0 if at least one node is available, 1 if none.",
        _LISTENING,
        {**_JSON, "watch": "ask every second until Ctrl-C"},
        ("address", "HOST, HOST:PORT or [ADDRESS]:PORT of a service (default: the service configured on this host)"),
    ),
    "drain": Command(
        "remove this node from the pool",
        "Remove this node from the pool: create the disabled file, and ask the service whether it sees the change.",
        _DRAINING,
    ),
    "undrain": Command(
        "return this node to the pool",
        "Return this node to the pool: remove the disabled file, and ask the service whether it sees the change.",
        _DRAINING,
    ),
}
_OF_THIS_HOST = ("check", "watch", "drain", "undrain")
MIGRATE = "migrate"
NAMES = (*COMMANDS, MIGRATE)


class Parser(argparse.ArgumentParser):
    """argparse's parser, but each mistake is a `SettingsError` of one line."""

    def __init__(self, command: str, about: str) -> None:
        self._command = command
        super().__init__(
            prog=f"{_PROGRAM} {command}",
            usage=f"{_PROGRAM} {command} [FLAG ...]",
            description=about,
            formatter_class=_HelpFormatter,
            # --mysql-password would be taken for --mysql-password-file.
            allow_abbrev=False,
            add_help=False,
        )
        self._optionals.title = "flags"
        self._positionals.title = "arguments"
        self.add_argument("--help", "-h", action="help", help="print this help")

    def print_help(self, file: "SupportsWrite[str] | None" = None) -> None:
        """Print the help, and report a failure."""
        del file
        say(self.format_help().rstrip())

    def error(self, message: str) -> NoReturn:
        """Raise `SettingsError`, with what to type for help."""
        found = re.match(r"argument (--[a-z-]+).*?: (expected|ignored)", message)
        if found:
            message = f"{found[1]} {'needs a value' if found[2] == 'expected' else 'takes no value'}"
        full = f"{message}; for help, type: {self.prog} --help"
        raise SettingsError(full)

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse the arguments after the command. Raises `SettingsError`."""
        given, unknown = self.parse_known_intermixed_args(arguments)
        # What follows an unknown flag is probably its value.
        for argument in unknown:
            if argument.startswith("-"):
                self._refuse_flag(argument.partition("=")[0])
        if unknown:
            self._refuse_word(unknown[0])
        for name, value in vars(given).items():
            if value == "":
                self.error(f"{self._flag_of(name)} needs a value")
        return given

    def _flag_of(self, name: str) -> str:
        return next(action.option_strings[0] for action in self._actions if action.dest == name)

    def flags(self) -> list[str]:
        """Return the long flags."""
        return [name for action in self._actions for name in action.option_strings if name.startswith("--")]

    def _refuse_flag(self, flag: str) -> NoReturn:
        if f"-{flag}" in self.flags():
            message = f"type two hyphens: -{flag}"
            raise SettingsError(message)
        if _PASSWORD_FLAG.fullmatch(flag):
            if "--mysql-password-file" not in self.flags():
                self.error(f"{self._command} needs no password")
            message = (
                "there is no flag for the password, because every user of this host can read a command line: set"
                " MYSQL_PASSWORD_FILE or --mysql-password-file"
            )
            raise SettingsError(message)
        if not _HARMLESS_FLAG.fullmatch(flag):
            self.error(f"{self._command} does not have this flag")
        message = f"{self._command} has no flag {flag}"
        if flag == "--version":
            self.error(f"{message}: type {_PROGRAM} --version")
        owners = [name for name in COMMANDS if flag in parser_of(name).flags()]
        meant = _meant_by(flag, self.flags())
        if owners:
            self.error(f"{message}; these commands have it: {', '.join(owners)}")
        if meant is None:
            self.error(message)
        message = f"{message}: did you mean {meant}?"
        raise SettingsError(message)

    def _refuse_word(self, word: str) -> NoReturn:
        _refuse_misplaced(word)
        if word == "help":
            message = f"for help, type: {self.prog} --help"
        elif word == self._command:
            message = f"{word} is typed twice: type it once"
        elif word in NAMES:
            message = f"{self._command} and {word} are two commands: type one of them"
        elif self._command in _OF_THIS_HOST:
            message = f"{self._command} works on this host only: for others, type {_PROGRAM} status HOST"
        else:
            message = f"{self._command} takes flags only: type each with its two dashes"
        raise SettingsError(message)


class _HelpFormatter(argparse.HelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=_HELP_COLUMN, width=min(_WIDTH, shutil.get_terminal_size().columns))

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if action.nargs == "?" and action.option_strings:
            return action.option_strings[0].replace("--", "--[no-]", 1)
        return super()._format_action_invocation(action)


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What was typed. settings: field of `Settings` to text. rest: what is left for migrate, which has its own."""

    command: str
    settings: Mapping[str, str]
    env_file: str | None = None
    switches: Collection[str] = ()
    words: Sequence[str] = ()
    rest: Sequence[str] = ()


def parse(arguments: Sequence[str]) -> CommandLine:
    """Parse a command line. Raises `SettingsError`; prints --help and --version and exits."""
    if arguments[:1] in (["--help"], ["-h"], ["help"], ["--version"]):
        if arguments[0] == "--version":
            say(f"{_PROGRAM} {__version__}")
        elif arguments[1:2] and arguments[1] in COMMANDS:
            parser_of(arguments[1]).print_help()
        elif arguments[1:2] == [MIGRATE]:
            return CommandLine(MIGRATE, {}, rest=["--help"])
        else:
            say(help_text())
        raise SystemExit(0)
    command, rest = _split(arguments)
    if command == MIGRATE:
        return CommandLine(command, {}, rest=rest)
    given = vars(parser_of(command).parse(rest))
    return CommandLine(
        command,
        {name: value for name, value in given.items() if name in Settings.model_fields},
        given.get("env_file"),
        [name for name in COMMANDS[command].switches if given.get(name)],
        given.get("words", ()),
    )


def help_text() -> str:
    """Return what `clustercheckd --help` prints."""
    parser = Parser("", _ABOUT)
    parser.prog = _PROGRAM
    parser.usage = f"{_PROGRAM} [COMMAND] [FLAG ...]"
    parser.epilog = _EPILOG
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_argument_group("commands")
    for name, command in COMMANDS.items():
        commands.add_argument(name, help=command.summary)
    commands.add_argument(MIGRATE, help="print the clustercheck script's settings as an env file")
    return parser.format_help().rstrip()


@cache
def parser_of(name: str) -> Parser:
    """Return the parser of a command other than migrate."""
    command = COMMANDS[name]
    parser = Parser(name, command.about)
    parser.add_argument("--env-file", metavar="PATH", help="file of NAME=value lines")
    for switch, text in command.switches.items():
        parser.add_argument(f"--{switch}", action="store_true", help=text)
    if command.words:
        word, text = command.words
        parser.usage = f"{_PROGRAM} {name} [FLAG ...] [{word.upper()} ...]"
        parser.add_argument("words", nargs="*", metavar=word.upper(), help=text)
    groups = {heading: parser.add_argument_group(heading) for heading in _HEADINGS}
    for setting in Settings.model_fields:
        if setting in command.settings and setting in _FLAGS:
            heading = next((heading for heading, settings in _HEADINGS.items() if setting in settings), None)
            _add_flag((groups[heading] if heading else parser).add_argument, setting)
    return parser


def as_typed(message: str, command_line: CommandLine) -> str:
    """Name the settings in a message as flags, if the first setting that it names was given as one."""
    names = re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", message)
    if not names or names[0].lower() not in command_line.settings:
        return message
    return re.sub(r"\b[A-Z_]+\b", lambda found: _FLAGS.get(found[0].lower(), found[0]), message)


def _split(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Find the command, which may stand behind flags; return it and all other arguments.

    Raises `SettingsError` for a word that is not a command.
    """
    position = 0
    while position < len(arguments) and arguments[position].startswith("-"):
        flag, equals, _ = arguments[position].partition("=")
        position += 1 if equals else 1 + _values_after(flag, arguments[position + 1 : position + 2])
    if position >= len(arguments):
        return "serve", list(arguments)
    word, rest = arguments[position], [*arguments[:position], *arguments[position + 1 :]]
    if word in NAMES:
        return word, rest
    # The word may be the value of an unknown flag.
    parser_of("serve").parse(arguments[:position])
    _refuse_misplaced(word)
    shown = word if _HARMLESS_WORD.fullmatch(word) else "the first argument"
    close = difflib.get_close_matches(word.lower(), NAMES, n=1, cutoff=_HOW_CLOSE)
    meant = _OTHER_COMMANDS.get(word) or (close[0] if close else None)
    advice = f": did you mean {meant}?" if meant else f"; for help, type: {_PROGRAM} --help"
    message = f"{shown} is not a command{advice}"
    raise SettingsError(message)


def _refuse_misplaced(word: str) -> None:
    """Raise `SettingsError` for a word that was meant as something else."""
    variable = _VARIABLE.fullmatch(word)
    if variable and variable[1].lower() in Settings.model_fields:
        message = f"{variable[1]} is a variable: type it before the command, as in {variable[1]}=... {_PROGRAM}"
        raise SettingsError(message)
    if word.startswith(_TYPOGRAPHIC_DASHES):
        message = "an argument begins with a typographic dash: type hyphens, as in --help"
        raise SettingsError(message)


def _values_after(flag: str, following: Sequence[str]) -> int:
    """Return how many arguments belong to a flag that has no value behind an equals sign: 0 or 1."""
    setting = next((name for name, known in _FLAGS.items() if flag == known), None)
    if setting is None:
        return int(flag in _FLAGS_OF_NO_SETTING)
    if _is_switch(setting):
        return int(bool(following) and following[0].casefold() in (*TRUE_WORDS, *FALSE_WORDS))
    return 1


def _is_switch(setting: str) -> bool:
    return bool in (Settings.model_fields[setting].annotation, *get_args(Settings.model_fields[setting].annotation))


def _add_flag(add: Callable[..., argparse.Action], setting: str) -> None:
    flag, text = _FLAGS[setting], Settings.model_fields[setting].description
    default = default_of(setting)
    if default:
        text = f"{text} (default: {default}{'s' if setting in DURATIONS else ''})"
    if _is_switch(setting):
        add(flag, dest=setting, nargs="?", const=TRUE_WORDS[0], default=argparse.SUPPRESS, help=text)
        add(
            _negated(flag),
            dest=setting,
            action="store_const",
            const=FALSE_WORDS[0],
            default=argparse.SUPPRESS,
            help=argparse.SUPPRESS,
        )
    else:
        add(flag, dest=setting, metavar=_metavar(setting), default=argparse.SUPPRESS, help=text)


def _negated(flag: str) -> str:
    return flag.replace("--", "--no-", 1)


def _metavar(setting: str) -> str:
    return next(metavar for metavar, endings in _METAVARS if setting.endswith(endings))


def _meant_by(flag: str, flags: Collection[str]) -> str | None:
    """Return the flag that was probably meant."""
    plain = flag.replace("--clustercheck-", "--", 1)
    guesses = (_OTHER_NAMES.get(flag), plain, f"--mysql-{plain.lstrip('-')}")
    close = difflib.get_close_matches(plain, flags, n=1, cutoff=_HOW_CLOSE)
    return next((guess for guess in (*guesses, *close) if guess in flags), None)
