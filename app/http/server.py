"""The uvicorn server of this service: its sockets, its protocol, and how it stops."""

import asyncio
import signal
from collections.abc import Callable
from types import FrameType

import uvicorn

from app.http.answers import Answers
from app.http.door import Door
from app.http.register import ConnectionRegister
from app.settings.listening import BACKLOG


class Server(uvicorn.Server):
    """A uvicorn server that stops when `ended` is set, with exit status 0.

    It answers the held health checks before: each has a deadline, and the guard ends the other
    connections. on_signal: called on the event loop with the name of each SIGTERM and SIGINT.
    """

    def __init__(
        self,
        answers: Answers,
        register: ConnectionRegister,
        on_signal: Callable[[str], object],
    ) -> None:
        self.ended = asyncio.Event()
        self._on_signal = on_signal
        super().__init__(
            uvicorn.Config(
                answers.to,  # no protocol of uvicorn's will call it
                http=lambda **_: Door(register, answers),  # type: ignore[arg-type]
                interface="asgi3",
                ws="none",
                lifespan="off",
                backlog=BACKLOG,
                log_config=None,
            )
        )
        # Those that uvicorn shuts down as it stops, and waits for.
        self.server_state.connections = register.doors  # type: ignore[assignment]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 (a signal handler's signature)
        """Tell on_signal. uvicorn would raise the signal again, and change the exit status."""
        # On the loop: a signal handler must not log, because what it interrupts may hold the lock
        # of the log's queue.
        loop = asyncio.get_running_loop()
        loop.call_soon_threadsafe(self._on_signal, signal.Signals(sig).name)

    async def main_loop(self) -> None:
        """Wait. uvicorn's own loop wakes ten times a second."""
        await self.ended.wait()
