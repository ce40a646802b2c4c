"""The uvicorn server of this service: its sockets, its protocol, and how it stops."""

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from app.http.guard import ConnectionRegister, GuardedProtocol
from app.settings.files import SettingsError
from app.settings.settings import Settings

EVERY_ADDRESS = "*"

_BACKLOG = 4096
_ANSWER_SECONDS = 0.2
"""How long the answers of held health checks may take to leave while the service stops."""


class Server(uvicorn.Server):
    """A uvicorn server that stops when `ended` is set, with exit status 0.

    on_signal: called on the event loop with the name of each SIGTERM and SIGINT. give_up: called
    shortly before the server stops if answers are still held; it must release them.
    """

    def __init__(
        self,
        application: ASGIApp,
        register: ConnectionRegister,
        deadline_seconds: float,
        *,
        give_up: Callable[[], object],
        on_signal: Callable[[str], object],
    ) -> None:
        self.ended = asyncio.Event()
        self._give_up = give_up
        self._on_signal = on_signal
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
            )
        )
        self.use(application, deadline_seconds)

    def use(self, application: ASGIApp, deadline_seconds: float) -> None:
        """Have this application answer the connections from now on.

        deadline_seconds: how long it may hold an answer.
        """
        self._deadline_seconds = deadline_seconds
        self.config.loaded_app = application
        # An int for type checkers only: it is passed to asyncio.wait_for.
        self.config.timeout_graceful_shutdown = deadline_seconds + _ANSWER_SECONDS  # type: ignore[assignment]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 (a signal handler's signature)
        """Tell on_signal. uvicorn would raise the signal again, and change the exit status."""
        # On the loop: a signal handler must not log, because what it interrupts may hold the lock
        # of the log's queue.
        self._loop.call_soon_threadsafe(self._on_signal, signal.Signals(sig).name)

    async def main_loop(self) -> None:
        """Wait until told to stop. uvicorn's own loop wakes ten times a second."""
        await self.ended.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down, but first answer the held health checks, which uvicorn would answer 500."""
        giving_up = self._loop.call_later(self._deadline_seconds, self._give_up)
        await super().shutdown(sockets)
        giving_up.cancel()


def listening_socket(settings: Settings, kept: socket.socket | None) -> socket.socket:
    """Return a socket that listens as the settings say: kept if that does, or else a new one.

    Health checks that arrive before the first poll has ended wait there. Raises `SettingsError`.
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
        return socket.create_server(
            address, family=family, backlog=_BACKLOG, dualstack_ipv6=dual_stack
        )
    except (OSError, UnicodeError) as fault:
        if isinstance(fault, socket.gaierror | UnicodeError):
            words = "not an address or a host name"
        elif fault.errno == errno.EADDRINUSE:
            words = f"the port is in use; to see by which process, run: ss -ltnp 'sport = :{port}'"
        else:
            # Without the address, which Python adds to some of its own messages.
            words = os.strerror(fault.errno or 0)
        raise SettingsError(
            f"cannot listen on CLUSTERCHECK_HOST={host} CLUSTERCHECK_PORT={port}: {words}"
        ) from None


def _is_dual_stack(listening: socket.socket) -> bool:
    return listening.family == socket.AF_INET6 and not listening.getsockopt(
        socket.IPPROTO_IPV6, socket.IPV6_V6ONLY
    )


def _address(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    if host == EVERY_ADDRESS:
        return (
            (socket.AF_INET6, ("::", port))
            if socket.has_dualstack_ipv6()
            else (socket.AF_INET, ("0.0.0.0", port))  # noqa: S104 (who may connect: CLUSTERCHECK_ALLOW_FROM)
        )
    family, *_, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return family, (str(address[0]), port)
