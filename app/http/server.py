"""The uvicorn server of this service: who may fill its queue, and how it stops."""

import asyncio
import signal
import socket
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType

import uvicorn

from app.http.answers import Answers
from app.http.connections import ConnectionRegister, address_of, client_of
from app.http.door import Door
from app.settings.listening import BACKLOG

_QUEUED, _QUEUED_OF_A_CLIENT = 256, 64
"""Beyond so many connections that wait to be accepted, a client keeps so many of them."""

_LAST_REQUEST_SECONDS = 0.2
"""How long an accepted connection may take to send its request while the service stops."""
_PAUSE_SECONDS = 0.02
_LAST_ACCEPTED = 10
"""How often to look for connections that wait to be accepted, before the socket is closed."""
_TICK_SECONDS = 0.1

_TCP_INFO_QUEUED = slice(24, 28)
"""tcpi_unacked of a listening socket: linux/tcp.h."""


class Server(uvicorn.Server):
    """A uvicorn server that stops when it is told to, after the held answers.

    on_accepting: called once it accepts. on_signal: called on the event loop with the name of each
    SIGTERM and SIGINT.
    """

    def __init__(
        self,
        listening: socket.socket,
        register: ConnectionRegister,
        answers: Answers,
        *,
        on_accepting: Callable[[], object],
        on_signal: Callable[[str], object],
    ) -> None:
        self._on_accepting = on_accepting
        self._on_signal = on_signal
        self._patience_seconds = 0.0
        # Set once it accepts no more.
        self.has_closed = asyncio.Event()
        self._listening = listening
        self._register = register
        self._answers = answers
        self._has_clients = asyncio.Event()
        super().__init__(
            uvicorn.Config(
                answers.to,  # no protocol of uvicorn's will call it
                http=self._make_door,  # type: ignore[arg-type]
                interface="asgi3",
                ws="none",
                lifespan="off",
                backlog=BACKLOG,
                log_config=None,
            )
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 (a signal handler's signature)
        """Tell on_signal. uvicorn would raise the signal again, and change the exit status."""
        # On the loop: a signal handler must not log, because what it interrupts may hold the lock
        # of the log's queue.
        loop = asyncio.get_running_loop()
        loop.call_soon_threadsafe(self._on_signal, signal.Signals(sig).name)

    async def shutdown(self, sockets: object = None) -> None:  # noqa: ARG002 (uvicorn's signature)
        """Wait for what has connected. uvicorn's own sleeps while health checks wait."""
        loop, doors = asyncio.get_running_loop(), self._register.doors
        # Where a successor listens at another address, nobody else accepts these.
        for _ in range(_LAST_ACCEPTED):
            if not self._queued():
                break
            await asyncio.sleep(_PAUSE_SECONDS)
        for server in self.servers:
            server.close()
        self.has_closed.set()
        end = loop.time() + self._patience_seconds
        while doors:
            await asyncio.sleep(_PAUSE_SECONDS)
            for door in list(doors) if loop.time() > end else ():
                door.settle(overdue=True)

    def stop(self, patience_seconds: float = _LAST_REQUEST_SECONDS) -> None:
        """Begin to stop. Each request that is on its way has so many seconds to arrive."""
        self._patience_seconds = patience_seconds
        self.should_exit = True
        self._has_clients.set()

    async def main_loop(self) -> None:
        """Hold clients to their limits. uvicorn's own loop wakes ten times a second without any."""
        self._on_accepting()
        while not self.should_exit:
            await self._has_clients.wait()
            await asyncio.sleep(_TICK_SECONDS)
            self._thin_out_queue()
            self._register.sweep()
            if not self._register.doors:
                self._has_clients.clear()

    def _make_door(self, **_of_uvicorn: object) -> Door:
        self._has_clients.set()
        return Door(self._register, self._answers)

    def _queued(self) -> int:
        """Return how many connections wait to be accepted."""
        info = self._listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 28)
        return int.from_bytes(info[_TCP_INFO_QUEUED], sys.byteorder)

    def _thin_out_queue(self) -> None:
        """If too many connections wait to be accepted, take a few of each client.

        The kernel has one queue for all. Behind 3,000 of one client, another would wait a second.
        """
        taken = []
        count: Counter[str | bytes] = Counter()
        with suppress(OSError):
            queued = self._queued()
            for _ in range(queued if queued > _QUEUED else 0):
                waiting, peer = self._listening.accept()
                client = client_of(address_of(peer))
                count[client] += 1
                if count[client] > _QUEUED_OF_A_CLIENT:
                    waiting.close()
                    self._register.closed["evicted"] += 1
                else:
                    taken.append(waiting)
        if taken:
            take = partial(
                asyncio.get_running_loop().connect_accepted_socket, self._make_door
            )
            self._taking = asyncio.gather(*map(take, taken), return_exceptions=True)
