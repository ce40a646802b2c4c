"""The command line: `clustercheckd`, also as `python -m app`."""

import os
import signal

# The imports take most of the start. Process 1 of a container ignores SIGTERM unless it has a
# handler. 143 is the shell's status for SIGTERM; 0 would mean "available" to a program that stops a
# slow check.
signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(143))

import sys
from argparse import Namespace
from collections.abc import Collection, Sequence
from functools import partial

from app.commands.asking import Service, members_of, own_service, service_at
from app.commands.check import check, check_settings
from app.commands.drain import drain, undrain
from app.commands.exit_status import INTERRUPTED, MISUSED
from app.commands.output import complain, open_missing_streams
from app.commands.parser import parse
from app.commands.reload import reload
from app.commands.status import status
from app.script.migrate import migrate
from app.service.log import goes_to_journal
from app.settings.files import SettingsError
from app.settings.settings import LISTENING, Settings, load_settings


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    open_missing_streams()
    try:
        return _run(parse(sys.argv[1:] if arguments is None else arguments))
    except SettingsError as fault:
        # An error in the journal, so that journalctl -p warning shows why the service did not
        # start.
        priority = "<3>" if goes_to_journal() else ""
        for line in str(fault).splitlines():
            complain(line, priority)
        return MISUSED
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(typed: Namespace) -> int:
    match typed.command:
        case "serve":
            load = partial(load_settings, typed.flags, typed.env_file)
            if typed.check_settings or typed.show_settings:
                return check_settings(load, showing=typed.show_settings)
            # Imported here, because it would double the start of every other command.
            from app.service.serve import serve  # noqa: PLC0415

            return serve(load)
        case "check":
            return check(_load(typed), as_json=typed.json)
        case "status":
            return status(_services(typed), as_json=typed.json, watching=typed.watch)
        case "reload":
            return reload(partial(_find_service, typed))
        case "drain":
            return drain(
                _disabled_file(typed), typed.reason, partial(_find_service, typed)
            )
        case "undrain":
            return undrain(_disabled_file(typed), partial(_find_service, typed))
        case "migrate":
            return migrate(typed.path, typed.output, typed.password_file)
    raise AssertionError(typed.command)


def _disabled_file(typed: Namespace) -> str:
    # The path is all that a drain needs: no other mistake may stop it.
    return _load(typed, ["clustercheck_disabled_file"]).clustercheck_disabled_file


def _services(typed: Namespace) -> list[Service]:
    # Without the warnings: this user may not be able to read the env file.
    settings, *_ = load_settings(typed.flags, typed.env_file, LISTENING)
    services = [
        service_at(address, settings.clustercheck_port) for address in typed.addresses
    ]
    services = services or [own_service(settings)]
    return members_of(services) if typed.all else services


def _find_service(typed: Namespace) -> Service:
    return own_service(load_settings(typed.flags, typed.env_file, LISTENING)[0])


def _load(typed: Namespace, only: Collection[str] | None = None) -> Settings:
    """Load the settings that a command uses, and print the warnings."""
    settings, warnings, _ = load_settings(typed.flags, typed.env_file, only)
    for line in warnings:
        complain(line)
    return settings


if __name__ == "__main__":
    sys.exit(main())
