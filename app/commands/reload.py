"""`clustercheckd reload`: have the service of this host read its settings again."""

import os
import signal
import time
from datetime import datetime
from pathlib import Path

from app.commands.asking import Reload, Service, ask
from app.commands.exit_status import DONE, FAILED, MISUSED
from app.commands.output import complain, say

_SECONDS = 75.0
"""Longer than the longest CLUSTERCHECK_POLL_INTERVAL: the new settings take over with a poll."""
_PAUSE_SECONDS = 0.05


def reload(service: Service) -> int:
    """Send SIGHUP, wait for the outcome and print it; return the exit status."""
    [before] = ask([service])
    if before.fault:
        restart = "if its address has changed, run: systemctl restart clustercheckd"
        return _failed(f"{service.name}: {before.fault}; {restart}")
    # systemd sets it for ExecReload=. Another unit's settings may name this address.
    main = os.environ.get("MAINPID")
    pid = before.status.pid
    if main and str(pid) != main:
        return _failed(f"{service.name} is not process {main}: repeat ExecStart='s flags here")
    # A container's service answers on this host, and its process has another number here.
    if pid is None or not _is_clustercheckd(pid):
        return _failed(f"{service.name}: its process is not on this host: send it SIGHUP there")
    asked_at = time.time()
    try:
        os.kill(pid, signal.SIGHUP)
    except OSError as fault:
        return _failed(f"process {pid}: {fault.strerror}: run reload as root or as its user")
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        [reply] = ask([service])
        outcome = reply.status.last_reload
        if _seconds_of(outcome.at) >= asked_at - 0.001:
            return _tell(service, outcome)
        time.sleep(_PAUSE_SECONDS)
    complain(f"{service.name}: no outcome within {_SECONDS:g} s: see its log")
    return FAILED


def _seconds_of(at: str) -> float:
    # Any program may have answered.
    try:
        return datetime.fromisoformat(at).timestamp()
    except (ValueError, OverflowError):
        return 0.0


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
    is_program = any(word.rpartition(b"/")[2] == b"clustercheckd" for word in command[:2])
    return is_program or command[1:3] == [b"-m", b"app"]
