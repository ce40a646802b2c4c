"""`clustercheckd drain` and `undrain`: create or remove the disabled file.

Both then ask the service whether it sees that.
"""

import os
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from app.commands.asking import ask, own_address
from app.commands.exit_status import DONE, FAILED
from app.commands.output import complain, say
from app.settings.disabled_file import switches_now
from app.settings.error import SettingsError
from app.settings.source import Source
from app.verdict.reason import Reason

_TMPFILES = ("/usr/lib/tmpfiles.d", "/run/tmpfiles.d", "/etc/tmpfiles.d")
"""Where tmpfiles.d(5) has its rules."""


def drain(source: Source, reason: str | None) -> int:
    """Create the disabled file and confirm that the service sees it. Return the exit status.

    reason: written to the file. Raises `SettingsError`.
    """
    disabled_file = _disabled_file(source)
    # The service must be able to read the words in the file.
    os.umask(0o022)
    try:
        file = Path(disabled_file).open("xb", buffering=0)  # noqa: SIM115 (closed below)
    except FileExistsError:
        say(
            switches_now(disabled_file).disabled_file
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
                if words := " ".join((reason or "").split()):
                    file.write(f"{words}\n".encode(errors="replace"))
            except OSError as fault:
                complain(f"--reason is not written: {fault.strerror}")
        say(f"created {disabled_file}; to remove it, run: clustercheckd undrain")
    if age := _lifetime(disabled_file):
        complain(
            f"systemd-tmpfiles removes {disabled_file} after {age}. To keep it, run:"
            f" echo 'x {disabled_file}' >/etc/tmpfiles.d/clustercheck-disabled.conf"
        )
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
    settings, warnings, _ = source.load("clustercheck_disabled_file")
    complain(*warnings)
    return settings.clustercheck_disabled_file


def _lifetime(path: str) -> str:
    """Return the age at which systemd-tmpfiles removes a file; empty if it keeps it."""
    age = ""
    for file in (one for place in _TMPFILES for one in Path(place).glob("*.conf")):
        with suppress(OSError):
            for line in file.read_text(errors="replace").splitlines():
                match line.split():
                    case ["x" | "X", kept, *_] if fnmatchcase(path, kept):
                        return ""
                    case [_, parent, _, _, _, limit, *_] if path.startswith(
                        f"{parent}/"
                    ) and not line.startswith("#"):
                        age = age or limit.strip("-")
    return age


def _confirm(source: Source, disabled_file: str, *, drained: bool) -> int:
    try:
        [answer] = ask([own_address(source)])
    except SettingsError as fault:
        complain(f"not confirmed: {fault}")
        return FAILED
    name = answer.address.name
    verdict = f"{name} is {answer.verdict}, {answer.words}"
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
