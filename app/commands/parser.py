"""The command line: a command, then its flags, and one line for each mistake."""

import argparse
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from app import __version__
from app.commands.output import say
from app.kinds import BOOLEAN, SECRET
from app.settings.error import SettingsError
from app.settings.settings import DATABASE, LISTENING, POLICY, TABLE

# Anything else may be a secret in the wrong place: it is not repeated.
_HARMLESS = re.compile(r"-[A-Za-z]|--?[a-z-]{0,40}|[a-z]{2,12}")
_HELP_FLAGS = ("--help", "-h")

_CHECK = (*DATABASE, *POLICY, "clustercheck_disabled_file", "clustercheck_deadline")
_DRAIN = ("clustercheck_disabled_file", "clustercheck_port")
_MISUSED = "2  a setting or an argument cannot be used"
_DRAIN_EXITS = (
    "0  the service sees the change",
    "1  it does not, or the file cannot be changed",
    _MISUSED,
)


class Command(NamedTuple):
    """A word after `clustercheckd`.

    exits: what the exit statuses mean. settings: the fields of `Settings` that it has flags for.
    own: its other arguments, as argparse takes them.
    """

    about: str
    example: str
    exits: Sequence[str]
    settings: Collection[str]
    own: Mapping[str, Mapping[str, Any]] = {}
    usage: str = "[FLAG ...]"


def _switch(meaning: str) -> Mapping[str, Any]:
    return {"action": "store_true", "help": meaning}


COMMANDS = {
    "serve": Command(
        "run the service: poll the node, and answer health checks (default)",
        "clustercheckd serve --env-file /etc/clustercheckd/clustercheckd.env",
        (
            "0  after SIGTERM or Ctrl-C",
            f"{_MISUSED}, or the port is in use",
        ),
        TABLE,
    ),
    "check": Command(
        "poll the node once, as the service would, and print the verdict",
        "clustercheckd check --available-when-donor",
        ("0  the node is available", "1  it is not", _MISUSED),
        _CHECK,
    ),
    "status": Command(
        "ask running services, and print a row for each",
        "clustercheckd status --all db1",
        (
            "0  all nodes are available",
            "1  at least one is not, or does not answer",
            _MISUSED,
            "3  they are not one healthy cluster: split, same-server, nobody, no-logins or held-up",
        ),
        LISTENING,
        {
            "--json": _switch("print JSON"),
            "--settings": _switch("print the settings that are set, and where, too"),
            "--all": _switch(
                "ask the other members too, by their wsrep_incoming_addresses"
            ),
            "--watch": _switch("ask again and again until Ctrl-C"),
            "addresses": {
                "nargs": "*",
                "metavar": "HOST[:PORT] ...",
                "help": "a service (default: this host's)",
            },
        },
        "[FLAG ...] [HOST[:PORT] ...]",
    ),
    "reload": Command(
        "have a new process with the settings as they are now take over",
        "clustercheckd reload",
        (
            "0  it uses the new settings",
            "1  the node is not available any more, or the service keeps the old ones",
            "2  it keeps the old ones: a setting or an argument cannot be used",
        ),
        LISTENING,
    ),
    "drain": Command(
        "remove the node of this host from the pool",
        "clustercheckd drain --reason 'upgrade, ticket 42'",
        _DRAIN_EXITS,
        _DRAIN,
        {
            "--reason": {
                "metavar": "TEXT",
                "help": "why, for /status, the log and who looks at the file",
            }
        },
    ),
    "undrain": Command(
        "return the node of this host to the pool",
        "clustercheckd undrain",
        _DRAIN_EXITS,
        _DRAIN,
    ),
}


_HELP = (
    "Usage: clustercheckd [COMMAND] [FLAG ...]\n   or: clustercheckd --version\n\n"
    "Tells load balancers whether a Galera node may take traffic: 200 or 503, with\n"
    "the reason.\n\nCommands:\n"
    + "".join(f"  {name:<9}{command.about}\n" for name, command in COMMANDS.items())
    + "\n`clustercheckd COMMAND --help` lists the flags of a command. A flag sets what\n"
    "the environment variable of its name sets: --mysql-host is MYSQL_HOST, --port\n"
    "is CLUSTERCHECK_PORT. Only the password has no flag: set MYSQL_PASSWORD_FILE."
)


def parser_of(name: str) -> argparse.ArgumentParser:
    """Return argparse's parser for one command. A mistake raises `argparse.ArgumentError`."""
    command = COMMANDS[name]
    statuses = "\n  ".join(command.exits)
    parser = argparse.ArgumentParser(
        # argparse writes "usage:", and help2man reads "Usage:", for the manual pages.
        usage=argparse.SUPPRESS,
        description=f"Usage: clustercheckd {name} {command.usage}\n\n"
        f"{command.about.capitalize()}.",
        epilog=f"Example:\n  $ {command.example}\n\nExit status:\n  {statuses}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        # --mysql-password would be taken for --mysql-password-file.
        allow_abbrev=False,
        add_help=False,
        exit_on_error=False,
    )
    parser.set_defaults(command=name)
    parser.add_argument(*_HELP_FLAGS, action="help", help="print this help")
    parser.add_argument("--env-file", metavar="FILE", help="file of NAME=value lines")
    for word, own in command.own.items():
        parser.add_argument(word, **own)
    for row in map(TABLE.__getitem__, command.settings):
        if row.kind is not SECRET:
            value: dict[str, Any] = {"metavar": row.name.upper().rpartition("_")[2]}
            if row.kind is BOOLEAN:
                value = {"nargs": "?", "const": "1", "metavar": "0|1"}
            parser.add_argument(
                row.flag,
                dest=row.name,
                default=argparse.SUPPRESS,
                help=row.words,
                **value,
            )
    return parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line. Raises `SettingsError`; prints --help and --version and exits.

    Return `command`, `flags` (field of `Settings` to text), and the command's own arguments by
    their names.
    """
    command, *rest = arguments or ["serve"]
    told = dict.fromkeys(("help", *_HELP_FLAGS), _HELP)
    told["--version"] = f"clustercheckd {__version__}"
    if command in told:
        say(told[command])
        raise SystemExit(0)
    if command.startswith("-"):
        command, rest = "serve", list(arguments)
    if command not in COMMANDS:
        raise _mistake(f"{_repeated(command)} is not a command")
    try:
        typed, unknown = parser_of(command).parse_known_intermixed_args(rest)
    except argparse.ArgumentError as fault:
        # Its message repeats the value, which may be a secret.
        takes = "needs a" if fault.message == "expected one argument" else "takes no"
        raise _mistake(f"{fault.argument_name} {takes} value", command) from None
    if unknown:
        # What follows an unknown flag is probably its value.
        flags = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        words = "takes no more arguments: for another node, run it there"
        if "reason" in typed:
            words += "; a reason follows --reason"
        if flags:
            words = f"does not take {_repeated(flags[0])}"
        raise _mistake(f"{command} {words}", command)
    typed.flags = {name: text for name, text in vars(typed).items() if name in TABLE}
    return typed


def _mistake(words: str, *command: str) -> SettingsError:
    asked = " ".join(("clustercheckd", *command, "--help"))
    return SettingsError(f"{words}; for help, run: {asked}")


def _repeated(word: str) -> str:
    return word if _HARMLESS.fullmatch(word) else "(not repeated here)"
