"""Accepts connections, fairly, and stops without losing an answer."""

import asyncio
import socket
import sys
from collections import Counter
from contextlib import suppress
from functools import partial

from app.http.answers import Answers
from app.http.door import Door
from app.http.register import ConnectionRegister, client_of
from app.settings.listening import BACKLOG

_QUEUED, _QUEUED_OF_A_CLIENT = 256, 64
"""Beyond so many connections that wait to be accepted, a client keeps so many of them."""

_TCP_INFO_QUEUED = slice(24, 28)
"""tcpi_unacked of a listening socket: linux/tcp.h."""

_LAST_REQUEST_SECONDS = 0.2
"""How long an accepted connection may take to send its request while the service stops."""
_PAUSE_SECONDS = 0.02


class Server:
    """Listens until `ended` is set, and then waits for the answers that are held."""

    def __init__(
        self, listening: socket.socket, register: ConnectionRegister, answers: Answers
    ) -> None:
        self.ended = asyncio.Event()
        self._listening = listening
        self._register = register
        self._make_door = partial(Door, register, answers)
        register.on_sweep = self._thin_out_queue

    async def serve(self) -> None:
        """Serve until the end."""
        loop, doors = asyncio.get_running_loop(), self._register.doors
        accepting = await loop.create_server(
            self._make_door, sock=self._listening, backlog=BACKLOG
        )
        await self.ended.wait()
        accepting.close()
        end = loop.time() + _LAST_REQUEST_SECONDS
        while doors:
            await asyncio.sleep(_PAUSE_SECONDS)
            for door in list(doors) if loop.time() > end else ():
                door.settle(overdue=True)

    def _thin_out_queue(self) -> None:
        """If too many connections wait to be accepted, take a few of each client.

        The kernel has one queue for all. Behind 3,000 of one client, another would wait a second.
        """
        taken = []
        count: Counter[str | bytes] = Counter()
        with suppress(OSError):
            info = self._listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 28)
            queued = int.from_bytes(info[_TCP_INFO_QUEUED], sys.byteorder)
            for _ in range(queued if queued > _QUEUED else 0):
                waiting, (address, *_) = self._listening.accept()
                client = client_of(address)
                count[client] += 1
                if count[client] > _QUEUED_OF_A_CLIENT:
                    waiting.close()
                    self._register.closed["evicted"] += 1
                else:
                    taken.append(waiting)
        take = partial(
            asyncio.get_running_loop().connect_accepted_socket, self._make_door
        )
        self._taking = asyncio.gather(*map(take, taken), return_exceptions=True)
