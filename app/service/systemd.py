"""Notifications to systemd: ready, the verdict, alive, stopping.

Also the listening socket that outlives the process.

The protocol is that of sd_notify(3): datagrams of NAME=value lines to the socket in $NOTIFY_SOCKET.
The watchdog of systemd.service(5), WatchdogSec=, is fed while /livez answers 200. systemd therefore
also restarts a process that runs but no longer polls.
"""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from app.verdict.node_state import PollFailure
from app.verdict.rules import Verdict

_MICROSECONDS = 1_000_000
_FEEDINGS = 4
"""How many times the watchdog is fed within its timeout."""
_KEEP_SECONDS = 1.0
"""How long the start may wait for a busy systemd to take the listening socket."""
_STOP_SECONDS = 5.0
"""How long the service may take to stop after the drain."""

_FIRST_INHERITED_FD = 3  # SD_LISTEN_FDS_START, sd_listen_fds(3)
_KEPT = "listening"
"""The name of the listening socket."""


class Systemd:
    """Sends notifications to systemd. Without $NOTIFY_SOCKET, every method does nothing."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        # @ stands for the abstract namespace.
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._values: dict[str, str] = {}
        self._sent: dict[str, str] = {}
        self._watchdog_seconds = _watchdog_seconds(environ)

    async def feed_watchdog(self, is_alive: Callable[[], bool]) -> None:
        """Feed the watchdog while is_alive returns true, until cancelled."""
        while self._watchdog_seconds is not None:
            if is_alive():
                self._send("WATCHDOG=1")
            await asyncio.sleep(self._watchdog_seconds / _FEEDINGS)

    def show(self, verdict: Verdict, login_failure: PollFailure | None = None) -> None:
        """Show the verdict in `systemctl status`, and why logins fail.

        The first call makes the service ready.

        Each call also sends what systemd has not taken yet.
        """
        status = f"{verdict.word} {verdict.reason}: {verdict.detail}"
        if verdict.available and login_failure is not None:
            status += f"; its logins fail: {login_failure.reason}: {login_failure.detail}"
        self._tell(READY="1", STATUS=status)

    def stopping(self, drain_seconds: float) -> None:
        """Announce that the service stops, and ask for the drain's time, which may exceed
        TimeoutStopSec=.
        """
        microseconds = round((drain_seconds + _STOP_SECONDS) * _MICROSECONDS)
        self._tell(STOPPING="1", EXTEND_TIMEOUT_USEC=str(microseconds))

    def keep(self, listening: socket.socket) -> None:
        """Store the socket in systemd, which passes it to the next process of a restart, and closes
        it at a stop.

        That takes FileDescriptorStoreMax= in systemd.service(5). An earlier one goes.
        """
        if self._send(f"FDSTOREREMOVE=1\nFDNAME={_KEPT}", wait_seconds=_KEEP_SECONDS):
            self._send(f"FDSTORE=1\nFDNAME={_KEPT}", [listening.fileno()], _KEEP_SECONDS)

    def _tell(self, **values: str) -> None:
        """Send these values and earlier ones, except those that systemd has."""
        self._values |= values
        news = {
            name: value for name, value in self._values.items() if self._sent.get(name) != value
        }
        # systemd may be busy, for example with daemon-reload. No health check may wait for it.
        if news and self._send("\n".join(f"{name}={value}" for name, value in news.items())):
            self._sent |= news

    def _send(
        self, message: str, descriptors: Sequence[int] = (), wait_seconds: float = 0.0
    ) -> bool:
        """Send one datagram, and return whether systemd has taken it."""
        if not self._address:
            return False
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending,
        ):
            sending.settimeout(wait_seconds)
            sending.connect(self._address)
            socket.send_fds(sending, [message.encode()], descriptors)
            return True
        return False


def kept_socket() -> socket.socket | None:
    """Return the listening socket from before a restart or a reload, if there is one."""
    # sd_listen_fds(3): the variables are valid only in the process with this id.
    names = os.environ.get("LISTEN_FDNAMES", "").split(":")
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or _KEPT not in names:
        return None
    return socket.socket(fileno=_FIRST_INHERITED_FD + names.index(_KEPT))


def execute_again(listening: socket.socket) -> NoReturn:
    """Replace this process by what its command line starts, which gets the socket from
    `kept_socket`.
    """
    os.dup2(listening.fileno(), _FIRST_INHERITED_FD)
    os.set_inheritable(_FIRST_INHERITED_FD, True)  # noqa: FBT003 (os's own signature)
    os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()), LISTEN_FDNAMES=_KEPT)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 (no shell is wanted)


def _watchdog_seconds(environ: Mapping[str, str]) -> float | None:
    """Return the watchdog's timeout in seconds, None if it is off (sd_watchdog_enabled(3))."""
    microseconds = environ.get("WATCHDOG_USEC", "")
    if (
        environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid())
        or not microseconds.isdecimal()
    ):
        return None
    return int(microseconds) / _MICROSECONDS or None
