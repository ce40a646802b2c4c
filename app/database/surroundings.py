"""What the node's host shows: its connections to the group, and the disks of its data and its log.

Another host, or a container with its own network, does not listen on the group's port, and shows
nothing. A thread looks, because a file system that hangs would hold every health check.
"""

import contextlib
import os
import re
from collections.abc import Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path

from app.threads import in_thread
from app.verdict.alone import IS_CUT, IS_FULL

# Port, the other end's address (as in IPv4, if IPv6 only holds one) and port, state, packets sent
# again in a row, and window probes, which stand for those that could not leave this host.
_ROW = re.compile(
    r": \w+:(\w+) (?:0{16}FFFF0000)?(\w+):(\w+) (\w+) \S+ \S+ (\w+) +\d+ +(\d+)"
)
_PORT_DIGITS = 5
_ESTABLISHED, _LISTENS = "01", "0A"
_LOST = 3
"""So many without an acknowledgement take 1.4 s or more."""
_FULL_BYTES = 1 << 20


class Surroundings:
    """Looks around the node while it waits."""

    _looking: Future[dict[str, int]] | None = None

    def look(
        self, variables: Mapping[bytes, bytes], members: int | None, *, waits: bool
    ) -> dict[str, int]:
        """Return what the look before this one has seen, and begin another."""
        looked = self._looking
        if looked and not looked.done():
            return {}
        self._looking = None
        if not waits:
            return {}
        self._looking = in_thread(partial(_seen, variables, members or 0))
        # At a limit of threads or open files, or with a path that cannot be one, nothing is seen.
        return looked.result() if looked and not looked.exception() else {}


def _seen(variables: Mapping[bytes, bytes], members: int) -> dict[str, int]:
    port = group_port_in(variables.get(b"wsrep_provider_options", b""))
    tables = Path("/proc/self/net").glob("tcp*")
    lost = lost_peers("".join(map(Path.read_text, tables)), port)
    # Of one member there is no other, and of two each has lost the other.
    if lost is None or members <= 1:
        return {}
    seen: dict[str, int] = {IS_CUT: lost >= members - 1 > 1}
    data = variables.get(b"datadir", b"")
    logs, _ = os.path.split(variables.get(b"log_bin_basename", b""))
    with contextlib.suppress(OSError):
        disks = map(os.statvfs, (data, logs or data))
        room = min(disk.f_bavail * disk.f_frsize for disk in disks)
        seen[IS_FULL] = room < _FULL_BYTES
    return seen


def group_port_in(options: bytes) -> int:
    """Return the port of gmcast.listen_addr of the provider's options, or 0."""
    _, _, address = options.partition(b"gmcast.listen_addr = ")
    port = address.partition(b";")[0].rpartition(b":")[2].strip()
    return int(port[:_PORT_DIGITS]) if port.isdigit() else 0


def lost_peers(table: str, port: int) -> int | None:
    """Return how many members had a connection, if none works; None if nobody listens on the port.

    Galera closes one that does not work after 3 s, and tries to make others.
    """
    peers = set()
    is_here = works = False
    # The loop runs between two rows, but not within one search for all.
    for row in _ROW.finditer(table):
        ours, address, theirs, state, again, probes = row.groups()
        if state == _LISTENS:
            is_here |= ours == f"{port:04X}"
        elif f"{port:04X}" in (ours, theirs):
            peers.add(address)
            is_lost = max(int(again, 16), int(probes)) >= _LOST
            works |= state == _ESTABLISHED and not is_lost
    return None if not is_here else 0 if works else len(peers)
