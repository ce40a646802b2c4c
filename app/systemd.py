"""Notifications to systemd: ready, the verdict, alive, stopping.

The protocol is that of sd_notify(3): datagrams of NAME=value lines to the socket in $NOTIFY_SOCKET. Each poll that
ends feeds the watchdog of systemd.service(5), WatchdogSec=. systemd therefore also restarts a process that runs but no
longer polls.
"""

import contextlib
import os
import socket
import time
from collections.abc import Mapping

from app.verdict import Verdict

_MICROSECONDS = 1_000_000
_FEEDINGS = 4
"""How many times the watchdog is fed within its timeout."""
_WATCHDOG_FACTOR = 1.5
"""How many times the monitor's longest silence the watchdog's timeout must be. A feeding that becomes due just after a
poll has ended is sent when the next one ends."""
_KEEP_SECONDS = 1.0
"""How long the start may wait for a busy systemd to take the listening socket."""
_STOP_SECONDS = 5.0
"""How long the service may take to stop after the drain."""


class Systemd:
    """Sends notifications to systemd. Without $NOTIFY_SOCKET, every method does nothing.

    longest_silence_seconds: the longest time between the ends of two polls of a monitor that works. If WatchdogSec= is
    too short for that, clustercheckd asks systemd for more: systemd would otherwise kill a service that works.
    """

    def __init__(self, environ: Mapping[str, str], longest_silence_seconds: float) -> None:
        self._address = _address(environ)
        self._unsent: dict[str, str] = {}
        self._ready = False
        self._watchdog_seconds = _watchdog_seconds(environ)
        self._fed_at = float("-inf")
        shortest = _WATCHDOG_FACTOR * longest_silence_seconds
        if self._watchdog_seconds is not None and self._watchdog_seconds < shortest:
            self._watchdog_seconds = shortest
            self._unsent["WATCHDOG_USEC"] = _microseconds(shortest)

    def polled(self) -> None:
        """Record that a poll has ended, failed or not. The first call makes the service ready."""
        if not self._ready:
            self._ready = True
            self._unsent["READY"] = "1"
        now = time.monotonic()
        feed_due = self._watchdog_seconds is not None and now - self._fed_at >= self._watchdog_seconds / _FEEDINGS
        if (feed_due or self._unsent) and self._send("WATCHDOG=1\n" if feed_due else "") and feed_due:
            self._fed_at = now

    def changed(self, verdict: Verdict) -> None:
        """Show a new verdict in `systemctl status`."""
        word = "available" if verdict.available else "NOT available"
        self._unsent["STATUS"] = f"{word} {verdict.reason}: {verdict.detail}"
        self._send()

    def stopping(self, drain_seconds: float) -> None:
        """Announce that the service stops, and ask for the drain's time, which may exceed TimeoutStopSec=."""
        self._unsent["STOPPING"] = "1"
        self._unsent["EXTEND_TIMEOUT_USEC"] = _microseconds(drain_seconds + _STOP_SECONDS)
        self._send()

    def keep(self, listening: socket.socket, name: str) -> None:
        """Store a socket in systemd, which passes it to the next process of a restart, and closes it at a stop.

        That takes FileDescriptorStoreMax= in systemd.service(5). An earlier one of this name goes.
        """
        if self._address is None:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.settimeout(_KEEP_SECONDS)
            sending.connect(self._address)
            sending.send(f"FDSTOREREMOVE=1\nFDNAME={name}".encode())
            socket.send_fds(sending, [f"FDSTORE=1\nFDNAME={name}".encode()], [listening.fileno()])

    def _send(self, feed: str = "") -> bool:
        """Send feed and the unsent values; return whether that worked. Keep the values for the next call if not."""
        if self._address is None:
            self._unsent.clear()
            return True
        message = feed + "".join(f"{name}={value}\n" for name, value in self._unsent.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
                # systemd may be busy, for example with daemon-reload. No health check may wait for it.
                sending.setblocking(False)  # noqa: FBT003 (socket's own signature)
                sending.sendto(message.encode(), self._address)
        except OSError:
            return False
        self._unsent.clear()
        return True


def _address(environ: Mapping[str, str]) -> str | None:
    address = environ.get("NOTIFY_SOCKET", "")
    # A path, or @ and a name in the abstract namespace. systemd uses other kinds (vsock) only for virtual machines.
    if not address.startswith(("/", "@")):
        return None
    return f"\0{address[1:]}" if address.startswith("@") else address


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    """Return the watchdog's timeout in seconds, None if it is off (sd_watchdog_enabled(3))."""
    microseconds = environ.get("WATCHDOG_USEC", "")
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()) or not microseconds.isdecimal():
        return None
    return int(microseconds) / _MICROSECONDS or None


def _microseconds(seconds: float) -> str:
    return str(round(seconds * _MICROSECONDS))
