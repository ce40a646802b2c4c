"""uvicorn as this service runs it: its sockets, its protocol, its way to stop."""

import asyncio
import logging
import os
import signal
import socket
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
_BACKLOG = 4096
_GRACE_SECONDS = 1


class ListenError(Exception):
    """A socket that cannot be had; the message is one line that names the setting."""


class Server(uvicorn.Server):
    """A uvicorn server that ends with exit code 0 on SIGTERM and SIGINT.

    drain_seconds: how long it goes on after the first signal, with switches.shutting_down set; a second signal ends
    it at once.
    """

    def __init__(
        self,
        application: "ASGIApp",
        register: ConnectionRegister,
        switches: ManualSwitches,
        drain_seconds: float,
    ) -> None:
        self._switches = switches
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
                timeout_keep_alive=_GRACE_SECONDS,
                timeout_graceful_shutdown=_GRACE_SECONDS,
            ),
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 (a signal handler's signature)
        """Stop. uvicorn's own handler would raise the signal once more at the end, and with it the exit code."""
        name = signal.Signals(sig).name
        if self._drain_seconds and not self._switches.shutting_down:
            _log.info("received %s, answering shutting-down for %g s", name, self._drain_seconds)
            self._switches.shutting_down = True
            self._end_after(self._drain_seconds)
        else:
            _log.info("received %s, stopping", name)
            self._end_after(0)

    async def main_loop(self) -> None:
        """Wait for the end. uvicorn's own looks for it ten times a second, a third of the CPU used at rest."""
        await self._ended.wait()

    def _end_after(self, seconds: float) -> None:
        # A signal handler runs between any two steps of the loop, which may be asleep: this call wakes it.
        self._loop.call_soon_threadsafe(self._loop.call_later, seconds, self._ended.set)


def listening_sockets(host: str, port: int) -> list[socket.socket]:
    """Give the sockets to serve on: those handed down by systemd, else one for host and port.

    They listen at once, so that probes which come before the first observation wait for it rather than fail.
    Raises `ListenError`.
    """
    sockets = _inherited_sockets() or [_tcp_socket(host, port)]
    for listening in sockets:
        listening.setblocking(False)  # noqa: FBT003 (socket's own signature)
        listening.listen(_BACKLOG)
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
    try:
        return [socket.socket(fileno=_FIRST_INHERITED_FD + i) for i in range(int(count) if count.isdecimal() else 0)]
    except OSError as fault:
        message = f"LISTEN_FDS={count}: {fault.strerror}"
        raise ListenError(message) from None


def _tcp_socket(host: str, port: int) -> socket.socket:
    try:
        if host == EVERY_ADDRESS:
            if socket.has_dualstack_ipv6():
                return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
            return socket.create_server(("", port))
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family)
    except (OSError, UnicodeError) as fault:
        words = getattr(fault, "strerror", None) or "no valid host name"
        message = f"cannot listen on CLUSTERCHECK_HOST={host} CLUSTERCHECK_PORT={port}: {words}"
        raise ListenError(message) from None
