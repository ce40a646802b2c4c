"""`clustercheckd drain` and `undrain`: create or remove the disabled file.

Both then ask the service whether it sees that.
"""

import os
from contextlib import suppress
from pathlib import Path

from app.commands.asking import REFUSED, ask, own_address
from app.commands.exit_status import DONE, FAILED
from app.commands.output import complain, say
from app.commands.unit import is_stopped
from app.settings.error import SettingsError
from app.settings.source import Source
from app.verdict.reason import Reason


def drain(source: Source, reason: str | None) -> int:
    """Create the disabled file and confirm that the service sees it. Return the exit status.

    reason: written to the file. Raises `SettingsError`.
    """
    disabled_file = _disabled_file(source)
    # The service must be able to read the words in the file.
    os.umask(0o022)
    try:
        Path(disabled_file).touch(exist_ok=False)
    except FileExistsError:
        say(f"{disabled_file} exists, and was not changed")
    except OSError as fault:
        complain(
            f"CLUSTERCHECK_DISABLED_FILE: {disabled_file}: {fault.strerror}: the node is not"
            " drained. Set its server to maint in HAProxy, or set CLUSTERCHECK_DISABLED_FILE to a"
            " path that can be written and reload the service"
        )
        return FAILED
    else:
        # On a full disk, the file is there all the same.
        with suppress(OSError):
            words = " ".join((reason or "").split())
            Path(disabled_file).write_text(words, errors="replace")
        say(f"created {disabled_file}; to remove it, run: clustercheckd undrain")
    return _confirm(source, disabled_file, drained=True)


def undrain(source: Source) -> int:
    """Remove the disabled file and confirm that the service sees that. Return the exit status.

    Raises `SettingsError`.
    """
    disabled_file = _disabled_file(source)
    try:
        Path(disabled_file).unlink()
        say(f"removed {disabled_file}")
    except FileNotFoundError:
        say(f"{disabled_file} does not exist")
    except OSError as fault:
        complain(f"CLUSTERCHECK_DISABLED_FILE: {disabled_file}: {fault.strerror}")
        return FAILED
    return _confirm(source, disabled_file, drained=False)


def _disabled_file(source: Source) -> str:
    # The path is all that a drain needs: no other mistake may stop it.
    settings, warnings, *_ = source.load("clustercheck_disabled_file")
    complain(*warnings)
    return settings.clustercheck_disabled_file


def _confirm(source: Source, disabled_file: str, *, drained: bool) -> int:
    try:
        [answer] = ask([own_address(source)])
    except SettingsError as fault:
        complain(f"not confirmed: {fault}")
        return FAILED
    name = answer.address.name
    verdict = f"{name} is {answer.verdict}, {answer.words}"
    # Nothing else answers there either.
    if answer.fault == REFUSED and drained and is_stopped():
        say("clustercheckd.service does not run: it starts drained")
        return DONE
    if answer.fault:
        complain(f"not confirmed: {name}: {answer.fault}")
    elif (answer.reason == Reason.DISABLED) != drained:
        complain(f"{verdict}: it does not see the change of {disabled_file}")
    else:
        say(verdict)
        is_alone = answer.node.wsrep_cluster_size == 1
        if is_alone and answer.otherwise and answer.otherwise.available:
            complain("this was the last available node: its wsrep_cluster_size is 1")
        return DONE
    return FAILED
