"""Resolves host names without blocking the event loop or the end of the process, and connects to their addresses.

A resolver that hangs blocks the calling thread for half a minute or longer, and nothing can interrupt that. asyncio and
uvloop use threads that the process joins when it exits. This module uses a daemon thread instead, which nothing joins,
and runs one lookup at a time.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_NEXT_ADDRESS_SECONDS = 0.25
"""How long to wait for one address before the next one is tried, as in RFC 8305. An address that drops packets, often
the IPv6 one, would otherwise use up the deadline at every poll, and a healthy node would never be reached."""

_Answer = list[str] | OSError | UnicodeError


@dataclass(frozen=True, slots=True)
class _Lookup:
    host: str
    answer: asyncio.Future[_Answer]


class Resolver:
    """Looks up one name at a time, for one event loop. A lookup continues if its caller is cancelled."""

    def __init__(self) -> None:
        self._lookup: _Lookup | None = None

    async def addresses(self, host: str) -> list[str]:
        """Return the IP addresses of a host, in the order to try them.

        If an earlier call for the same name was cancelled, its lookup is used. The caller sets the time limit. Raises
        OSError if the name has no address, and UnicodeError if it cannot be a name.
        """
        with contextlib.suppress(socket.gaierror):
            return _look_up(host, socket.AI_NUMERICHOST)
        if self._lookup is not None and self._lookup.host != host:
            await asyncio.wait([self._lookup.answer])
            self._lookup = None
        if self._lookup is None:
            self._lookup = _begin(host)
        # asyncio.wait does not cancel the future when this call is cancelled.
        await asyncio.wait([self._lookup.answer])
        answer = self._lookup.answer.result()
        self._lookup = None
        if isinstance(answer, list):
            return answer
        raise answer


async def connect_to_first(addresses: Sequence[str], port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a TCP connection to the first address that accepts one. Raises the OSError of the last."""
    *others, last = addresses
    for address in others:
        # This covers TimeoutError too, but not the deadline, which arrives as a CancelledError.
        with contextlib.suppress(OSError):
            async with asyncio.timeout(_NEXT_ADDRESS_SECONDS):
                return await asyncio.open_connection(address, port)
    return await asyncio.open_connection(last, port)


def _begin(host: str) -> _Lookup:
    loop = asyncio.get_running_loop()
    lookup = _Lookup(host, loop.create_future())

    def look_up() -> None:
        answer: _Answer
        try:
            answer = _look_up(host)
        except (OSError, UnicodeError) as fault:
            answer = fault
        # The loop may have been closed meanwhile.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(lookup.answer.set_result, answer)

    threading.Thread(target=look_up, name=f"resolver of {host}", daemon=True).start()
    return lookup


def _look_up(host: str, flags: int = 0) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=flags)
    return [_written(sockaddr) for *_, sockaddr in found]


def _written(sockaddr: tuple[Any, ...]) -> str:
    """Return the IP address, with its zone if it has one: link-local addresses need it."""
    address, *rest = sockaddr
    zone = rest[2] if len(rest) > 2 else 0  # noqa: PLR2004 (port, flow and zone of IPv6)
    return f"{address}%{zone}" if zone else f"{address}"
