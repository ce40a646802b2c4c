"""The uvicorn server of this service: its sockets, its protocol, and how it stops."""

import asyncio
import errno
import logging
import os
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from app.http.guard import ConnectionRegister, GuardedProtocol
from app.settings import Settings
from app.settings_error import SettingsError
from app.switches import ManualSwitches

if TYPE_CHECKING:
    from starlette.types import ASGIApp

EVERY_ADDRESS = "*"

_log = logging.getLogger(__name__)

_BACKLOG = 4096
_ANSWER_SECONDS = 0.2
"""How long the answers of held health checks may take to leave while the service stops."""


class Server(uvicorn.Server):
    """A uvicorn server that stops on SIGTERM and SIGINT, with exit status 0.

    After the first signal, it serves for CLUSTERCHECK_DRAIN_SECONDS, with switches.shutting_down set. A second signal
    stops it at once. on_stop: called after a signal, with the seconds that are left to serve. give_up: called shortly
    before the server stops if answers are still held; it must release them.

    Whoever sets `ended` stops it too, without a drain. signalled: whether a signal has told it to stop.
    """

    def __init__(
        self,
        settings: Settings,
        application: "ASGIApp",
        register: ConnectionRegister,
        switches: ManualSwitches,
        *,
        give_up: Callable[[], object],
        on_stop: Callable[[float], None],
    ) -> None:
        self.ended = asyncio.Event()
        self.signalled = False
        self._switches = switches
        self._give_up = give_up
        self._on_stop = on_stop
        self._settings = settings
        self._loop = asyncio.get_running_loop()

        class Protocol(GuardedProtocol):
            """A connection to this server."""

            _register = register

        super().__init__(
            uvicorn.Config(
                application,
                http=Protocol,
                ws="none",
                lifespan="off",
                backlog=_BACKLOG,
                access_log=False,
                log_config=None,
                server_header=False,
                date_header=False,
                # Do not trust what a client says about its own address.
                proxy_headers=False,
                # An int for type checkers only: it is passed to asyncio.wait_for.
                timeout_graceful_shutdown=settings.clustercheck_deadline + _ANSWER_SECONDS,  # type: ignore[arg-type]
            )
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 (a signal handler's signature)
        """Stop. uvicorn's own handler would raise the signal again at the end, and change the exit status."""
        # Leave the rest to the event loop, which this call wakes: a signal handler must not log, because the code that
        # it interrupts may hold the lock of the log's queue.
        self._loop.call_soon_threadsafe(self._stop, signal.Signals(sig).name)

    async def main_loop(self) -> None:
        """Wait until told to stop. uvicorn's own loop wakes ten times a second, a third of the idle CPU time."""
        await self.ended.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down as uvicorn does, but first answer the held health checks: uvicorn would answer them with 500."""
        giving_up = self._loop.call_later(self._settings.clustercheck_deadline, self._give_up)
        await super().shutdown(sockets)
        giving_up.cancel()

    def _stop(self, signal_name: str) -> None:
        seconds = 0.0 if self.signalled else self._settings.clustercheck_drain_seconds
        self.signalled = True
        self._on_stop(seconds)
        if seconds:
            _log.info("draining", extra={"signal": signal_name, "seconds": seconds})
            self._switches.shutting_down = True
            self._loop.call_later(seconds, self.ended.set)
        else:
            _log.info("stopping", extra={"signal": signal_name})
            self.ended.set()


def listening_socket(settings: Settings, kept: socket.socket | None) -> socket.socket:
    """Return a socket that listens as the settings say: kept if that does, or else a new one.

    It listens at once, so that health checks which arrive before the first poll has ended wait instead of failing.
    Raises `SettingsError` if that fails.
    """
    host, port = settings.clustercheck_host, settings.clustercheck_port
    try:
        family, address = _address(host, port)
        dual_stack = host == EVERY_ADDRESS and family == socket.AF_INET6
        if kept is not None:
            if (kept.getsockname()[:2], _is_dual_stack(kept)) == (address, dual_stack):
                return kept
            # systemd has it open too: closing alone would not free the port.
            kept.shutdown(socket.SHUT_RDWR)
        return socket.create_server(address, family=family, backlog=_BACKLOG, dualstack_ipv6=dual_stack)
    except (OSError, UnicodeError) as fault:
        if isinstance(fault, socket.gaierror | UnicodeError):
            words = "not an address or a host name"
        elif fault.errno == errno.EADDRINUSE:
            words = f"the port is in use; to see by which process, run: ss -ltnp 'sport = :{port}'"
        else:
            # Without the address, which Python adds to some of its own messages.
            words = os.strerror(fault.errno or 0)
        raise SettingsError(f"cannot listen on CLUSTERCHECK_HOST={host} CLUSTERCHECK_PORT={port}: {words}") from None


def address_of(listening: socket.socket) -> str:
    """Return a socket's address in a form for the log."""
    host, port = listening.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_dual_stack(listening: socket.socket) -> bool:
    return listening.family == socket.AF_INET6 and not listening.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)


def _address(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    if host == EVERY_ADDRESS:
        return (socket.AF_INET6, ("::", port)) if socket.has_dualstack_ipv6() else (socket.AF_INET, ("0.0.0.0", port))  # noqa: S104 (the default)
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    return family, (str(address[0]), port)
