"""The uvicorn server of this service: its sockets, its protocol, and how it stops."""

import asyncio
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from app.http.guard import GuardedProtocol
from app.http.sources import Sources
from app.settings.listening import BACKLOG

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
        sources: Sources,
        *,
        give_up: Callable[[], object],
        on_signal: Callable[[str], object],
    ) -> None:
        self.ended = asyncio.Event()
        self._sources = sources
        self._give_up = give_up
        self._on_signal = on_signal

        class Protocol(GuardedProtocol):
            """A connection to this server."""

            _register = sources.connections

        super().__init__(
            uvicorn.Config(
                application,
                http=Protocol,
                ws="none",
                lifespan="off",
                backlog=BACKLOG,
                access_log=False,
                log_config=None,
                # Do not trust what a client says about its own address.
                proxy_headers=False,
            )
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 (a signal handler's signature)
        """Tell on_signal. uvicorn would raise the signal again, and change the exit status."""
        # On the loop: a signal handler must not log, because what it interrupts may hold the lock
        # of the log's queue.
        loop = asyncio.get_running_loop()
        loop.call_soon_threadsafe(self._on_signal, signal.Signals(sig).name)

    async def main_loop(self) -> None:
        """Wait. uvicorn's own loop wakes ten times a second."""
        await self.ended.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down, but first answer the held health checks, which uvicorn would answer 500."""
        deadline_seconds = self._sources.settings.clustercheck_deadline
        # An int for type checkers only: it is passed to asyncio.wait_for.
        self.config.timeout_graceful_shutdown = deadline_seconds + _ANSWER_SECONDS  # type: ignore[assignment]
        loop = asyncio.get_running_loop()
        giving_up = loop.call_later(deadline_seconds, self._give_up)
        await super().shutdown(sockets)
        giving_up.cancel()
