"""Host names to addresses, without ever waiting for a resolver longer than one is told to.

A resolver that hangs blocks the thread that asked it, for half a minute or longer, and nothing can call it back.
asyncio and uvloop ask in threads that the process waits for as it ends. So the question is asked in a daemon thread,
which nothing waits for, and no second one is asked before it is answered.
"""

import asyncio
import contextlib
import socket
import threading
from dataclasses import dataclass
from typing import Any

_Answer = list[str] | OSError | UnicodeError


@dataclass(frozen=True, slots=True)
class _Lookup:
    host: str
    answer: asyncio.Future[_Answer]


class Resolver:
    """Looks up one name at a time, for one event loop. A lookup goes on when who asked is cancelled."""

    def __init__(self) -> None:
        self._lookup: _Lookup | None = None

    async def addresses(self, host: str) -> list[str]:
        """Return the IP addresses of a host, in the order to try them.

        The answer to a question that was given up is taken where the same name is asked for again. Raise OSError for
        a name that has no address, UnicodeError for what cannot be a name.
        """
        with contextlib.suppress(socket.gaierror):
            return _look_up(host, socket.AI_NUMERICHOST)
        if self._lookup is not None and self._lookup.host != host:
            await asyncio.wait([self._lookup.answer])
            self._lookup = None
        if self._lookup is None:
            self._lookup = _begin(host)
        # It neither cancels what it waits for nor raises what comes of it.
        await asyncio.wait([self._lookup.answer])
        answer = self._lookup.answer.result()
        self._lookup = None
        if isinstance(answer, list):
            return answer
        raise answer


def _begin(host: str) -> _Lookup:
    loop = asyncio.get_running_loop()
    lookup = _Lookup(host, loop.create_future())

    def look_up() -> None:
        answer: _Answer
        try:
            answer = _look_up(host)
        except (OSError, UnicodeError) as fault:
            answer = fault
        # Nobody is there to be told once the loop has been closed.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(lookup.answer.set_result, answer)

    threading.Thread(target=look_up, name=f"resolver of {host}", daemon=True).start()
    return lookup


def _look_up(host: str, flags: int = 0) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=flags)
    return [_written(sockaddr) for *_, sockaddr in found]


def _written(sockaddr: tuple[Any, ...]) -> str:
    """Write an address with its zone, which link-local ones need."""
    address, *rest = sockaddr
    zone = rest[2] if len(rest) > 2 else 0  # noqa: PLR2004 (port, flow and zone of IPv6)
    return f"{address}%{zone}" if zone else f"{address}"
