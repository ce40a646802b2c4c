"""The uvicorn server of this service: its sockets, its protocol, and how it stops."""

import asyncio
import signal
from collections.abc import Callable
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from app.http.guard import GuardedProtocol
from app.http.sources import Sources
from app.settings.listening import BACKLOG

_ANSWER_SECONDS = 1.0
"""How much later than the deadline held health checks may be answered while the service stops."""


class Server(uvicorn.Server):
    """A uvicorn server that stops when `ended` is set, with exit status 0.

    It answers the held health checks before. on_signal: called on the event loop with the name of
    each SIGTERM and SIGINT.
    """

    def __init__(
        self,
        application: ASGIApp,
        sources: Sources,
        on_signal: Callable[[str], object],
    ) -> None:
        self.ended = asyncio.Event()
        self._sources = sources
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
        # uvicorn answers 500 for what takes longer. An int for type checkers only: it is passed to
        # asyncio.wait_for.
        held_seconds = self._sources.settings.clustercheck_deadline
        self.config.timeout_graceful_shutdown = held_seconds + _ANSWER_SECONDS  # type: ignore[assignment]
