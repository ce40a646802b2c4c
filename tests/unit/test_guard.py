"""Who may connect, and how many connections the descriptors allow."""

import resource
from ipaddress import ip_network

import pytest

from app.http.guard import ConnectionRegister, connections_within


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
    ],
)
def test_a_client_in_one_of_the_networks_may_connect(networks: str, address: str, *, allowed: bool) -> None:
    register = ConnectionRegister([ip_network(network) for network in networks.split()])
    assert register.allows(address) is allowed
    assert register.closed["refused"] == (not allowed)
    assert ConnectionRegister().allows(address)


@pytest.mark.parametrize(
    ("descriptors", "connections"),
    [(resource.RLIM_INFINITY, 256), (1024, 256), (288, 256), (100, 68), (33, 1), (10, 1)],
)
def test_connections_leave_descriptors_for_the_database(descriptors: int, connections: int) -> None:
    assert connections_within(descriptors) == connections
