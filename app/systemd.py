"""What systemd is told about the service: ready, its verdict, alive, stopping.

The protocol of sd_notify(3): datagrams of NAME=value lines to the socket that $NOTIFY_SOCKET names. The watchdog is
that of systemd.service(5), WatchdogSec=: it is fed by observations, so a process that runs but no longer observes is
restarted as well.
"""

import os
import socket
import time
from collections.abc import Mapping

from app.verdict import Verdict

_MICROSECONDS = 1_000_000
_FEEDINGS = 4
"""How often the watchdog is fed within its time."""
_WATCHDOG_FACTOR = 1.5
"""How much longer than the monitor's longest silence the watchdog's time must be: a feeding may be due only shortly
after an observation, and then comes with the next one."""
_END_SECONDS = 5.0
"""How long the end itself may take, after the drain."""


class Systemd:
    """Tells systemd how the service does. Without $NOTIFY_SOCKET, every method does nothing.

    longest_silence_seconds: how long a monitor that works may take from one observation to the next. A WatchdogSec=
    too short for that is raised, because it would kill a service that works.
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

    def observed(self) -> None:
        """Take note that an observation has ended, failed or not. The first one makes the service ready."""
        if not self._ready:
            self._ready = True
            self._unsent["READY"] = "1"
        now = time.monotonic()
        hungry = self._watchdog_seconds is not None and now - self._fed_at >= self._watchdog_seconds / _FEEDINGS
        if (hungry or self._unsent) and self._send("WATCHDOG=1\n" if hungry else "") and hungry:
            self._fed_at = now

    def changed(self, verdict: Verdict) -> None:
        """Show a new verdict in `systemctl status`."""
        word = "available" if verdict.available else "NOT available"
        self._unsent["STATUS"] = f"{word} {verdict.reason}: {verdict.detail}"
        self._send()

    def stopping(self, drain_seconds: float) -> None:
        """Announce the end, and ask for the time that the drain takes, which may exceed TimeoutStopSec=."""
        self._unsent["STOPPING"] = "1"
        self._unsent["EXTEND_TIMEOUT_USEC"] = _microseconds(drain_seconds + _END_SECONDS)
        self._send()

    def _send(self, feed: str = "") -> bool:
        """Send what is unsent. What systemd cannot take now is kept for the next call; only a feeding is not."""
        if self._address is None:
            self._unsent.clear()
            return True
        message = feed + "".join(f"{name}={value}\n" for name, value in self._unsent.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
                # systemd may be busy (daemon-reload): no answer to a health check waits for it.
                sending.setblocking(False)  # noqa: FBT003 (socket's own signature)
                sending.sendto(message.encode(), self._address)
        except OSError:
            return False
        self._unsent.clear()
        return True


def _address(environ: Mapping[str, str]) -> str | None:
    address = environ.get("NOTIFY_SOCKET", "")
    # A path, or @ for a name in the abstract namespace. systemd has others (vsock), none of them for a service.
    if not address.startswith(("/", "@")):
        return None
    return f"\0{address[1:]}" if address.startswith("@") else address


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    """Return the watchdog's time in seconds, None where there is none (sd_watchdog_enabled(3))."""
    microseconds = environ.get("WATCHDOG_USEC", "")
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()) or not microseconds.isdecimal():
        return None
    return int(microseconds) / _MICROSECONDS or None


def _microseconds(seconds: float) -> str:
    return str(round(seconds * _MICROSECONDS))
