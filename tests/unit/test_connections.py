"""Who may connect, and who loses a connection to whom."""

import asyncio
import socket
from collections.abc import Awaitable
from ipaddress import ip_network

import pytest

from app.http.answers import Answer, Answers
from app.http.connections import CONNECTIONS, ConnectionRegister
from app.http.door import Door
from app.http.head import Request

pytestmark = pytest.mark.anyio


class Transport(asyncio.Transport):
    """The transport of a client's connection."""

    def __init__(self, address: str) -> None:
        # Of IPv4, IPv6, or a unix socket, which has a path.
        peer = address if "/" in address else (address, 40000)
        super().__init__({"peername": peer if address else None})
        self.aborted = False

    def abort(self) -> None:
        """Note that the guard has closed the connection."""
        self.aborted = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send nothing."""

    def is_closing(self) -> bool:
        """Return whether it has."""
        return self.aborted


class Held(Answers):
    """Holds each answer, as while a poll hangs."""

    def __init__(self) -> None:
        """Report on nothing."""

    def to(self, request: Request) -> Awaitable[Answer]:  # noqa: ARG002 (whatever is asked)
        """Return what does not end within a test."""
        return asyncio.sleep(3600, None)  # type: ignore[arg-type]


def connect(
    register: ConnectionRegister,
    address: str,
    sent: bytes = b"GET / HTTP/1.0\r\n\r\n",
) -> Transport:
    """Connect a client, which sends something."""
    transport = Transport(address)
    door = Door(register, Held())
    door.connection_made(transport)
    if not transport.aborted:
        door.data_received(sent)
    return transport


@pytest.fixture
def register() -> ConnectionRegister:
    """Make a register that allows `CONNECTIONS` connections."""
    return ConnectionRegister()


@pytest.mark.parametrize(
    ("networks", "address", "allowed"),
    [
        ("192.0.2.0/24", "192.0.2.1", True),
        ("192.0.2.0/24", "198.51.100.1", False),
        # A dual-stack socket shows an IPv4 client so.
        ("192.0.2.0/24", "::ffff:192.0.2.1", True),
        ("192.0.2.0/24 2001:db8::/32", "2001:db8::1", True),
        # It begins as one that stands for an IPv4 address, and does not.
        ("2001:db8::/32", "::ffff:0:102:304", False),
        # One that has the form of IPv4 without being one, a zone, and no address at all.
        ("192.0.2.0/24", "::192.0.2.1", False),
        ("::/96", "::192.0.2.1", True),
        ("fe80::/10", "fe80::1%lo", True),
        ("192.0.2.0/24", "fe80::1%no-zone", False),
        ("192.0.2.0/24", "/run/client.sock", False),
        # This host.
        ("192.0.2.0/24", "127.0.0.5", True),
        ("192.0.2.0/24", "::ffff:127.0.0.1", True),
        ("192.0.2.0/24", "::1", True),
    ],
)
async def test_a_client_in_one_of_the_networks_may_connect_and_this_host(
    register: ConnectionRegister, networks: str, address: str, *, allowed: bool
) -> None:
    assert not connect(register, address).aborted
    register.allowed = [ip_network(network) for network in networks.split()]
    assert connect(register, address).aborted is not allowed
    assert register.closed["refused"] == (not allowed)


async def test_a_client_that_has_left_already_is_closed(
    register: ConnectionRegister,
) -> None:
    assert connect(register, "").aborted


async def test_this_host_is_all_of_its_addresses(register: ConnectionRegister) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unsent:
        try:
            unsent.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("no address but the loopback's")
        own = unsent.getsockname()[0]
    register.allowed = [ip_network("192.0.2.0/24")]
    assert not connect(register, own).aborted


async def test_a_host_with_many_addresses_counts_as_one_client(
    register: ConnectionRegister,
) -> None:
    load_balancers = [
        connect(register, address)
        for address in ("::ffff:192.0.2.1", "192.0.2.2", "2001:db8:0:2::1")
    ]
    crowd = [
        connect(register, f"2001:db8:0:1::{number:x}")
        for number in range(2 * CONNECTIONS)
    ]
    assert not any(transport.aborted for transport in load_balancers)
    assert (
        sum(transport.aborted for transport in crowd)
        == len(crowd) + len(load_balancers) - CONNECTIONS
    )


async def test_of_many_clients_the_one_that_has_waited_longest_keeps_its_answer(
    register: ConnectionRegister,
) -> None:
    load_balancer = connect(register, "192.0.2.1")
    silent = connect(register, "192.0.2.2", b"GET /")
    crowd = [
        connect(register, f"198.51.{number // 256}.{number % 256}")
        for number in range(2 * CONNECTIONS)
    ]
    assert silent.aborted
    assert not load_balancer.aborted
    assert len(register.doors) == CONNECTIONS
    assert sum(transport.aborted for transport in crowd) == len(crowd) + 1 - CONNECTIONS


async def test_who_asked_in_the_last_minute_is_known_once(
    register: ConnectionRegister,
) -> None:
    for address in 2 * ("192.0.2.1", "::ffff:198.51.100.1", "127.0.0.1", "::1"):
        connect(register, address)
    assert register.recent() == ["192.0.2.1", "198.51.100.1", "127.0.0.1", "::1"]
