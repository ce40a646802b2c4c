"""What the node's host shows: its connections to the group, and the disks of its data and its log.

Another host, or a container with a network of its own, has no such connections and shows nothing. A
thread looks, because a file system that hangs would hold every health check.
"""

import contextlib
import os
import re
import threading
from collections.abc import Mapping
from pathlib import Path

_PORT = re.compile(rb"gmcast\.listen_addr = [^;]*:(\d+)")
# Port, the other end's address (the end of IPv6, which IPv4 is) and port, state, packets sent again
# in a row, and window probes, which stand for those that could not leave this host.
_ROW = re.compile(r": \w+:(\w+) \w*(\w{8}):(\w+) (\w+) \S+ \S+ (\w+) +\d+ +(\d+)")
_ESTABLISHED, _LISTENS = "01", "0A"
_LOST = 3
"""So many without an acknowledgement take 1.4 s or more."""
_FULL_BYTES = 1 << 20
_NOTHING = (False, False)


class Surroundings:
    """Looks around the node while it waits."""

    _seen = _NOTHING
    _looking: threading.Thread | None = None

    def look(
        self, variables: Mapping[bytes, bytes], members: int | None, *, waits: bool
    ) -> tuple[bool, bool]:
        """Return what the look before this one saw, and begin another.

        It is whether the node is cut off, and whether a disk is full. members: of the component.
        """
        seen, self._seen = self._seen, _NOTHING
        if not waits:
            return _NOTHING
        if self._looking is None or not self._looking.is_alive():
            arguments = variables, members or 0
            self._looking = threading.Thread(
                target=self._look, args=arguments, daemon=True
            )
            self._looking.start()
        return seen

    def _look(self, variables: Mapping[bytes, bytes], members: int) -> None:
        port = _PORT.search(variables.get(b"wsrep_provider_options", b""))
        lost = lost_peers(
            "".join(map(_text_of, ("tcp", "tcp6"))), int(port[1]) if port else 0
        )
        if lost is not None:
            log, _ = os.path.split(variables.get(b"log_bin_basename", b""))
            is_full = any(map(_is_full, (variables.get(b"datadir", b""), log)))
            self._seen = lost >= members - 1 > 0, is_full


def lost_peers(table: str, port: int) -> int | None:
    """Return how many members had a connection, if none has one that works; None if none had any.

    Galera closes one that does not work after 3 s, and tries to make others.
    """
    peers = set()
    works = False
    for ours, address, theirs, state, again, probes in _ROW.findall(table):
        if f"{port:04X}" in (ours, theirs) and state != _LISTENS:
            peers.add(address)
            is_lost = max(int(again, 16), int(probes)) >= _LOST
            works |= state == _ESTABLISHED and not is_lost
    return None if not peers else 0 if works else len(peers)


def _text_of(table: str) -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/self/net", table).read_text()
    return ""


def _is_full(folder: bytes) -> bool:
    with contextlib.suppress(OSError):
        disk = os.statvfs(folder)
        return disk.f_bavail * disk.f_frsize < _FULL_BYTES
    return False
