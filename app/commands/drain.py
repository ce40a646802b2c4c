"""`clustercheckd drain` and `undrain`: create or remove the disabled file.

Both then ask the service whether it sees that.
"""

import os
from collections.abc import Callable
from pathlib import Path

from app.commands.asking import Service, ask
from app.commands.exit_status import DONE, FAILED
from app.commands.output import complain, say
from app.settings.files import SettingsError
from app.settings.switches import ManualSwitches
from app.verdict.reason import Reason


def drain(
    disabled_file: str, reason: str | None, find_service: Callable[[], Service]
) -> int:
    """Create the disabled file and confirm that the service sees it. Return the exit status.

    reason: written to the file. find_service: may raise `SettingsError`; the node is drained by
    then.
    """
    # The service must be able to read the words in the file.
    os.umask(0o022)
    try:
        file = Path(disabled_file).open("xb", buffering=0)  # noqa: SIM115 (closed below)
    except FileExistsError:
        say(
            ManualSwitches(disabled_file)().disabled_file
            or f"{disabled_file} is a link to nowhere"
        )
        if reason is not None:
            complain(
                f"--reason is not written: to change the words, edit {disabled_file}"
            )
    except OSError as fault:
        complain(
            f"CLUSTERCHECK_DISABLED_FILE: {disabled_file}: {fault.strerror}: the node is not"
            " drained. Set its server to maint in HAProxy, or set CLUSTERCHECK_DISABLED_FILE to a"
            " path that can be written and reload the service"
        )
        return FAILED
    else:
        with file:
            try:
                words = " ".join((reason or "").split())
                file.write(f"{words}\n".encode(errors="replace") if words else b"")
            except OSError as fault:
                complain(f"--reason is not written: {fault.strerror}")
        say(f"created {disabled_file}; to remove it, run: clustercheckd undrain")
    return _confirm(find_service, disabled_file, drained=True)


def undrain(disabled_file: str, find_service: Callable[[], Service]) -> int:
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
    return _confirm(find_service, disabled_file, drained=False)


def _confirm(
    find_service: Callable[[], Service], disabled_file: str, *, drained: bool
) -> int:
    try:
        [answer] = ask([find_service()])
    except SettingsError as fault:
        complain(f"not confirmed: {fault}")
        return FAILED
    if answer.fault:
        complain(f"not confirmed: {answer.service.name}: {answer.fault}")
        return FAILED
    status = answer.status
    verdict = f"{answer.service.name} is {answer.verdict}, {answer.reason}"
    if (status.reason == Reason.DISABLED) != drained:
        complain(f"{verdict}: it does not see the change of {disabled_file}")
        return FAILED
    say(verdict)
    if (
        answer.node.wsrep_cluster_size == 1
        and status.otherwise
        and status.otherwise.available
    ):
        complain("this was the last available node: its wsrep_cluster_size is 1")
    return DONE
