"""The command line: `clustercheckd`, also as `python -m app`."""

import os
import signal

# The imports take most of the start. Process 1 of a container ignores SIGTERM unless it has a handler. 143 is the
# shell's status for SIGTERM; 0 would mean "available" to a program that stops a slow check.
signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(143))

import sys
from collections.abc import Sequence

from app.commands.check import check
from app.commands.drain import drain, undrain
from app.commands.parser import MIGRATE, CommandLine, as_typed, parse
from app.commands.standard_streams import complain, open_missing_streams
from app.commands.status import status
from app.commands.watch import watch
from app.settings import SettingsError, load_settings

MISUSED = 2
"""Exit status for settings that cannot be used."""

INTERRUPTED = 130
"""Exit status for Ctrl-C before the service has started, as shells report it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    open_missing_streams()
    try:
        return _run(sys.argv[1:] if arguments is None else arguments)
    except SettingsError as fault:
        for line in str(fault).splitlines():
            complain(line)
        return MISUSED
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(arguments: Sequence[str]) -> int:
    typed = parse(arguments)
    if typed.command == MIGRATE:
        # Imported here, because it would delay the start of the service.
        from app.commands.migrate import migrate  # noqa: PLC0415

        return migrate(typed.rest)
    try:
        return _run_with_settings(typed)
    except SettingsError as fault:
        raise SettingsError(as_typed(str(fault), typed)) from None


def _run_with_settings(typed: CommandLine) -> int:
    settings, warnings = load_settings(typed.settings, typed.env_file)
    as_json = "json" in typed.switches
    if typed.command == "serve":
        # Imported here, because it would double the start of every other command.
        from app.service import serve  # noqa: PLC0415

        return serve(settings, warnings)
    for line in warnings:
        complain(line)
    match typed.command:
        case "drain":
            return drain(settings)
        case "undrain":
            return undrain(settings)
        case "status":
            return status(settings, typed.words, as_json=as_json, watching="watch" in typed.switches)
    settings.require_login()
    return watch(settings) if typed.command == "watch" else check(settings, as_json=as_json)


if __name__ == "__main__":
    sys.exit(main())
