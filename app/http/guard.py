"""uvicorn's HTTP protocol with limits, so that no client can delay or prevent another client's answer.

uvicorn has no time limit for a request: a connection may stay silent, trickle, or send headers for ever. Its only limit
(limit_concurrency) answers 503 under load, and a load balancer takes that for a database that is down. This module uses
uvicorn's internals, so the version of uvicorn is pinned.
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
"""How long a connection may stay open. The time for which its answer is held does not count."""

REQUEST_BYTES = 8192
"""How many bytes a client may send before its request is complete."""

TARGET_BYTES, HEADER_FIELDS = 1024, 100
"""How long a request's target may be, and how many header fields a request may have. To decode more would take longer
than the answer."""

CONNECTIONS = 256
"""How many connections may be open. For a new one above that, the guard closes the oldest connection without a complete
request or, if there is none, the oldest one whose answer is held."""

_LAST_REQUEST_SECONDS = 0.2
"""How long an accepted connection may take to send its request while the service stops."""

_OTHER_DESCRIPTORS = 32
"""How many descriptors to reserve for everything but clients. Without one for the database, a healthy node would get
503."""

_log = logging.getLogger(__name__)
_LOG_SECONDS = 60.0


class RefusedRequestError(Exception):
    """A request exceeds a limit. Raised in the parser's callbacks, where it makes uvicorn answer 400."""


class GuardedProtocol(HttpToolsProtocol):
    """One connection with limits. If it exceeds one, it is closed or gets a 400, but never a 503."""

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
        """Whether a request has arrived and its answer is not complete yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Set up the connection as uvicorn does, without the addresses, and register it or refuse it."""
        # uvicorn's own method also reads the addresses of both ends. Those seven system calls are a tenth of the cost
        # of a health check, and no answer needs them.
        self.connections.add(self)
        self.transport = transport
        self.flow = FlowControl(transport)
        self.scheme = "http"
        if self._register.allows(transport):
            self._register.add(self)
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the register."""
        self._register.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse the received bytes, up to `REQUEST_BYTES`; above that, close the connection or ignore them."""
        self._bytes += len(data)
        if self._bytes <= REQUEST_BYTES:
            super().data_received(data)
        elif not self.being_answered:
            self._register.oversized += 1
            self.transport.abort()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection open if a client closes its sending side after its request, as nc -N does."""
        return self.being_answered

    def on_headers_complete(self) -> None:
        """Begin the answer, after which uvicorn closes the connection. uvicorn adds `connection: close` to it."""
        if len(self.url) > TARGET_BYTES:
            self._refuse(f"the request's target is longer than {TARGET_BYTES} bytes")
        super().on_headers_complete()
        self.cycle.keep_alive = False

    def on_message_begin(self) -> None:
        """Begin the only request of a connection, and refuse any further one."""
        # 8 KiB hold 450 pipelined requests. Each would cost memory and none would get an answer.
        if self.cycle is not None:
            self._refuse("one request per connection")
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Receive a header field, up to `HEADER_FIELDS` of them."""
        super().on_header(name, value)
        if len(self.headers) > HEADER_FIELDS:
            self._refuse(f"the request has more than {HEADER_FIELDS} header fields")

    def on_body(self, body: bytes) -> None:
        """Ignore the body: no answer depends on it."""

    def send_400_response(self, msg: str) -> None:
        """Answer 400 to a request that cannot be parsed. Ignore what follows a request that was parsed."""
        if self.cycle is None:
            self._register.malformed += 1
            super().send_400_response(f"{self._refusal or msg}\r\n")

    def _refuse(self, why: str) -> NoReturn:
        self._refusal = why
        raise RefusedRequestError(why)

    def shutdown(self) -> None:
        """Give a request that is under way 0.2 s to arrive. uvicorn would close the connection at once."""
        self.loop.call_later(_LAST_REQUEST_SECONDS, super().shutdown)


class ConnectionRegister:
    """Decides who may connect, and limits the number and the duration of connections.

    allowed: the networks that may connect; None for all.

    It counts the connections closed without an answer: refused (client not allowed), evicted (to make room for a new
    one), timed_out (after `DEADLINE_SECONDS`) and oversized (more than `REQUEST_BYTES`). malformed counts the requests
    that got a 400 because they could not be parsed.
    """

    def __init__(self, allowed: Sequence[IPNetwork] | None = None) -> None:
        self.refused = 0
        self.evicted = 0
        self.timed_out = 0
        self.oversized = 0
        self.malformed = 0
        self._allowed = None if allowed is None else tuple(allowed)
        self._logged_at = -_LOG_SECONDS
        self._most = connections_within(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._made_at: dict[GuardedProtocol, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return how many connections are open."""
        return len(self._made_at)

    def allows(self, transport: asyncio.Transport) -> bool:
        """Return whether a peer may connect. A peer without an address uses a unix socket, which has permissions."""
        if self._allowed is None:
            return True
        client = get_remote_addr(transport)
        if client is None or _is_in(client[0], self._allowed):
            return True
        self.refused += 1
        now = time.monotonic()
        if now - self._logged_at >= _LOG_SECONDS:
            self._logged_at = now
            detail = "not in CLUSTERCHECK_ALLOW_FROM; logged once a minute"
            _log.warning("client refused", extra={"client": client[0], "count": self.refused, "detail": detail})
        return False

    def add(self, protocol: GuardedProtocol) -> None:
        """Register a new connection and start its time limit. If there are too many, close the oldest idle one."""
        if len(self._made_at) >= self._most:
            idle = (other for other in self._made_at if not other.being_answered)
            self.evicted += 1
            self._end(next(idle, next(iter(self._made_at))))
        self._made_at[protocol] = time.monotonic()
        if self._timer is None:
            self._timer = protocol.loop.call_later(DEADLINE_SECONDS, self._end_overdue)

    def remove(self, protocol: GuardedProtocol) -> None:
        """Remove a connection that has ended."""
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
            # A held answer waits for the node, not for the client.
            if not protocol.being_answered:
                self.timed_out += 1
                self._end(protocol)
        if self._made_at:
            loop = next(iter(self._made_at)).loop
            self._timer = loop.call_later(wait_seconds, self._end_overdue)


def connections_within(descriptors: int) -> int:
    """Return how many connections a limit on descriptors (ulimit -n) allows."""
    if descriptors == resource.RLIM_INFINITY:
        return CONNECTIONS
    return min(CONNECTIONS, max(1, descriptors - _OTHER_DESCRIPTORS))


@lru_cache(maxsize=1024)
def _is_in(host: str, networks: tuple[IPNetwork, ...]) -> bool:
    address = ip_address(host)
    # An IPv4 client of a dual-stack socket has an address of this form.
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any(address in network for network in networks)
