"""`clustercheckd drain` and `undrain`: create or remove the disabled file, and ask the service whether it sees that."""

import os
from collections.abc import Callable
from pathlib import Path

from app.commands.exit_status import DONE, FAILED
from app.commands.output import complain, say
from app.commands.services import Service, ask
from app.reason import Reason
from app.settings_error import SettingsError
from app.switches import ManualSwitches

_MODE = 0o644
"""The service must be able to read the words in the file."""


def drain(disabled_file: str, reason: str | None, own_service: Callable[[], Service]) -> int:
    """Create the disabled file and confirm that the service sees it. Return the exit status.

    reason: written to the file. own_service: may raise `SettingsError`; the node is drained by then.
    """
    try:
        descriptor = os.open(disabled_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
    except FileExistsError:
        seen = ManualSwitches(disabled_file)().disabled_file
        if seen is None:
            complain(f"CLUSTERCHECK_DISABLED_FILE: {disabled_file} is a link to nowhere")
            return FAILED
        say(seen)
        if reason is not None:
            complain(f"--reason is not written: to change the words, edit {disabled_file}")
    except OSError as fault:
        complain(
            f"CLUSTERCHECK_DISABLED_FILE: {disabled_file}: {fault.strerror}: the node is not drained. Set its server to"
            " maint in HAProxy, or set CLUSTERCHECK_DISABLED_FILE to a path that can be written and restart the service"
        )
        return FAILED
    else:
        _write(descriptor, reason or "")
        say(f"created {disabled_file}; to remove it, run: clustercheckd undrain")
    return _confirm(own_service, disabled_file, drained=True)


def undrain(disabled_file: str, own_service: Callable[[], Service]) -> int:
    """Remove the disabled file and confirm that the service sees that. Return the exit status."""
    try:
        Path(disabled_file).unlink()
    except FileNotFoundError:
        say(f"{disabled_file} does not exist")
    except OSError as fault:
        complain(f"CLUSTERCHECK_DISABLED_FILE: {disabled_file}: {fault.strerror}")
        return FAILED
    else:
        say(f"removed {disabled_file}")
    return _confirm(own_service, disabled_file, drained=False)


def _write(descriptor: int, reason: str) -> None:
    """Write why the node is drained, and close the file. On a full disk, the node is drained without the words."""
    with open(descriptor, "wb", buffering=0) as file:
        # The umask may have removed bits.
        os.fchmod(descriptor, _MODE)
        try:
            file.write(f"{reason}\n".encode(errors="replace") if reason else b"")
        except OSError as fault:
            complain(f"--reason is not written: {fault.strerror}")


def _confirm(own_service: Callable[[], Service], disabled_file: str, *, drained: bool) -> int:
    try:
        [answer] = ask([own_service()])
    except SettingsError as fault:
        complain(f"not confirmed: {fault}")
        return FAILED
    where = answer.service.name
    if answer.status is None:
        complain(f"not confirmed: {where}: {answer.reason}")
        return FAILED
    disabled = answer.status["reason"] == Reason.DISABLED
    if drained and not disabled:
        complain(f"{where} is {answer.verdict}, {answer.reason}: it does not see {disabled_file}")
        return FAILED
    if disabled and not drained:
        complain(f"{where} is still {answer.verdict}, {answer.reason}")
        return FAILED
    say(f"{where} is {answer.verdict}, {answer.reason}")
    return DONE
