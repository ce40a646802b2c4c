"""`clustercheckd reload`: have the service of this host read its settings again."""

import os
import signal
import time
from pathlib import Path

from app.commands.asking import ask, own_service
from app.commands.exit_status import DONE, FAILED, MISUSED
from app.commands.output import complain, say
from app.settings.files import SettingsError
from app.settings.settings import Source

_SECONDS = 130.0
"""Longer than the new settings may take to read the node, and the old ones after them."""
_PAUSE_SECONDS = 0.05


def reload(source: Source) -> int:
    """Send SIGHUP, wait for the outcome and print it; return the exit status.

    Raises `SettingsError` if the settings do not lead to the service.
    """
    # systemd sets it for ExecReload=. That process is to try whatever answers, or does not: it
    # refuses too, and /status and alerts say why.
    main = int(os.environ.get("MAINPID") or 0)
    try:
        service = own_service(source)
    except SettingsError:
        _send_signal(main)
        raise
    [before] = ask([service])
    pid = before.pid or 0
    fault = _send_signal(main or pid)
    if before.fault:
        fault = f"{before.fault}; if its address has changed, run: systemctl restart clustercheckd"
    elif main not in (0, pid):
        # Another unit's settings may name this address.
        fault = f"process {pid} answers there: repeat ExecStart='s flags here"
    if fault:
        complain(f"not reloaded: {service.name}: {fault}")
        return FAILED
    end = time.monotonic() + _SECONDS
    outcome = before.last_reload
    while outcome.at in ("", before.last_reload.at):
        if time.monotonic() > end:
            complain(f"{service.name}: no outcome within {_SECONDS:g} s: see its log")
            return FAILED
        time.sleep(_PAUSE_SECONDS)
        [reply] = ask([service])
        outcome = reply.last_reload
    if not outcome.complaints:
        say(f"{service.name} uses the settings as they are now")
        return DONE
    complain(*(f"not reloaded: {line}" for line in outcome.complaints))
    return FAILED if outcome.failure else MISUSED


def _send_signal(pid: int) -> str:
    """Send SIGHUP to a process of this host that runs clustercheckd. Return why not, or nothing."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        names = [word.rpartition(b"/")[2] for word in command[:2]]
        if b"clustercheckd" in names or command[1:3] == [b"-m", b"app"]:
            os.kill(pid, signal.SIGHUP)
            return ""
    except PermissionError as fault:
        return f"process {pid}: {fault.strerror}: run reload as root or as its user"
    except OSError:
        pass
    # A container's service answers on this host, and its process has another number here.
    return "its process is not on this host: send it SIGHUP there"
