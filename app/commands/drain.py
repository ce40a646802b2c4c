"""`clustercheckd drain` and `undrain`: create or remove the disabled file.

Both then ask the service whether it sees that.
"""

import os
from contextlib import suppress
from pathlib import Path

from app.commands.asking import ask, own_address
from app.commands.exit_status import DONE, FAILED
from app.commands.output import complain, say
from app.settings.disabled_file import switches_now
from app.settings.error import SettingsError
from app.settings.source import Source
from app.verdict.reason import Reason

_TMPFILES = ("/usr/lib/tmpfiles.d", "/run/tmpfiles.d", "/etc/tmpfiles.d")
_CLEANED = ("/tmp/", "/var/tmp/")  # noqa: S108 (where, not what)
_BOOTED = Path("/run/systemd/system")
"""It exists if systemd runs: sd_booted(3)."""


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
        say(switches_now(disabled_file).disabled_file or disabled_file)
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
        # On a full disk, the file is there all the same.
        with file, suppress(OSError):
            if words := " ".join((reason or "").split()):
                file.write(f"{words}\n".encode(errors="replace"))
        say(f"created {disabled_file}; to remove it, run: clustercheckd undrain")
    if not _is_kept(disabled_file):
        complain(
            f"systemd-tmpfiles may remove {disabled_file} after some days; to keep it, run:"
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
    settings, warnings = source.load("clustercheck_disabled_file")
    complain(*warnings)
    return settings.clustercheck_disabled_file


def _is_kept(path: str) -> bool:
    """Return whether systemd-tmpfiles leaves a file alone, as tmpfiles.d(5) says."""
    if not path.startswith(_CLEANED) or not _BOOTED.exists():
        return True
    files = (file for place in _TMPFILES for file in Path(place).glob("*.conf"))
    texts = [file.read_bytes() for file in files if file.is_file()]
    return f"x {path}" in b"\n".join(texts).decode(errors="replace").splitlines()


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
