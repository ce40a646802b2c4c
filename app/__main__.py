"""The command line: `clustercheckd`, also as `python -m app`."""

import os
import signal

# The imports take most of the start. Process 1 of a container ignores SIGTERM unless it has a handler. 143 is the
# shell's status for SIGTERM; 0 would mean "available" to a program that stops a slow check.
signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(143))

import sys
from collections.abc import Collection, Sequence

from app.commands.check import check
from app.commands.drain import drain, undrain
from app.commands.exit_status import INTERRUPTED, MISUSED
from app.commands.output import complain, open_missing_streams
from app.commands.parser import CommandLine, parse
from app.commands.services import Service, own_service, service_at
from app.commands.status import status
from app.log import goes_to_journal
from app.settings import Settings, load_settings
from app.settings_error import SettingsError

_LISTENING = ("clustercheck_host", "clustercheck_port")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    open_missing_streams()
    try:
        return _run(parse(sys.argv[1:] if arguments is None else arguments))
    except SettingsError as fault:
        # An error in the journal, so that journalctl -p warning shows why the service did not start.
        priority = "<3>" if goes_to_journal(os.environ) else ""
        for line in str(fault).splitlines():
            complain(line, priority)
        return MISUSED
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(typed: CommandLine) -> int:
    match typed.command:
        case "serve":
            # Imported here, because it would double the start of every other command.
            from app.service import serve  # noqa: PLC0415

            return serve(*load_settings(typed.settings, typed.env_file))
        case "check":
            return check(_settings(typed), as_json=typed.own["json"])
        case "status":
            return status(_services(typed), as_json=typed.own["json"], watching=typed.own["watch"])
        case "drain" | "undrain":
            # The path is all that a drain needs: no other mistake may stop it.
            path = _settings(typed, ["clustercheck_disabled_file"]).clustercheck_disabled_file

            def find_service() -> Service:
                return own_service(load_settings(typed.settings, typed.env_file, _LISTENING)[0])

            if typed.command == "undrain":
                return undrain(path, find_service)
            return drain(path, typed.own["reason"], find_service)
        case _:
            # Imported here, because it would delay the start of the service.
            from app.commands.migrate import migrate  # noqa: PLC0415

            return migrate(typed.rest)


def _settings(typed: CommandLine, only: Collection[str] | None = None) -> Settings:
    """Load the settings that a command uses, and print the warnings."""
    settings, warnings = load_settings(typed.settings, typed.env_file, only)
    for line in warnings:
        complain(line)
    return settings


def _services(typed: CommandLine) -> list[Service]:
    """Return the services to ask: those typed, for which no env file is read, or the configured one."""
    addresses = typed.own["addresses"]
    if not addresses:
        return [own_service(_settings(typed, _LISTENING))]
    port = load_settings(typed.settings, typed.env_file or "", ["clustercheck_port"])[0].clustercheck_port
    return [service_at(text, port) for text in addresses]


if __name__ == "__main__":
    sys.exit(main())
