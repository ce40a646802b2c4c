"""`clustercheckd reload`: have the service of this host read its settings again."""

import os
import re
import signal
import time
from datetime import UTC, datetime
from pathlib import Path

from app.commands.asking import Answer, ask, own_address
from app.commands.exit_status import DONE, FAILED, MISUSED, NOT_AVAILABLE
from app.commands.output import complain, say
from app.settings.source import Source
from app.verdict.reason import Reason

_SECONDS = 130.0
"""Longer than the new settings may take to read the node, and the old ones after them."""
_PAUSE_SECONDS = 0.05


def reload(source: Source) -> int:
    """Send SIGHUP, wait for the outcome and print it; return the exit status.

    Raises `SettingsError` if the settings do not lead to the service.
    """
    address = own_address(source)
    [before] = ask([address])
    sent_at = datetime.now(UTC)
    # systemd sets it for ExecReload=. Another unit's service may answer there.
    by_systemd = os.environ.get("MAINPID")
    main = by_systemd or str(before.pid)
    if fault := before.fault:
        fault += "; if its address has changed, run: systemctl restart clustercheckd"
    else:
        fault = _send_signal(main, address.port)
    if fault:
        complain(f"not reloaded: {address.name}: {fault}")
        return FAILED
    end = time.monotonic() + _SECONDS
    after = before
    # One that began before the signal may have read the settings of before.
    while after.last_reload.at is None or after.last_reload.at < sent_at:
        has_ended = after.fault and not Path(f"/proc/{main}").exists()
        if has_ended or after.reason == Reason.SHUTTING_DOWN:
            complain(f"not reloaded: {address.name}: {after.fault or after.words}")
            return FAILED
        if time.monotonic() > end:
            complain(f"{address.name}: no outcome within {_SECONDS:g} s: see its log")
            return FAILED
        time.sleep(_PAUSE_SECONDS)
        [after] = ask([address])
    # The journal has the service's own lines, too.
    return _told(before, after, is_in_log=bool(by_systemd))


def _told(before: Answer, after: Answer, *, is_in_log: bool) -> int:
    """Print the outcome of a reload; return the exit status."""
    outcome = after.last_reload
    if not is_in_log:
        refused = (f"not reloaded: {line}" for line in outcome.complaints)
        complain(*outcome.warnings, *refused)
    if outcome.complaints:
        return FAILED if outcome.failure else MISUSED
    was, now = before.otherwise or before, after.otherwise or after
    if not is_in_log:
        say(
            f"{after.address.name} uses the settings as they are now; its verdict was {was.reason}"
            f" and is {now.words}"
        )
    lost = []
    if was.available and not now.available:
        lost.append("the node was available and is not any more")
    if outcome.shut_out:
        clients = ", ".join(outcome.shut_out)
        lost.append(
            f"CLUSTERCHECK_ALLOW_FROM refuses {clients}, which asked in the last minute"
        )
    complain(*(f"{line}: reload no other node" for line in lost))
    return NOT_AVAILABLE if lost else DONE


def _send_signal(pid: str, port: int) -> str:
    """Send SIGHUP to the process of this host that listens there. Return why not, or nothing.

    pid: any program may have named it.
    """
    try:
        if _listens(Path(f"/proc/{pid}"), port):
            os.kill(int(pid), signal.SIGHUP)
            return ""
    except PermissionError as fault:
        return f"process {pid}: {fault.strerror}: run reload as root or as its user"
    except OSError:
        pass
    return (
        f"process {pid} does not listen there: give reload the flags of ExecStart=; if the service"
        " runs in a container, send SIGHUP there"
    )


def _listens(process: Path, port: int) -> bool:
    # proc(5): 0A is TCP_LISTEN, and the inode comes six columns later.
    row = re.compile(rf":{port:04X} \S+ 0A(?: +\S+){{5}} +(\d+)")
    tables = Path("/proc/self/net").glob("tcp*")
    sockets = {
        f"socket:[{inode}]"
        for table in tables
        for inode in row.findall(table.read_text())
    }
    # realpath takes one that is closed meanwhile.
    descriptors = map(os.path.realpath, (process / "fd").iterdir())
    return not sockets.isdisjoint(map(os.path.basename, descriptors))
