"""Who may connect, and who loses a connection to whom."""

import asyncio
from ipaddress import ip_network

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from app.http.guard import CONNECTIONS, ConnectionRegister, GuardedProtocol


@pytest.mark.parametrize(
    ("networks", "address", "allowed"),
    [
        ("127.0.0.0/8", "127.0.0.1", True),
        ("127.0.0.0/8", "10.0.0.1", False),
        # A dual-stack socket shows an IPv4 client so.
        ("127.0.0.0/8", "::ffff:127.0.0.1", True),
        ("127.0.0.0/8", "::1", False),
        ("10.0.0.0/8 ::1/128", "::1", True),
        ("10.0.0.0/8 ::1/128", "::ffff:127.0.0.1", False),
        ("::ffff:10.0.0.0/104 ::ffff:127.0.0.0/104", "::ffff:127.0.0.1", True),
        # It begins as one that stands for an IPv4 address, and does not.
        ("2001:db8::/32", "::ffff:0:102:304", False),
    ],
)
def test_a_client_in_one_of_the_networks_may_connect(
    networks: str, address: str, *, allowed: bool
) -> None:
    register = ConnectionRegister([ip_network(network) for network in networks.split()])
    assert register.allows(address) is allowed
    assert ConnectionRegister().allows(address)


class Transport(asyncio.Transport):
    """The transport of a client's connection."""

    def __init__(self, address: str) -> None:
        super().__init__({"peername": (address, 40000)})
        self.aborted = False

    def abort(self) -> None:
        """Note that the guard has closed the connection."""
        self.aborted = True

    def close(self) -> None:
        """Close as `abort`: uvicorn does, when the test cancels the answers that are held."""
        self.abort()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send nothing."""

    def is_closing(self) -> bool:
        """Return whether it has."""
        return self.aborted


@pytest.fixture
def register() -> ConnectionRegister:
    """Make a register that allows `CONNECTIONS` connections."""
    return ConnectionRegister()


async def never_answers(_scope: Scope, _receive: Receive, _send: Send) -> None:
    """Hold each answer, as while a poll hangs."""
    await asyncio.Event().wait()


def connect(
    register: ConnectionRegister, address: str, sent: bytes = b"GET / HTTP/1.0\r\n\r\n"
) -> Transport:
    """Connect a client, which sends something."""

    class Protocol(GuardedProtocol):
        _register = register

    transport = Transport(address)
    config = Config(never_answers, http=Protocol, lifespan="off", log_config=None)
    protocol = Protocol(config=config, server_state=ServerState(), app_state={})
    protocol.connection_made(transport)
    protocol.data_received(sent)
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


def test_a_client_that_is_refused_is_logged_by_its_own_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    register = ConnectionRegister([ip_network("10.0.0.0/8")])
    for _ in range(2):
        register.note_refusal("::ffff:127.0.0.1")
    [record] = caplog.records
    assert vars(record)["client"] == register.refused_client == "127.0.0.1"
    assert register.closed["refused"] == 2
