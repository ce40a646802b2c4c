"""uvicorn as this service runs it: its sockets, its protocol, its way to stop."""

import asyncio
import errno
import logging
import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from app.http.guard import ConnectionRegister, GuardedProtocol
from app.switches import ManualSwitches

if TYPE_CHECKING:
    from starlette.types import ASGIApp

EVERY_ADDRESS = "*"

_log = logging.getLogger(__name__)

_FIRST_INHERITED_FD = 3  # SD_LISTEN_FDS_START, sd_listen_fds(3)
_FAMILIES = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
_BACKLOG = 4096
_GRACE_SECONDS = 1
_GIVE_UP_SECONDS = 0.8
"""How long held health checks may wait at the end of the service; the rest of the grace is for their answers."""


class ListenError(Exception):
    """A socket that cannot be had; the message is one line that names the setting."""


class Server(uvicorn.Server):
    """A uvicorn server that ends with exit code 0 on SIGTERM and SIGINT.

    drain_seconds: how long it goes on after the first signal, with switches.shutting_down set; a second signal ends
    it at once. on_stop is called when a signal has come, with the seconds that are left. give_up is called where
    answers are still held shortly before the end: it must let go of them.
    """

    def __init__(
        self,
        application: "ASGIApp",
        register: ConnectionRegister,
        switches: ManualSwitches,
        drain_seconds: float,
        *,
        give_up: Callable[[], object],
        on_stop: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._switches = switches
        self._give_up = give_up
        self._on_stop = on_stop
        self._drain_seconds = drain_seconds
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        super().__init__(
            uvicorn.Config(
                application,
                # Not a class but what makes one instance for each connection, which is all that uvicorn asks of it.
                http=partial(GuardedProtocol, register),  # type: ignore[arg-type]
                ws="none",
                lifespan="off",
                backlog=_BACKLOG,
                access_log=False,
                log_config=None,
                server_header=False,
                date_header=False,
                # Bytes from a client are no reason to believe what they say of its address.
                proxy_headers=False,
                timeout_graceful_shutdown=_GRACE_SECONDS,
            ),
        )

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until told to stop."""
        self._loop.add_signal_handler(signal.SIGHUP, _go_on)
        await super().serve(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 (a signal handler's signature)
        """Stop. uvicorn's own handler would raise the signal once more at the end, and with it the exit code."""
        # A signal handler runs between any two steps, and may find the lock of the log's queue taken by what it
        # interrupts. The loop, which this call wakes, does the rest.
        self._loop.call_soon_threadsafe(self._stop, signal.Signals(sig).name)

    async def main_loop(self) -> None:
        """Wait for the end. uvicorn's own looks for it ten times a second, a third of the CPU used at rest."""
        await self._ended.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End as uvicorn does, but answer what is held first: uvicorn would answer 500."""
        giving_up = self._loop.call_later(_GIVE_UP_SECONDS, self._give_up)
        await super().shutdown(sockets)
        giving_up.cancel()

    def _stop(self, signal_name: str) -> None:
        if self._drain_seconds and not self._switches.shutting_down:
            _log.info("draining", extra={"signal": signal_name, "seconds": self._drain_seconds})
            self._switches.shutting_down = True
            self._on_stop(self._drain_seconds)
            self._loop.call_later(self._drain_seconds, self._ended.set)
        else:
            _log.info("stopping", extra={"signal": signal_name})
            self._on_stop(0)
            self._ended.set()


def _go_on() -> None:
    read_again = "password file, option file and certificates are read at each connection to the server"
    detail = f"nothing to reload: settings are read at the start; {read_again}"
    _log.info("not reloaded", extra={"signal": "SIGHUP", "detail": detail})


def listening_sockets(host: str, port: int) -> list[socket.socket]:
    """Give the sockets to serve on: those handed down by systemd, else one for host and port.

    They listen at once, so that probes which come before the first observation wait for it rather than fail.
    Raises `ListenError`.
    """
    sockets = _inherited_sockets() or [_tcp_socket(host, port)]
    for listening in sockets:
        listening.setblocking(False)  # noqa: FBT003 (socket's own signature)
        try:
            listening.listen(_BACKLOG)
        except OSError as fault:
            message = f"cannot listen on {address_of(listening)}: {fault.strerror}"
            raise ListenError(message) from None
    return sockets


def address_of(listening: socket.socket) -> str:
    """Write a socket's address for the log."""
    address = listening.getsockname()
    if listening.family == socket.AF_UNIX:
        return str(address)
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _inherited_sockets() -> list[socket.socket]:
    # As sd_listen_fds(3) has it: the variables are meant for the process with this id only.
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return []
    count = os.environ.get("LISTEN_FDS", "")
    numbers = range(_FIRST_INHERITED_FD, _FIRST_INHERITED_FD + (int(count) if count.isdecimal() else 0))
    try:
        return [_inherited_socket(number) for number in numbers]
    except OSError as fault:
        message = f"LISTEN_FDS={count}: {fault.strerror}"
        raise ListenError(message) from None


def _inherited_socket(number: int) -> socket.socket:
    inherited = socket.socket(fileno=number)
    if inherited.family not in _FAMILIES or inherited.type != socket.SOCK_STREAM:
        message = f"LISTEN_FDS: descriptor {number} is no stream socket: the socket unit needs ListenStream="
        raise ListenError(message)
    try:
        inherited.getpeername()
    except OSError:
        return inherited
    message = f"LISTEN_FDS: descriptor {number} is a connection: the socket unit needs Accept=no"
    raise ListenError(message)


def _tcp_socket(host: str, port: int) -> socket.socket:
    try:
        if host == EVERY_ADDRESS:
            if socket.has_dualstack_ipv6():
                return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
            return socket.create_server(("", port))
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family)
    except (OSError, UnicodeError) as fault:
        number = fault.errno if isinstance(fault, OSError) else None
        if number == errno.EADDRINUSE:
            words = f"the port is in use; to see by which process, type: ss -ltnp 'sport = :{port}'"
        elif isinstance(fault, socket.gaierror) or number is None:
            words = "not an address or a host name"
        else:
            # Without the address, which Python adds to some of its own messages.
            words = os.strerror(number)
        message = f"cannot listen on CLUSTERCHECK_HOST={host} CLUSTERCHECK_PORT={port}: {words}"
        raise ListenError(message) from None
