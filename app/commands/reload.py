"""`clustercheckd reload`: have a new process with the settings as they are now take over."""

import os
import re
import signal
import time
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

from app.commands.asking import REFUSED, Address, Answer, ask, own_address
from app.commands.exit_status import DONE, FAILED, MISUSED, NOT_AVAILABLE
from app.commands.output import complain, say
from app.commands.unit import is_stopped
from app.settings.source import Source
from app.text import host_and_port
from app.verdict.node_state import ELSEWHERE
from app.verdict.reason import Reason

_SECONDS = 70.0
"""Longer than the new process may take."""
_PAUSE_SECONDS = 0.05

_LOOPBACK = "127.0.0.1"
_NEVER = datetime.min.replace(tzinfo=UTC)


def reload(source: Source) -> int:
    """Send SIGHUP, wait for the outcome and print it; return the exit status.

    Raises `SettingsError` if the settings do not lead to the service.
    """
    address = place = own_address(source)
    # systemd sets it for ExecReload=. The settings may name another address now.
    main = os.environ.get("MAINPID")
    if main:
        place = next(iter(_listening(main)), address)
    [before] = ask([place])
    sent_at = datetime.now(UTC)
    if fault := before.fault:
        fault += "; if its address has changed, run: systemctl reload clustercheckd"
        if before.fault == REFUSED and is_stopped():
            fault = "it does not run: systemctl start clustercheckd"
    else:
        main = main or str(before.pid)
        fault = _send_signal(main, place.port)
    if fault:
        complain(f"not reloaded: {place.name}: {fault}")
        return FAILED
    end = time.monotonic() + _SECONDS
    after = before
    # One that began before the signal may have read the settings of before.
    while _reloaded_at(after) < sent_at:
        has_ended = after.fault and not Path(f"/proc/{main}").exists()
        if has_ended or after.reason == Reason.SHUTTING_DOWN:
            complain(f"not reloaded: {place.name}: {after.fault or after.words}")
            return FAILED
        if time.monotonic() > end:
            complain(f"{place.name}: no outcome within {_SECONDS:g} s: see its log")
            return FAILED
        time.sleep(_PAUSE_SECONDS)
        after = max(ask([*{place, address}]), key=_reloaded_at)
    return _told(before, after)


def _reloaded_at(answer: Answer) -> datetime:
    return answer.last_reload.at or _NEVER


def _told(before: Answer, after: Answer) -> int:
    """Print the outcome of a reload; return the exit status."""
    outcome = after.last_reload
    refused = (f"not reloaded: {line}" for line in outcome.complaints)
    complain(*outcome.warnings, *refused)
    if outcome.complaints:
        return FAILED if outcome.failure else MISUSED
    read = outcome.env_file or "no env file"
    say(
        f"{after.address.name} uses the settings as they are now, with {read}; its verdict was"
        f" {before.reason} and is {after.words}"
    )
    lost = []
    if after.node.elsewhere:
        if before.node.elsewhere:
            complain(ELSEWHERE)
        else:
            lost.append(ELSEWHERE)
    if before.available and not after.available:
        lost.append("the node was available and is not any more")
    if before.reason == Reason.DISABLED != after.reason:
        lost.append("the node was drained and is not any more")
    was, would = before.otherwise, after.otherwise
    if was and was.available and would and not would.available:
        lost.append(
            f"without the drain, the node would not be available: {would.words}"
        )
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
    if any(place.port == port for place in _listening(pid)):
        os.kill(int(pid), signal.SIGHUP)
        return ""
    return (
        f"process {pid} does not listen there, as far as this user sees: run reload as root, with"
        " the flags of ExecStart=; if the service runs in a container, restart that"
    )


def _listening(pid: str) -> list[Address]:
    """Return where a process listens, as far as this user may know."""
    # proc(5): 0A is TCP_LISTEN, and the inode comes six columns later.
    row = re.compile(r": (\w+):(\w+) \S+ 0A(?: +\S+){5} +(\d+)")
    try:
        # realpath takes one that is closed meanwhile.
        files = map(os.path.realpath, Path(f"/proc/{pid}/fd").iterdir())
        descriptors = set(map(os.path.basename, files))
    except OSError:
        return []
    tables = Path("/proc/self/net").glob("tcp*")
    rows = (found for table in tables for found in row.findall(table.read_text()))
    return [
        Address(host_and_port(host, port), host, port)
        for address, digits, inode in rows
        if f"socket:[{inode}]" in descriptors
        for host, port in [(_host(address), int(digits, 16))]
    ]


def _host(address: str) -> str:
    """Return an address of /proc/net as it is written elsewhere; of a wildcard, the loopback's."""
    packed = bytes.fromhex(address)
    if not any(packed):
        return _LOOPBACK
    # Each word is in the order of this host.
    words = (packed[at : at + 4][::-1] for at in range(0, len(packed), 4))
    return str(ip_address(b"".join(words)))
