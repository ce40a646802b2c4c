"""The command line: `clustercheckd`, also as `python -m app`."""

import os
import signal

# The imports take most of the start. Process 1 of a container ignores SIGTERM unless it has a handler. 143 is the
# shell's status for SIGTERM; 0 would mean "available" to a program that stops a slow check.
signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(143))

import sys
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from app.commands.check import check, check_settings
from app.commands.drain import drain, undrain
from app.commands.exit_status import INTERRUPTED, MISUSED
from app.commands.migrate import migrate
from app.commands.output import complain, open_missing_streams
from app.commands.parser import parse
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
        return _run(*parse(sys.argv[1:] if arguments is None else arguments))
    except SettingsError as fault:
        # An error in the journal, so that journalctl -p warning shows why the service did not start.
        priority = "<3>" if goes_to_journal(os.environ) else ""
        for line in str(fault).splitlines():
            complain(line, priority)
        return MISUSED
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(command: str, flags: Mapping[str, str], env_file: str | None, own: Mapping[str, Any]) -> int:
    match command:
        case "serve" if own["check_settings"]:
            return check_settings(_load(flags, env_file))
        case "serve":
            # Imported here, because it would double the start of every other command.
            from app.service import serve  # noqa: PLC0415

            return serve(partial(load_settings, flags, env_file))
        case "check":
            return check(_load(flags, env_file), as_json=own["json"])
        case "status":
            # With addresses, no env file is needed, which this user may not be able to read.
            settings = _load(flags, env_file or ("" if own["addresses"] else None), _LISTENING)
            services = [service_at(text, settings.clustercheck_port) for text in own["addresses"]]
            return status(services or [own_service(settings)], as_json=own["json"], watching=own["watch"])
        case "migrate":
            return migrate(**own)
        case _:
            # The path is all that a drain needs: no other mistake may stop it.
            path = _load(flags, env_file, ["clustercheck_disabled_file"]).clustercheck_disabled_file

            def find_service() -> Service:
                return own_service(load_settings(flags, env_file, _LISTENING)[0])

            return undrain(path, find_service) if command == "undrain" else drain(path, own["reason"], find_service)


def _load(flags: Mapping[str, str], env_file: str | None, only: Collection[str] | None = None) -> Settings:
    """Load the settings that a command uses, and print the warnings."""
    settings, warnings = load_settings(flags, env_file, only)
    for line in warnings:
        complain(line)
    return settings


if __name__ == "__main__":
    sys.exit(main())
