"""Resolves host names, and connects to their addresses.

A resolver that hangs blocks its thread for half a minute: there is one for each name.
"""

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from functools import partial

from app.deadline import deadline
from app.threads import in_thread

_NEXT_ADDRESS_SECONDS = 0.25
"""As in RFC 8305."""

_CONNECT_SECONDS = 1.5

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Resolver:
    """Looks up host names. A lookup goes on if its caller is cancelled, for the next one."""

    def __init__(self) -> None:
        self._lookups: dict[str, asyncio.Future[list[str]]] = {}

    async def addresses(self, host: str) -> list[str]:
        """Return the IP addresses of a host. Raises OSError, or UnicodeError if it is no name."""
        with contextlib.suppress(socket.gaierror):
            return _look_up(host, socket.AI_NUMERICHOST)
        if host not in self._lookups:
            self._lookups[host] = asyncio.wrap_future(
                in_thread(partial(_look_up, host))
            )
            # Perhaps nobody else retrieves the exception.
            self._lookups[host].add_done_callback(lambda done: done.exception())
        lookup = self._lookups[host]
        await asyncio.wait([lookup])
        del self._lookups[host]
        return lookup.result()


async def connect_to_first(addresses: Sequence[str], port: int) -> Streams:
    """Connect to the first address that accepts. Raises the OSError of the last."""
    *others, last = addresses
    for address in others:
        with contextlib.suppress(OSError):
            async with asyncio.timeout(_NEXT_ADDRESS_SECONDS):
                return await asyncio.open_connection(address, port)
    async with deadline(_CONNECT_SECONDS):
        return await asyncio.open_connection(last, port)


def _look_up(host: str, flags: int = 0) -> list[str]:
    entries = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=flags)
    # getnameinfo writes the zone of a link-local address.
    return [
        socket.getnameinfo(sockaddr, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0]
        for *_, sockaddr in entries
    ]
