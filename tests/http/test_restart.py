"""A restart that no client sees: the listening socket stays, and what it is asked meanwhile waits."""

import itertools
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Self

import pytest

from harness.ports import LOOPBACK, Ports
from harness.service import Service, read_to_end
from harness.waiting import wait_for
from tests.conftest import Services
from tests.fake_mysql import FakeMySQL, fake_mysql, galera

RESTARTS = 10
HEALTH_CHECK = b"GET / HTTP/1.0\r\n\r\n"
CLIENTS = 4

# What systemd does before it runs a service with a socket: the socket is descriptor 3, and the variables say so.
HAND_DOWN = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
"""


class Client:
    """Asks over and over from threads of its own, and counts what it gets."""

    def __init__(self, port: int) -> None:
        self.seen: Counter[str] = Counter()
        self.slowest_seconds = 0.0
        self._port = port
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(CLIENTS)]

    def __enter__(self) -> Self:
        """Begin."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End, with the last answers counted."""
        self._done.set()
        for thread in self._threads:
            thread.join()

    @property
    def failures(self) -> Counter[str]:
        """All that was no 200."""
        return Counter({outcome: count for outcome, count in self.seen.items() if outcome != "HTTP/1.1 200 OK"})

    def _run(self) -> None:
        while not self._done.wait(0.002):
            began = time.monotonic()
            self.seen[self._ask()] += 1
            self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - began)

    def _ask(self) -> str:
        try:
            with socket.create_connection((LOOPBACK, self._port), timeout=15) as connection:
                connection.sendall(HEALTH_CHECK)
                return read_to_end(connection).partition(b"\r\n")[0].decode()
        except OSError as fault:
            return repr(fault)


@contextmanager
def listening() -> Iterator[socket.socket]:
    """Hold a listening socket, as systemd does for a socket unit, and over a restart."""
    with socket.create_server((LOOPBACK, 0), backlog=1024) as held:
        yield held


def start_with(held: socket.socket, environ: Mapping[str, str], services: Services) -> Service:
    """Start clustercheckd with a socket that is handed down."""
    return services.start_through(
        (sys.executable, "-c", HAND_DOWN, str(held.fileno())),
        environ,
        port=held.getsockname()[1],
        pass_fds=[held.fileno()],
    )


def start_on(held: socket.socket, node: FakeMySQL, services: Services, **environ: str) -> Service:
    """Start clustercheckd on a socket that is handed down."""
    settings = {"MYSQL_HOST": LOOPBACK, "MYSQL_PORT": str(node.port), "MYSQL_USERNAME": "someone", **environ}
    service = start_with(held, settings, services)
    service.wait_until_up()
    return service


def wait_for_more(client: Client, count: int = 20) -> None:
    """Wait until so many more health checks were answered."""
    before = client.seen.total()
    wait_for("more answers", lambda: client.seen.total() >= before + count, seconds=20)


def restart(service: Service, number: signal.Signals) -> None:
    """Stop the service with a signal and start it again."""
    code = service.process.stop(number)
    assert code == (0 if number == signal.SIGTERM else -signal.SIGKILL)
    service.restart()


@pytest.mark.long
def test_a_health_check_loop_sees_no_restart_but_what_a_kill_tears_out_of_its_hands(services: Services) -> None:
    with fake_mysql(galera()) as node, listening() as held:
        service = start_on(held, node, services)
        with Client(service.port) as client:
            for number in itertools.islice(itertools.cycle([signal.SIGTERM, signal.SIGKILL]), RESTARTS):
                wait_for_more(client)
                before = client.failures.total()
                restart(service, number)
                wait_for_more(client)
                lost = client.failures.total() - before
                # The kernel resets what a killed process had accepted, and nothing else.
                assert lost <= (CLIENTS if number == signal.SIGKILL else 0), client.failures
        assert all(outcome == "" or "ConnectionReset" in outcome for outcome in client.failures), client.failures
        assert client.slowest_seconds < 10


def test_what_waits_while_the_service_is_killed_is_answered_by_the_next(services: Services) -> None:
    with fake_mysql(galera()) as node, listening() as held, ExitStack() as exits:
        service = start_on(held, node, services)
        # Stopped, it accepts nothing: all of these are the kernel's when it is killed.
        service.process.send(signal.SIGSTOP)
        waiting = [
            exits.enter_context(socket.create_connection((LOOPBACK, service.port), timeout=15)) for _ in range(50)
        ]
        for connection in waiting:
            connection.sendall(HEALTH_CHECK)
        restart(service, signal.SIGKILL)
        for connection in waiting:
            assert read_to_end(connection).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_request_that_is_on_its_way_at_the_end_is_answered(services: Services) -> None:
    with ExitStack() as exits:
        service = services.start()
        early = [exits.enter_context(socket.create_connection((LOOPBACK, service.port), timeout=5)) for _ in range(6)]
        # Once a later connection is answered, these have been accepted.
        service.get()
        service.process.send(signal.SIGTERM)
        wait_for("the end to begin", lambda: not can_connect(service.port), seconds=5)
        # One stays silent, and does not delay the end.
        for connection in early[1:]:
            connection.sendall(HEALTH_CHECK)
            assert read_to_end(connection).startswith(b"HTTP/1.1 503 ")
        wait_for("its end", lambda: service.process.exit_code is not None, seconds=5)
        assert service.process.exit_code == 0


def test_systemd_gets_the_listening_socket_to_keep(services: Services) -> None:
    address = str(services.directory / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(20)
        service = services.start_unasked(NOTIFY_SOCKET=address)
        assert manager.recv(4096) == b"FDSTOREREMOVE=1\nFDNAME=listening"
        told, descriptors, _, _ = socket.recv_fds(manager, 4096, 4)
    assert told == b"FDSTORE=1\nFDNAME=listening"
    (descriptor,) = descriptors
    with socket.socket(fileno=descriptor) as kept:
        assert kept.getsockname()[1] == service.port


def test_the_socket_that_systemd_kept_is_used_again(services: Services) -> None:
    with fake_mysql(galera()) as node, listening() as held:
        # Another one could not be opened: this one listens on the port.
        service = start_on(held, node, services, LISTEN_FDNAMES="listening", CLUSTERCHECK_HOST=LOOPBACK)
        assert service.get().reason == "synced"


@pytest.mark.parametrize("same_port", [True, False])
def test_the_kept_socket_of_another_address_is_closed(services: Services, ports: Ports, *, same_port: bool) -> None:
    with fake_mysql(galera()) as node, listening() as held:
        old = held.getsockname()[1]
        service = services.start_through(
            (sys.executable, "-c", HAND_DOWN, str(held.fileno())),
            {
                "LISTEN_FDNAMES": "listening",
                "CLUSTERCHECK_HOST": "*" if same_port else LOOPBACK,
                "MYSQL_HOST": LOOPBACK,
                "MYSQL_PORT": str(node.port),
                "MYSQL_USERNAME": "someone",
            },
            port=old if same_port else ports.free(),
            pass_fds=[held.fileno()],
        )
        service.wait_until_up()
        assert service.get().reason == "synced"
        assert f"[::]:{service.port}" in service.log.read_text() or not same_port
        # This test has it open still, as systemd has.
        with pytest.raises(OSError, match="Invalid argument"):
            held.accept()


def can_connect(port: int) -> bool:
    """Whether anybody listens."""
    with socket.socket() as attempt:
        return attempt.connect_ex((LOOPBACK, port)) == 0


def check_it_ends_with(service: Service, line: str) -> None:
    """Check that it exits with status 2 and one line."""
    assert wait_for("its end", lambda: service.process.exit_code, seconds=10) == 2
    assert [said for said in service.log.read_text().splitlines() if " INFO " not in said] == [f"clustercheckd: {line}"]


def test_a_descriptor_that_is_no_listening_socket_is_one_line_and_exit_code_2(services: Services) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as held:
        held.bind((LOOPBACK, 0))
        service = start_with(held, {}, services)
        where = f"{LOOPBACK}:{held.getsockname()[1]}"
        unit = "a socket unit needs ListenStream= and Accept=no"
        check_it_ends_with(service, f"cannot listen on {where}: Operation not supported; {unit}")
    with listening() as held, socket.create_connection(held.getsockname()), held.accept()[0] as accepted:
        service = start_with(accepted, {}, services)
        where = f"{LOOPBACK}:{held.getsockname()[1]}"
        check_it_ends_with(service, f"cannot listen on {where}: Invalid argument; {unit}")


def test_systemds_own_socket_activation_wakes_it_with_a_health_check_that_gets_its_verdict(
    services: Services, ports: Ports
) -> None:
    port = ports.free()
    with fake_mysql(galera()) as node:
        settings = {
            "MYSQL_HOST": LOOPBACK,
            "MYSQL_PORT": str(node.port),
            "MYSQL_USERNAME": "someone",
            # Anything else than what is handed down would not even start.
            "CLUSTERCHECK_HOST": "192.0.2.1",
        }
        handed_on = [f"--setenv={name}={value}" for name, value in settings.items()]
        wrapper = ("systemd-socket-activate", f"--listen={LOOPBACK}:{port}", *handed_on)
        service = services.start_through(wrapper, {}, port=port)
        wait_for("systemd to listen", lambda: "Listening on" in service.log.read_text(), seconds=10)
        assert service.get().reason == "synced"
        assert f" listen={LOOPBACK}:{port} " in service.log.read_text()
        assert service.stop() == 0
