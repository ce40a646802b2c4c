"""Notifications to systemd, and the listening socket that it keeps over a restart.

sd_notify(3): datagrams of NAME=value lines to $NOTIFY_SOCKET.
"""

import asyncio
import errno
import os
import re
import socket
from collections.abc import Callable, Sequence

from app.verdict.rules import Verdict

_WATCHDOG_SECONDS = 1.0
"""How often the watchdog is fed. WatchdogSec= must be at least twice that."""
_HAND_OVER_SECONDS = 1.0
_STOP_SECONDS = 5.0
"""How long the service may take to stop after that."""

_FIRST_INHERITED_FD = 3  # SD_LISTEN_FDS_START, sd_listen_fds(3)
_KEPT = "listening"
"""The name under which systemd keeps the listening socket."""


class Systemd:
    """Sends notifications to systemd. Without an address, every method does nothing.

    is_heard: whether this is the main process. systemd ignores all others.
    """

    def __init__(self, address: str | None, *, is_heard: bool = True) -> None:
        self.is_heard = is_heard
        # An abstract address begins with a null byte, sd_notify(3).
        self._address = address and re.sub("^@", "\0", address)
        self._shown = ""

    async def feed_watchdog(self, is_alive: Callable[[], bool]) -> None:
        """Feed the watchdog while is_alive is true: without polls, systemd restarts us."""
        while self._address:
            if is_alive():
                self._send("WATCHDOG=1")
            await asyncio.sleep(_WATCHDOG_SECONDS)

    def show(self, verdict: Verdict) -> None:
        """Show the verdict in `systemctl status`; the first one makes the service ready."""
        status = f"READY=1\nSTATUS={verdict}"
        if status != self._shown and self._send(status):
            self._shown = status

    def stopping(self, held_seconds: float) -> None:
        """Announce the stop. It may take longer than TimeoutStopSec=."""
        microseconds = round((held_seconds + _STOP_SECONDS) * 1_000_000)
        self._send(f"STOPPING=1\nEXTEND_TIMEOUT_USEC={microseconds}")

    def keep(self, listening: socket.socket) -> None:
        """Store the socket in systemd, for the next process. Takes FileDescriptorStoreMax=."""
        if self._send(f"FDSTOREREMOVE=1\nFDNAME={_KEPT}"):
            self._send(f"FDSTORE=1\nFDNAME={_KEPT}", [listening.fileno()])

    @property
    def can_follow(self) -> bool:
        """Whether systemd would go on with another process: not with that of a container."""
        return bool(self._address) and os.getpid() != 1

    def hand_over(self, pid: int) -> None:
        """Make another process the main one. Raises OSError if systemd does not take that."""
        if not self._send(f"MAINPID={pid}", wait_seconds=_HAND_OVER_SECONDS):
            raise OSError(errno.EPIPE, "systemd does not answer")
        self.is_heard = False

    def _send(
        self,
        message: str,
        descriptors: Sequence[int] = (),
        wait_seconds: float = 0,
    ) -> bool:
        """Return whether systemd has taken a datagram."""
        if not self._address or not self.is_heard:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
                sending.settimeout(wait_seconds)
                sending.connect(self._address)
                socket.send_fds(sending, [message.encode()], descriptors)
        except OSError:
            return False
        return True


def kept_socket() -> socket.socket | None:
    """Return the listening socket from before a restart, if any."""
    # sd_listen_fds(3): the variables are valid only in the process with this id.
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    # Another unit may have handed down a socket of its own.
    names = os.environ.get("LISTEN_FDNAMES", "").split(":")
    if _KEPT not in names:
        return None
    return socket.socket(fileno=_FIRST_INHERITED_FD + names.index(_KEPT))
