"""`clustercheckd reload`: have the service of this host read its settings again."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from app.commands.asking import Reload, Service, ask
from app.commands.exit_status import DONE, FAILED, MISUSED
from app.commands.output import complain, say
from app.settings.files import SettingsError

_SECONDS = 130.0
"""Longer than the new settings may take to read the node, and the old ones after them."""
_PAUSE_SECONDS = 0.05


def reload(find_service: Callable[[], Service]) -> int:
    """Send SIGHUP, wait for the outcome and print it; return the exit status.

    Raises `SettingsError` if the settings do not lead to the service.
    """
    # systemd sets it for ExecReload=. Another unit's settings may name this address.
    main = int(os.environ.get("MAINPID") or 0)
    try:
        service = find_service()
    except SettingsError:
        _signal(main)
        raise
    [before] = ask([service])
    pid = before.status.pid
    if before.fault or (main and pid != main):
        _signal(main)
        restart = "if its address has changed, run: systemctl restart clustercheckd"
        other = f"process {pid} answers there: repeat ExecStart='s flags here"
        return _failed(
            f"{service.name}: {f'{before.fault}; {restart}' if before.fault else other}"
        )
    # A container's service answers on this host, and its process has another number here.
    if pid is None or not _is_clustercheckd(pid):
        return _failed(
            f"{service.name}: its process is not on this host: send it SIGHUP there"
        )
    try:
        os.kill(pid, signal.SIGHUP)
    except OSError as fault:
        return _failed(
            f"process {pid}: {fault.strerror}: run reload as root or as its user"
        )
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        [reply] = ask([service])
        outcome = reply.status.last_reload
        if outcome.at not in ("", before.status.last_reload.at):
            return _tell(service, outcome)
        time.sleep(_PAUSE_SECONDS)
    complain(f"{service.name}: no outcome within {_SECONDS:g} s: see its log")
    return FAILED


def _signal(main: int) -> None:
    """Have systemd's process try all the same: it refuses too, and /status and alerts say why."""
    if main and _is_clustercheckd(main):
        os.kill(main, signal.SIGHUP)


def _tell(service: Service, outcome: Reload) -> int:
    if outcome.successful:
        say(f"{service.name} uses the settings as they are now")
        return DONE
    for line in outcome.complaints:
        complain(f"not reloaded: {line}")
    return FAILED if outcome.failure else MISUSED


def _failed(line: str) -> int:
    complain(f"not reloaded: {line}")
    return FAILED


def _is_clustercheckd(pid: int) -> bool:
    """Return whether a process of this host runs clustercheckd, or hides what it runs."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except PermissionError:
        # It does not get the signal either.
        return True
    except OSError:
        return False
    is_program = any(
        word.rpartition(b"/")[2] == b"clustercheckd" for word in command[:2]
    )
    return is_program or command[1:3] == [b"-m", b"app"]
