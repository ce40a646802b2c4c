"""The command line: `clustercheckd`, also as `python -m app`."""

import os
import signal

# The imports take most of the start. Process 1 of a container ignores SIGTERM unless it has a
# handler. 143 is the shell's status for SIGTERM; 0 would mean "available" to a program that stops a
# slow check.
signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(143))
# Whoever started us may have blocked it for itself.
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM, signal.SIGINT])

import sys
from argparse import Namespace
from collections.abc import Sequence

from app.commands.exit_status import INTERRUPTED, MISUSED
from app.commands.output import complain, open_missing_streams
from app.commands.parser import parse
from app.service.log import goes_to_journal
from app.settings.error import SettingsError
from app.settings.source import Source


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    open_missing_streams()
    try:
        return _run(parse(sys.argv[1:] if arguments is None else arguments))
    except SettingsError as fault:
        # An error in the journal, so that journalctl -p warning shows why the service did not
        # start.
        priority = "<3>" if goes_to_journal() else ""
        complain(*str(fault).splitlines(), priority=priority)
        return MISUSED
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(typed: Namespace) -> int:
    # Each command imports what it needs, and waits for nothing else.
    source = Source(typed.flags, typed.env_file)
    match typed.command:
        case "serve":
            from app.service.serve import serve

            return serve(source)
        case "check":
            from app.commands.check import check

            return check(source)
        case "status":
            from app.commands.status import status

            return status(source, typed)
        case "reload":
            from app.commands.reload import reload

            return reload(source)
        case "drain":
            from app.commands.drain import drain

            return drain(source, typed.reason)
        case _:
            from app.commands.drain import undrain

            return undrain(source)


if __name__ == "__main__":
    sys.exit(main())
