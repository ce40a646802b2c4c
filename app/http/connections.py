"""The open connections: who may connect, how many, for how long, and who was turned away."""

import asyncio
import logging
import socket
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Protocol

from app.http.head import CAUSES
from app.settings.settings import Networks

DEADLINE_SECONDS = 2.0
"""How long a connection may stay open while no answer is held."""

PATIENCE_SECONDS = 0.5
"""How long to wait for more where a client may have sent all that it will."""

CONNECTIONS = 256
"""How many connections may be open: see `ConnectionRegister.add`."""

_EVICTED_AT_ONCE = 16

_ASKED, _ASKED_SECONDS = 64, 60.0
"""How many clients to remember, and for how long."""

_NETWORK_BYTES = 8  # of an IPv6 address (RFC 4291)

REFUSED, PARAMETER = "refused", "parameter"

_log = logging.getLogger(__name__)
_LOG_SECONDS = 60.0


def address_of(peer: Sequence[object]) -> str:
    """Return the address of a socket's peer. An IPv4 client may be ::ffff:192.0.2.1 there."""
    address = str(peer[0])
    return address.removeprefix("::ffff:") if "." in address else address


def client_of(address: str) -> str | bytes:
    """Return an IPv4 address, or the IPv6 network of 64 bits that one host may have."""
    try:
        network = socket.inet_pton(socket.AF_INET6, address.partition("%")[0])
    except OSError:
        return address
    return network[:_NETWORK_BYTES]


def _is_own(address: str) -> bool:
    """Return whether it is an address of this host."""
    # The kernel sends to an address of its own from that address, and to no other. Nothing is sent.
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as unsent:
            unsent.connect((address, 9))
            return bool(unsent.getsockname()[0] == address)
    except OSError:
        return False


@dataclass(frozen=True)
class TurnedAway:
    """A client that got no answer, or a 400. detail: why."""

    client: str
    at: datetime
    detail: str


class Door(Protocol):
    """What the register knows of one connection: see `app.http.door.Door`."""

    transport: asyncio.Transport
    made_at: float
    address: str
    client: str | bytes

    @property
    def is_held(self) -> bool:
        """Whether its answer waits for the node."""

    def settle(self, *, overdue: bool) -> None:
        """Answer or close it."""


class ConnectionRegister:
    """Decides who may connect, and limits the number of connections and their time.

    allowed: the networks that may connect, beside this host; None for all. doors: the open
    connections, the oldest first. closed: how many were closed since the start, by cause; all but
    the first three got a 400. latest: who was turned away last, by cause.
    """

    def __init__(self, allowed: Networks = None) -> None:
        self.allowed = allowed
        self.doors: dict[Door, None] = {}
        causes = (REFUSED, "evicted", "timed-out", *CAUSES, PARAMETER)
        self.closed = dict.fromkeys(causes, 0)
        self.latest: dict[str, TurnedAway] = {}
        self._silent_until: dict[str, float] = {}
        # When each client asked, the latest last: so none can push out the others.
        self._asked: dict[str, float] = {}

    def recent(self) -> list[str]:
        """Return who asked in the last minute."""
        since = time.monotonic() - _ASKED_SECONDS
        return [address for address, at in self._asked.items() if at > since]

    def allows(self, address: str) -> bool:
        """Return whether a client may connect."""
        if self.allowed is None:
            return True
        try:
            client = ip_address(address)
        except ValueError:
            return False
        # The setting may have either form of IPv4.
        mapped = ip_address(f"::ffff:{address}" if client.version == 4 else address)  # noqa: PLR2004
        has = any(client in network or mapped in network for network in self.allowed)
        return has or client.is_loopback or _is_own(address)

    def note(self, cause: str, client: str, detail: str) -> None:
        """Count a client that was refused, or got a 400. Log one of both a minute."""
        self.closed[cause] += 1
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

    def add(self, door: Door) -> None:
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
        self.doors[door] = None
        self._asked.pop(door.address, None)
        self._asked[door.address] = door.made_at
        if len(self._asked) > _ASKED:
            del self._asked[next(iter(self._asked))]

    def end(self, door: Door, cause: str) -> None:
        """Close a connection, and count why."""
        self.closed[cause] += 1
        self.doors.pop(door, None)
        door.transport.abort()

    def sweep(self) -> None:
        """Settle what lasts long, and end what has lasted too long."""
        now = time.monotonic()
        for door in list(self.doors):
            age_seconds = now - door.made_at
            if age_seconds < PATIENCE_SECONDS:
                break
            door.settle(overdue=age_seconds >= DEADLINE_SECONDS)
