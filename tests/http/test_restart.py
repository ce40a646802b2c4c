"""A restart that no client sees: the listening socket stays, and what it is asked meanwhile waits."""

import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from harness.ports import LOOPBACK
from harness.service import Service, read_to_end
from harness.waiting import wait_for
from tests.conftest import Services, settings_for
from tests.fake_mysql import FakeMySQL

HEALTH_CHECK = b"GET / HTTP/1.0\r\n\r\n"

# What systemd does before it runs a service whose socket it has kept: it is descriptor 3, and the
# variables say so.
HAND_DOWN = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()), LISTEN_FDNAMES="listening")
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.fixture
def held() -> Iterator[socket.socket]:
    """Hold a listening socket, as systemd does over a restart."""
    with socket.create_server((LOOPBACK, 0), backlog=1024) as listening:
        yield listening


def start_on(
    held: socket.socket, node: FakeMySQL, services: Services, host: str = LOOPBACK
) -> Service:
    """Start clustercheckd with a socket that is handed down, and wait until it listens."""
    service = services.start_through(
        (sys.executable, "-c", HAND_DOWN, str(held.fileno())),
        {**settings_for(node), "CLUSTERCHECK_HOST": host},
        port=held.getsockname()[1],
        pass_fds=[held.fileno()],
    )
    wait_for("the start", lambda: "INFO started " in service.log.read_text(), seconds=20)
    return service


def connect(service: Service) -> socket.socket:
    """Connect, and say nothing."""
    return socket.create_connection((LOOPBACK, service.port), timeout=10)


def test_what_waits_while_the_service_is_killed_is_answered_by_the_next(
    services: Services, node: FakeMySQL, held: socket.socket
) -> None:
    service = start_on(held, node, services)
    service.wait_for_verdict(200, "synced")
    # Stopped, it accepts nothing: all of these are the kernel's when it is killed.
    service.process.send(signal.SIGSTOP)
    with ExitStack() as exits:
        waiting = [exits.enter_context(connect(service)) for _ in range(50)]
        for connection in waiting:
            connection.sendall(HEALTH_CHECK)
        service.process.kill()
        service.restart()
        for connection in waiting:
            assert read_to_end(connection).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_request_that_is_on_its_way_at_the_end_is_answered(
    services: Services, node: FakeMySQL
) -> None:
    service = services.beside(node)
    with ExitStack() as exits:
        early = [exits.enter_context(connect(service)) for _ in range(6)]
        # Once a later connection is answered, these have been accepted.
        service.get()
        service.process.terminate()
        wait_for("the end to begin", lambda: "INFO stopping " in service.log.read_text(), seconds=5)
        # One stays silent, and does not delay the end.
        for connection in early[1:]:
            connection.sendall(HEALTH_CHECK)
        assert {read_to_end(connection)[:15] for connection in early[1:]} == {b"HTTP/1.1 200 OK"}
        assert service.process.stop(seconds=5) == 0


def test_systemd_gets_the_listening_socket_to_keep(services: Services) -> None:
    address = str(services.directory / "notify")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
        manager.bind(address)
        manager.settimeout(20)
        service = services.start_unasked(NOTIFY_SOCKET=address)
        assert manager.recv(4096) == b"FDSTOREREMOVE=1\nFDNAME=listening"
        told, (descriptor,), _, _ = socket.recv_fds(manager, 4096, 4)
    assert told == b"FDSTORE=1\nFDNAME=listening"
    with socket.socket(fileno=descriptor) as kept:
        assert kept.getsockname()[1] == service.port


def test_the_kept_socket_of_another_address_is_closed(
    services: Services, node: FakeMySQL, held: socket.socket
) -> None:
    service = start_on(held, node, services, host="*")
    assert f'listen="[::]:{service.port}"' in service.log.read_text()
    # This test has it open still, as systemd has.
    with pytest.raises(OSError, match="Invalid argument"):
        held.accept()


@pytest.mark.parametrize(("host", "kept_is_dual"), [("*", False), ("::", True)])
def test_every_address_of_ipv6_alone_is_another_address_than_every_one(
    services: Services, node: FakeMySQL, *, host: str, kept_is_dual: bool
) -> None:
    with socket.create_server(
        ("::", 0), family=socket.AF_INET6, dualstack_ipv6=kept_is_dual
    ) as held:
        service = start_on(held, node, services, host)
        socket.create_connection(("::1", service.port), timeout=10).close()
        with socket.socket() as client:
            refused = client.connect_ex((LOOPBACK, service.port)) != 0
        assert refused == (host == "::")
