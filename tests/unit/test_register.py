"""Who may connect, and who loses a connection to whom."""

import asyncio
import subprocess
from collections.abc import Awaitable
from ipaddress import ip_network

import pytest

from app.http.answers import Answer, Answers
from app.http.door import Door
from app.http.head import Request
from app.http.register import CONNECTIONS, ConnectionRegister


@pytest.mark.parametrize(
    ("networks", "address", "allowed"),
    [
        ("192.0.2.0/24", "192.0.2.1", True),
        ("192.0.2.0/24", "198.51.100.1", False),
        # A dual-stack socket shows an IPv4 client so.
        ("192.0.2.0/24", "::ffff:192.0.2.1", True),
        ("192.0.2.0/24", "2001:db8::1", False),
        ("192.0.2.0/24 2001:db8::/32", "2001:db8::1", True),
        ("192.0.2.0/24 2001:db8::/32", "::ffff:198.51.100.1", False),
        ("::ffff:10.0.0.0/104 ::ffff:192.0.2.0/120", "::ffff:192.0.2.1", True),
        # It begins as one that stands for an IPv4 address, and does not.
        ("2001:db8::/32", "::ffff:0:102:304", False),
    ],
)
def test_a_client_in_one_of_the_networks_may_connect(
    networks: str, address: str, *, allowed: bool
) -> None:
    register = ConnectionRegister([ip_network(network) for network in networks.split()])
    assert register.allows((address, 40000)) is allowed
    assert ConnectionRegister().allows((address, 40000))


def test_this_host_is_all_of_its_addresses() -> None:
    register = ConnectionRegister([ip_network("192.0.2.0/24")])
    listed = subprocess.check_output(["ip", "-o", "address"], text=True).splitlines()
    own = {("127.0.1.1", 40000), ("::ffff:127.0.0.5", 40000, 0, 0)}
    for line in listed:
        index, _, family, address, *_ = line.split()
        scope = (0, int(index[:-1])) if family == "inet6" else ()
        own.add((address.partition("/")[0], 40000, *scope))
    assert len(own) > 2
    for peer in own:
        assert register.allows(peer), peer
    for address in ("198.51.100.1", "::ffff:198.51.100.1", "2001:db8::1"):
        assert not register.allows((address, 40000)), address


class Transport(asyncio.Transport):
    """The transport of a client's connection."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 40000)})
        self.aborted = False

    def abort(self) -> None:
        """Note that the guard has closed the connection."""
        self.aborted = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send nothing."""

    def is_closing(self) -> bool:
        """Return whether it has."""
        return self.aborted


@pytest.fixture
def register() -> ConnectionRegister:
    """Make a register that allows `CONNECTIONS` connections."""
    return ConnectionRegister()


class Held(Answers):
    """Holds each answer, as while a poll hangs."""

    def __init__(self) -> None:
        """Report on nothing."""

    def to(self, request: Request) -> Awaitable[Answer]:  # noqa: ARG002 (whatever is asked)
        """Return what does not end within a test."""
        return asyncio.sleep(3600, None)  # type: ignore[arg-type]


def connect(
    register: ConnectionRegister, address: str, sent: bytes = b"GET / HTTP/1.0\r\n\r\n"
) -> Transport:
    """Connect a client, which sends something."""
    transport = Transport(address)
    door = Door(register, Held())
    door.connection_made(transport)
    door.data_received(sent)
    return transport


@pytest.mark.anyio
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


@pytest.mark.anyio
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
    assert register.open == CONNECTIONS
    assert sum(transport.aborted for transport in crowd) == len(crowd) + 1 - CONNECTIONS


@pytest.mark.anyio
async def test_who_asked_and_may_no_longer_is_known_whoever_else_asks(
    register: ConnectionRegister,
) -> None:
    for number in range(CONNECTIONS // 2):
        for address in ("192.0.2.1", f"198.51.100.{number}", "127.0.0.1"):
            connect(register, address)
    assert register.shut_out() == []
    register.allow([ip_network("10.0.0.0/8")])
    # But this host, which may always.
    assert len(register.shut_out()) == 63
    assert "192.0.2.1" in register.shut_out()
    register.allow([ip_network("192.0.2.0/24")])
    assert len(register.shut_out()) == 62
