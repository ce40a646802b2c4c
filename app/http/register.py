"""The open connections: who may connect, how many, for how long, and who was turned away."""

import asyncio
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Any

from app.http.head import CAUSES
from app.settings.settings import Networks

if TYPE_CHECKING:
    from app.http.door import Door

DEADLINE_SECONDS = 2.0
"""How long a connection may stay open while no answer is held."""

PATIENCE_SECONDS = 0.5
"""How long to wait for more where a client may have sent all that it will."""

CONNECTIONS = 256
"""How many connections may be open: see `ConnectionRegister.add`."""

_EVICTED_AT_ONCE = 16

_SWEEP_SECONDS = 0.1
"""How late the register may notice one of these times."""

_ASKED, _ASKED_SECONDS = 64, 60.0
"""How many clients to remember, and for how long."""

_NETWORK_BYTES = 8  # of an IPv6 address (RFC 4291)

REFUSED, PARAMETER = "refused", "parameter"

_log = logging.getLogger(__name__)
_LOG_SECONDS = 60.0


def client_of(address: str) -> str | bytes:
    """Return an IPv4 address, or the IPv6 network of 64 bits that one host may have."""
    if ":" not in address or address.startswith("::ffff:"):
        return address
    return socket.inet_pton(socket.AF_INET6, address.partition("%")[0])[:_NETWORK_BYTES]


def _unmapped(address: str) -> IPv4Address | IPv6Address:
    # An IPv4 client of a dual-stack socket is ::ffff:192.0.2.1.
    ip = ip_address(address)
    return getattr(ip, "ipv4_mapped", None) or ip


def _is_this_host(peer: tuple[Any, ...]) -> bool:
    """Return whether a client connects from an address of this host."""
    if _unmapped(peer[0]).is_loopback:
        return True
    # The kernel sends to an address of its own from that address, and to no other. Nothing is sent.
    family = socket.AF_INET6 if ":" in peer[0] else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as unsent:
            unsent.connect(peer)
            return bool(unsent.getsockname()[0] == peer[0])
    except OSError:
        return False


@dataclass(frozen=True)
class TurnedAway:
    """A client that got no answer, or a 400. detail: why."""

    client: str
    at: datetime
    detail: str


class ConnectionRegister:
    """Decides who may connect, and limits the number of connections and their time.

    allowed: the networks that may connect, beside this host; None for all. closed: connections
    closed since the start, by cause; all but the first three got a 400. latest: who was turned away
    last, by cause.
    """

    def __init__(self, allowed: Networks = None) -> None:
        self.allowed = allowed
        self.doors: dict[Door, float] = {}  # when each was made, the oldest first
        causes = (REFUSED, "evicted", "timed-out", *CAUSES, PARAMETER)
        self.closed = dict.fromkeys(causes, 0)
        self.latest: dict[str, TurnedAway] = {}
        self._silent_until: dict[str, float] = {}
        self.on_sweep: Callable[[], None] = lambda: None
        # The latest last, by client: so none can push out the others.
        self._asked: dict[str | bytes, tuple[float, tuple[Any, ...]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def open(self) -> int:
        """The number of open connections."""
        return len(self.doors)

    def allow(self, networks: Networks) -> None:
        """Let these networks connect, and forget the refusals before."""
        self.allowed = networks
        self.latest.pop(REFUSED, None)

    def allows(self, peer: tuple[Any, ...]) -> bool:
        """Return whether a client may connect. peer: its address as a socket returns it."""
        if self.allowed is None:
            return True
        # The setting may have either form.
        forms = ip_address(peer[0]), _unmapped(peer[0])
        return any(
            form in network for form in forms for network in self.allowed
        ) or _is_this_host(peer)

    def shut_out(self) -> list[str]:
        """Return the addresses that asked in the last minute and may not any more."""
        since = time.monotonic() - _ASKED_SECONDS
        return [
            str(_unmapped(peer[0]))
            for at, peer in self._asked.values()
            if at > since and not self.allows(peer)
        ]

    def note(self, cause: str, address: str, detail: str) -> None:
        """Count a client that was refused, or got a 400. Log one of both a minute."""
        self.closed[cause] += 1
        client = str(_unmapped(address))
        self.latest[cause] = TurnedAway(client, datetime.now(UTC), detail)
        event = "client refused" if cause == REFUSED else "malformed request"
        now = time.monotonic()
        if now >= self._silent_until.get(event, 0.0):
            self._silent_until[event] = now + _LOG_SECONDS
            _log.warning(
                event,
                extra={
                    "cause": cause,
                    "client": client,
                    "count": self.closed[cause],
                    "detail": f"{detail}; logged once a minute",
                },
            )

    def add(self, door: "Door", loop: asyncio.AbstractEventLoop) -> None:
        """Register a new connection. If there are too many, close one of the client with the most.

        It is the oldest without a complete request, or else the newest: several clients may have
        the most, and who has waited longest is not to lose the answer.
        """
        if len(self.doors) >= CONNECTIONS:
            count = Counter(other.client for other in self.doors)
            most = max(count.values())
            crowd = [other for other in self.doors if count[other.client] == most]
            idle = [other for other in crowd if not other.is_held]
            # Several at once: to look for them takes longer than an answer.
            for other in idle[:_EVICTED_AT_ONCE] or crowd[-1:]:
                self.end(other, "evicted")
        self.doors[door] = loop.time()
        self._asked.pop(door.client, None)
        self._asked[door.client] = time.monotonic(), door.peer
        if len(self._asked) > _ASKED:
            del self._asked[next(iter(self._asked))]
        # One timer for all is much cheaper than one for each.
        if self._timer is None:
            self._timer = loop.call_later(_SWEEP_SECONDS, self._sweep, loop)

    def end(self, door: "Door", cause: str) -> None:
        """Close a connection, and count why."""
        self.closed[cause] += 1
        self.doors.pop(door, None)
        door.transport.abort()

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let no client fill the queue, and end what has lasted too long, the oldest first."""
        self.on_sweep()
        now = loop.time()
        for door, made_at in list(self.doors.items()):
            if now - made_at < PATIENCE_SECONDS:
                break
            door.settle(overdue=now - made_at >= DEADLINE_SECONDS)
        self._timer = (
            loop.call_later(_SWEEP_SECONDS, self._sweep, loop) if self.doors else None
        )
