"""uvicorn's HTTP protocol with limits: no client can delay another client's answer.

uvicorn lets a connection stay silent for ever. Its only limit (limit_concurrency) answers 503 under
load, and a load balancer takes that for a database that is down.
"""

import asyncio
import logging
import re
import socket
import time
from collections import Counter
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address, ip_address

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.settings.settings import Networks

DEADLINE_SECONDS = 2.0
"""How long a connection may stay open while no answer is held."""

REQUEST_BYTES = 8192
"""How many bytes a client may send before its request is complete."""

TARGET_BYTES = 512
"""How long a path with its query may be. To decode more would take longer than the answer."""

CONNECTIONS = 256
"""How many connections may be open: see `ConnectionRegister.add`."""

_LAST_REQUEST_SECONDS = 0.2
"""How long an accepted connection may take to send its request while the service stops."""

_SWEEP_SECONDS = 0.25
"""How late the guard may close a connection."""

_NETWORK_BYTES = 8  # of an IPv6 address (RFC 4291)

# A proxy asks for http://db_1:9200/ instead of / (RFC 9112, 3.2.2).
_ORIGIN = re.compile(rb"^https?://[^/?#]+/?", re.IGNORECASE)

_log = logging.getLogger(__name__)
_LOG_SECONDS = 60.0


def _client_of(address: str) -> str | bytes:
    if ":" not in address or address.startswith("::ffff:"):
        return address
    return socket.inet_pton(socket.AF_INET6, address.partition("%")[0])[:_NETWORK_BYTES]


def _unmapped(address: str) -> IPv4Address | IPv6Address:
    # An IPv4 client of a dual-stack socket is ::ffff:192.0.2.1.
    ip = ip_address(address)
    return getattr(ip, "ipv4_mapped", None) or ip


class GuardedProtocol(HttpToolsProtocol):
    """One connection with limits. If it exceeds one, it is closed or gets a 400, but never a 503.

    An exception in a method that the parser calls, on_..., makes uvicorn answer 400.
    """

    url = b""

    # No answer depends on them. Without a callback the parser skips them, which is much cheaper.
    on_header = None  # type: ignore[assignment]
    on_body = None  # type: ignore[assignment]

    # Set by a server's own subclass.
    _register: "ConnectionRegister"
    _bytes = 0

    @property
    def being_answered(self) -> bool:
        """Whether a request has arrived and its answer is not complete yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Register the connection, or refuse it."""
        # uvicorn's own method reads both addresses in seven system calls. This is one.
        peer = transport.get_extra_info("peername")
        self.connections.add(self)
        self.transport = transport
        self.flow = FlowControl(transport)
        self.scheme = "http"
        if not peer:
            # It has left already.
            transport.abort()
            return
        address: str = peer[0]
        self.counted_as = _client_of(address)
        if self._register.allows(address) or self._is_from(address):
            self._register.add(self)
        else:
            self._register.note_refusal(address)
            transport.abort()

    def _is_from(self, address: str) -> bool:
        # The commands of this host ask too: status, drain, reload.
        own = self.transport.get_extra_info("sockname")
        return bool(own) and own[0] == address

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._register.remove(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse up to `REQUEST_BYTES`."""
        self._bytes += len(data)
        if self._bytes <= REQUEST_BYTES:
            super().data_received(data)
        else:
            self.send_400_response(f"the request is longer than {REQUEST_BYTES} bytes")

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep the connection open if a client half-closes after its request, as nc -N does."""
        return self.being_answered

    def on_headers_complete(self) -> None:
        """Begin the answer to the only request."""
        if len(self.url) > TARGET_BYTES:
            raise ValueError("the target is too long")
        # The parser would refuse a host with an underscore, and a target without a path.
        self.url = _ORIGIN.sub(b"/", self.url)
        super().on_headers_complete()
        self.cycle.keep_alive = False

    def on_message_begin(self) -> None:
        """Refuse a further request."""
        # 8 KiB hold 450 pipelined ones. Each would cost memory, and none would get an answer.
        if self.cycle is not None:
            raise ValueError("a further request")
        super().on_message_begin()

    def send_400_response(self, msg: str) -> None:
        """Answer 400, but ignore what follows a request that was parsed."""
        if self.cycle is None:
            if len(self.url) > TARGET_BYTES:
                msg = f"the request's target is longer than {TARGET_BYTES} bytes"
            self._register.closed["malformed"] += 1
            super().send_400_response(f"{msg}\r\n")

    def shutdown(self) -> None:
        """Give a request that is under way 0.2 s to arrive, where uvicorn gives it none."""
        self.loop.call_later(_LAST_REQUEST_SECONDS, super().shutdown)


class ConnectionRegister:
    """Decides who may connect, and limits the number of connections.

    A client is an IPv4 address, or an IPv6 network of 64 bits, all of which one host may have.
    allowed: the networks that may connect, beside this host; None for all. closed: connections
    closed since the start, by cause. Only malformed requests got an answer, a 400.
    """

    def __init__(self, allowed: Networks = None) -> None:
        self.closed = dict.fromkeys(("refused", "evicted", "timed-out", "malformed"), 0)
        self.allowed = allowed
        self.refused_client: str | None = None
        self.refused_at: datetime | None = None
        self._logged_at = -_LOG_SECONDS
        self._made_at: dict[GuardedProtocol, float] = {}  # the oldest first
        self._timer: asyncio.TimerHandle | None = None

    @property
    def open(self) -> int:
        """The number of open connections."""
        return len(self._made_at)

    def allow(self, networks: Networks) -> None:
        """Let other networks connect, and forget the refusals by the ones before."""
        if networks != self.allowed:
            self.allowed = networks
            self.refused_client = self.refused_at = None

    def allows(self, address: str) -> bool:
        """Whether a client may connect."""
        if self.allowed is None:
            return True
        # The setting may have either form.
        forms = ip_address(address), _unmapped(address)
        return any(form in network for form in forms for network in self.allowed)

    def note_refusal(self, address: str) -> None:
        """Count a client that may not connect; log one a minute."""
        self.closed["refused"] += 1
        self.refused_client = str(_unmapped(address))
        self.refused_at = datetime.now(UTC)
        now = time.monotonic()
        if now - self._logged_at >= _LOG_SECONDS:
            self._logged_at = now
            _log.warning(
                "client refused",
                extra={
                    "client": self.refused_client,
                    "count": self.closed["refused"],
                    "detail": "not in CLUSTERCHECK_ALLOW_FROM; logged once a minute",
                },
            )

    def add(self, protocol: GuardedProtocol) -> None:
        """Register a new connection. If there are too many, close one of the client with the most.

        It is the oldest without a complete request, or else the newest: several clients may have
        the most, and who has waited longest is not to lose the answer.
        """
        if len(self._made_at) >= CONNECTIONS:
            count = Counter(other.counted_as for other in self._made_at)
            most = max(count.values())
            crowd = [
                other for other in self._made_at if count[other.counted_as] == most
            ]
            self._end(
                "evicted",
                next((other for other in crowd if not other.being_answered), crowd[-1]),
            )
        self._made_at[protocol] = time.monotonic()
        # One timer for all is much cheaper than one for each.
        if self._timer is None:
            self._timer = protocol.loop.call_later(
                DEADLINE_SECONDS, self._end_overdue, protocol.loop
            )

    def remove(self, protocol: GuardedProtocol) -> None:
        """Forget a connection."""
        self._made_at.pop(protocol, None)

    def _end(self, cause: str, protocol: GuardedProtocol) -> None:
        self.closed[cause] += 1
        self.remove(protocol)
        protocol.transport.abort()

    def _end_overdue(self, loop: asyncio.AbstractEventLoop) -> None:
        overdue_at = time.monotonic() - DEADLINE_SECONDS
        for protocol, made_at in list(self._made_at.items()):
            # A held answer waits for the node, not for the client.
            if made_at <= overdue_at and not protocol.being_answered:
                self._end("timed-out", protocol)
        self._timer = (
            loop.call_later(_SWEEP_SECONDS, self._end_overdue, loop)
            if self._made_at
            else None
        )
