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
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any, NoReturn

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.utils import get_remote_addr

from app.settings import IPNetwork

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

DEADLINE_SECONDS = 2.0
"""How long a connection may last, from accept to close; the time that its answer is held does not count."""

REQUEST_BYTES = 8192
"""How much a client may send before its request is complete."""

TARGET_BYTES, HEADER_FIELDS = 1024, 100
"""How long a request's target may be, and how many header fields it may have: decoding more of either would cost more
than the answer."""

CONNECTIONS = 256
"""How many connections may be open. One more ends the oldest silent one or, where there is none, the oldest that waits
for its answer."""

_LAST_REQUEST_SECONDS = 0.2
"""How long, at the end of the service, a connection that was accepted may take for its request to arrive."""

_OTHER_DESCRIPTORS = 32
"""How many descriptors clients leave to everything else: without one for the database, a healthy node would be 503."""

_log = logging.getLogger(__name__)
_TELL_SECONDS = 60.0


class RefusedRequestError(Exception):
    """A request over a bound. Raised in the parser's callbacks, where it makes uvicorn answer 400."""


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
        self._refusal: str | None = None

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
        self.scheme = "http"
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
            self._register.oversized += 1
            self.transport.abort()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the way back open for a client that has sent its request and closed its own side (nc -N)."""
        return self.being_answered

    def on_headers_complete(self) -> None:
        """Begin the answer. It ends the connection, and uvicorn adds `connection: close` to it."""
        super().on_headers_complete()
        self.cycle.keep_alive = False

    def on_message_begin(self) -> None:
        """Begin the request of a connection, of which there is one: its answer ends the connection."""
        # 8 KiB hold 450 pipelined requests, each with objects of its own, and none would ever be answered.
        if self.cycle is not None:
            self._refuse("one request per connection")
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take in the target, up to the bound."""
        super().on_url(url)
        if len(self.url) > TARGET_BYTES:
            self._refuse(f"the request's target is longer than {TARGET_BYTES} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take in a header field, up to the bound."""
        super().on_header(name, value)
        if len(self.headers) > HEADER_FIELDS:
            self._refuse(f"the request has more than {HEADER_FIELDS} header fields")

    def on_body(self, body: bytes) -> None:
        """Drop it: no answer depends on a body, and each chunk of one would be work."""

    def send_400_response(self, msg: str) -> None:
        """Answer a request that cannot be read; what follows one that was read does not cost it its answer."""
        if self.cycle is None:
            self._register.malformed += 1
            super().send_400_response(f"{self._refusal or msg}\r\n")

    def _refuse(self, why: str) -> NoReturn:
        self._refusal = why
        raise RefusedRequestError(why)

    def shutdown(self) -> None:
        """Leave a request that is on its way the time to arrive; uvicorn would close the connection at once."""
        self.loop.call_later(_LAST_REQUEST_SECONDS, super().shutdown)


class ConnectionRegister:
    """Who may connect, the open connections in the order of their making, and one timer for the oldest.

    allowed: the networks that may connect; None for everybody. It counts what it closed without an answer: refused,
    connections from other networks; evicted, to make room for another; timed_out, after DEADLINE_SECONDS; oversized,
    above REQUEST_BYTES. malformed counts the requests that got a 400 because they could not be read.
    """

    def __init__(self, allowed: Sequence[IPNetwork] | None = None) -> None:
        self.refused = 0
        self.evicted = 0
        self.timed_out = 0
        self.oversized = 0
        self.malformed = 0
        self._allowed = None if allowed is None else tuple(allowed)
        self._told_at = -_TELL_SECONDS
        self._most = connections_within(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._made_at: dict[GuardedProtocol, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return how many connections are open."""
        return len(self._made_at)

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
            detail = "not in CLUSTERCHECK_ALLOW_FROM; logged once a minute"
            _log.warning("client refused", extra={"client": client[0], "count": self.refused, "detail": detail})
        return False

    def add(self, protocol: GuardedProtocol) -> None:
        """Begin the time of a new connection; end the oldest idle one if there are too many."""
        if len(self._made_at) >= self._most:
            idle = (other for other in self._made_at if not other.being_answered)
            self.evicted += 1
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
        wait_seconds = DEADLINE_SECONDS
        for protocol, made_at in list(self._made_at.items()):
            left = made_at + DEADLINE_SECONDS - now
            if left > 0:
                wait_seconds = left
                break
            # What is held waits for the node, not for its client.
            if not protocol.being_answered:
                self.timed_out += 1
                self._end(protocol)
        if self._made_at:
            loop = next(iter(self._made_at)).loop
            self._timer = loop.call_later(wait_seconds, self._end_overdue)


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
