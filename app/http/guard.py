"""uvicorn's HTTP protocol with bounds, so that no client can cost another one its answer.

uvicorn itself lets a connection stay silent, trickle or send headers without end for as long as it likes; its own
limit (limit_concurrency) answers 503 under load, which to a load balancer means that the database is down. Tested
against the pinned version of uvicorn, whose internals this builds on.
"""

import asyncio
import logging
import resource
import time
from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import get_remote_addr, is_ssl

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

DEADLINE_SECONDS = 2.0
"""How long a connection may last, from accept to close."""

REQUEST_BYTES = 8192
"""How much a client may send before its request is complete."""

CONNECTIONS = 256
"""How many connections may be open; one more ends the oldest that is not being answered just now."""

_LAST_REQUEST_SECONDS = 0.2
"""How long, at the end of the service, a connection that was accepted may take for its request to arrive."""

_OTHER_DESCRIPTORS = 32
"""How many descriptors clients leave to everything else: without one for the database, a healthy node would be 503."""


IPNetwork = IPv4Network | IPv6Network

_log = logging.getLogger(__name__)
_TELL_SECONDS = 60.0


class GuardedProtocol(HttpToolsProtocol):
    """One connection, ended without an answer once it is over a bound. Never answers 503 for load."""

    def __init__(
        self,
        register: "ConnectionRegister",
        config: "Config",
        server_state: "ServerState",
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._register = register
        self._bytes = 0

    @property
    def being_answered(self) -> bool:
        """Whether a request has arrived whose answer is not yet complete."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Do what uvicorn does but ask the kernel for addresses, which no answer depends on; make room for it."""
        # uvicorn's own looks up both ends, seven system calls: a tenth of all that a probe costs.
        self.connections.add(self)
        self.transport = transport
        self.flow = FlowControl(transport)
        self.scheme = "https" if is_ssl(transport) else "http"
        if self._register.lets_in(transport):
            self._register.add(self)
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection no more."""
        self._register.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take in what belongs to a request, up to the bound."""
        self._bytes += len(data)
        if self._bytes <= REQUEST_BYTES:
            super().data_received(data)
        elif not self.being_answered:
            self.transport.abort()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the way back open for a client that has sent its request and closed its own side (nc -N)."""
        # Over TLS there is no half-closing, and asyncio warns if it is asked for.
        return self.being_answered and self.scheme == "http"

    def shutdown(self) -> None:
        """Let everybody who was accepted have an answer; uvicorn would hang up on whose request is on its way."""
        if self.cycle is None:
            self.loop.call_later(_LAST_REQUEST_SECONDS, super().shutdown)
        else:
            super().shutdown()


class ConnectionRegister:
    """Who may connect, the open connections in the order of their making, and one timer for the oldest.

    allowed: the networks that may connect; None for everybody. refused counts the connections of all others.
    """

    def __init__(self, allowed: Sequence[IPNetwork] | None = None) -> None:
        self.refused = 0
        self._allowed = None if allowed is None else tuple(allowed)
        self._told_at = -_TELL_SECONDS
        self._most = connections_within(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._made_at: dict[GuardedProtocol, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def lets_in(self, transport: asyncio.Transport) -> bool:
        """Whether a peer may connect; a unix socket's has no address, and its file has permissions of its own."""
        if self._allowed is None:
            return True
        client = get_remote_addr(transport)
        if client is None or _is_in(client[0], self._allowed):
            return True
        self.refused += 1
        now = time.monotonic()
        if now - self._told_at >= _TELL_SECONDS:
            self._told_at = now
            _log.warning(
                "hung up on %s, which is not in CLUSTERCHECK_ALLOW_FROM (%d so far; told once a minute)",
                client[0],
                self.refused,
            )
        return False

    def add(self, protocol: GuardedProtocol) -> None:
        """Begin the time of a new connection; end the oldest idle one if there are too many."""
        if len(self._made_at) >= self._most:
            idle = (other for other in self._made_at if not other.being_answered)
            self._end(next(idle, next(iter(self._made_at))))
        self._made_at[protocol] = time.monotonic()
        if self._timer is None:
            self._timer = protocol.loop.call_later(DEADLINE_SECONDS, self._end_overdue)

    def remove(self, protocol: GuardedProtocol) -> None:
        """Forget a connection that has ended."""
        self._made_at.pop(protocol, None)

    def _end(self, protocol: GuardedProtocol) -> None:
        self.remove(protocol)
        protocol.transport.abort()

    def _end_overdue(self) -> None:
        self._timer = None
        now = time.monotonic()
        for protocol, made_at in list(self._made_at.items()):
            left = made_at + DEADLINE_SECONDS - now
            if left > 0:
                self._timer = protocol.loop.call_later(left, self._end_overdue)
                return
            self._end(protocol)


def connections_within(descriptors: int) -> int:
    """Give the most connections that a limit on descriptors (ulimit -n) has room for."""
    if descriptors == resource.RLIM_INFINITY:
        return CONNECTIONS
    return min(CONNECTIONS, max(1, descriptors - _OTHER_DESCRIPTORS))


@lru_cache(maxsize=1024)
def _is_in(host: str, networks: tuple[IPNetwork, ...]) -> bool:
    address = ip_address(host)
    # What comes over IPv4 to a socket that serves both looks like this.
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any(address in network for network in networks)
