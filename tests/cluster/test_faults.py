"""Databases that fail in every way, and come back: the right reason in time, and nothing left behind.

The promise: what fails shows with its reason within interval + deadline, what is back shows within a second, and the
server never sees more than three sessions.
"""

import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

from harness.galera import ACCOUNT, PASSWORD, Installation, Node
from harness.network import RemoteHost
from harness.ports import LOOPBACK, Ports
from harness.service import Reply, Service
from harness.waiting import wait_for
from tests.cluster.lone import lone_node, start_alone, watching
from tests.conftest import Services
from tests.fake_mysql import (
    OK,
    SYNCED_STATUS,
    SYNCED_VARIABLES,
    TLS_CAPABILITIES,
    Behaviour,
    FakeMySQL,
    Peer,
    fake_mysql,
    galera,
    greets_and_is_silent,
    logs_in_and_is_silent,
    sends_bytes,
)
from tests.measured import undisturbed, within

# What a busy machine may add to the asking itself.
BUSY_SECONDS = 0.5
FRESH_SECONDS = 0.25
SHOWN_SECONDS = 0.25 + 0.8 + BUSY_SECONDS
BACK_SECONDS = 1.0 + BUSY_SECONDS
# A connection attempt into the void is repeated by the kernel after 1 and 3 s, and begun anew after 5 s.
NETWORK_BACK_SECONDS = 2.0 + BUSY_SECONDS
MOST_SESSIONS = 3
HUNG_SECONDS = 30.0
GROWTH_KIB = 2048
MEASUREMENTS = 3


class Footprint:
    """What a service holds when all is well, to be compared with what it holds later."""

    def __init__(self, service: Service) -> None:
        self.descriptors = service.process.descriptors
        self._process = service.process
        self._resident_kib = service.process.resident_kib

    def check(self) -> None:
        """Check that nothing has grown."""
        wait_for("the descriptors back", lambda: self._process.descriptors <= self.descriptors, seconds=5)
        assert self._process.resident_kib - self._resident_kib < GROWTH_KIB


def reasons_since(service: Service, count: int) -> list[str]:
    """Give the reasons of the changes of verdict after so many."""
    return [change["reason"] for change in service.status()["changes"]][count:]


@dataclass(frozen=True)
class Hang:
    """A node that is stopped, the service beside it, when it was stopped, and what the service said then.

    changes: how many changes of verdict there were before.
    """

    node: Node
    service: Service
    footprint: Footprint
    changes: int
    since: float
    last_200_at: float
    first_503_at: float
    reason: str

    @property
    def is_undisturbed(self) -> bool:
        """Whether all was seen in time."""
        return (
            self.last_200_at - self.since <= FRESH_SECONDS + BUSY_SECONDS
            and self.first_503_at - self.since <= SHOWN_SECONDS
        )


def stop_node(node: Node, service: Service) -> Hang:
    """Have a node hang, and ask the service until it answers 503."""
    footprint = Footprint(service)
    changes = len(service.status()["changes"])
    node.hang()
    since = last_200_at = time.monotonic()
    while (reply := service.get()).status == 200:
        last_200_at = time.monotonic()
    return Hang(node, service, footprint, changes, since, last_200_at, time.monotonic(), reply.reason)


@pytest.fixture(scope="module")
def hang(installation: Installation, ports: Ports, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hang]:
    """Stop a node for as long as the other tests of this module take, and for 30 s at least."""
    with (
        lone_node(installation, "hung") as node,
        watching(node, tmp_path_factory.mktemp("hung"), ports) as service,
    ):
        hang = stop_node(node, service)
        # A busy machine only ever adds: one undisturbed measurement shows what is asked.
        for _ in range(MEASUREMENTS - 1):
            if not hang.is_undisturbed:
                node.resume()
                service.wait_for_verdict(200, "synced")
                hang = stop_node(node, service)
        yield hang


def test_a_hung_server_is_200_for_no_longer_than_an_poll_is_fresh(hang: Hang) -> None:
    assert hang.last_200_at - hang.since <= FRESH_SECONDS + BUSY_SECONDS


def test_a_hung_server_is_a_timeout_within_interval_and_deadline(hang: Hang) -> None:
    assert hang.reason == "timeout"
    assert hang.first_503_at - hang.since <= SHOWN_SECONDS


def wait_until_shown(service: Service, reason: str) -> Reply:
    """Wait for the reason of a fault that has just begun, and check that it came in time."""
    began_at = time.monotonic()
    reply = service.wait_for_verdict(503, reason)
    within(f"{reason} shown", time.monotonic() - began_at, SHOWN_SECONDS)
    return reply


def wait_until_back(service: Service, seconds: float = BACK_SECONDS) -> None:
    """Wait for the end of a fault that has just ended to show, and check that it came in time."""
    began_at = time.monotonic()
    service.wait_for_verdict(200, "synced")
    within("synced again", time.monotonic() - began_at, seconds)


class SessionCount:
    """Counts our sessions as the server sees them, from a thread, for as long as the `with` block runs."""

    def __init__(self, node: Node) -> None:
        self.most = 0
        self._node = node
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._done.wait(0.02):
            # Between a kill and the next start nobody can be asked.
            if (count := self._node.sessions_of(ACCOUNT)) is not None:
                self.most = max(self.most, count)


def test_a_node_that_is_restarted_ten_times_is_back_each_time(
    installation: Installation, ports: Ports, tmp_path: Path
) -> None:
    with (
        lone_node(installation, "restarted") as node,
        watching(node, tmp_path, ports) as service,
        SessionCount(node) as sessions,
    ):
        footprint = Footprint(service)
        for number in [signal.SIGKILL, signal.SIGTERM] * 5:
            before = len(service.status()["changes"])
            node.process.stop(number)
            wait_until_shown(service, "unreachable")
            start_alone(node)
            wait_until_back(service)
            seen = reasons_since(service, before)
            assert seen[-1] == "synced"
            assert not {"stale", "error"} & set(seen), seen
        footprint.check()
        assert sessions.most <= MOST_SESSIONS


def test_a_network_that_is_cut_is_a_timeout_and_back_within_a_second(
    remote_host: RemoteHost, installation: Installation, ports: Ports, tmp_path: Path
) -> None:
    node = installation.node("remote", [f"--bind-address={remote_host.address}"])
    with ExitStack() as exits:
        exits.callback(node.kill)
        with remote_host.entered():
            start_alone(node)
        node.sql(f"CREATE USER {ACCOUNT}@'%' IDENTIFIED BY '{PASSWORD}'")
        service = exits.enter_context(
            watching(node, tmp_path, ports, MYSQL_SOCKET="", MYSQL_HOST=remote_host.address, MYSQL_PORT=str(node.port))
        )
        sessions = exits.enter_context(SessionCount(node))
        footprint = Footprint(service)
        for _ in range(2):
            before = len(service.status()["changes"])
            with remote_host.cut_off():
                wait_until_shown(service, "timeout")
                # Several attempts to connect, each into the void.
                seen_at = time.monotonic()
                wait_for("some attempts", lambda: time.monotonic() - seen_at > 2)  # noqa: B023 (runs in this turn)
                assert service.get().reason == "timeout"
            wait_until_back(service, NETWORK_BACK_SECONDS)
            assert reasons_since(service, before) == ["timeout", "synced"]
        footprint.check()
        # A session that was cut off is the server's until its own time-out, half a minute later.
        assert sessions.most <= MOST_SESSIONS + 2


def cuts_mid_packet(peer: Peer) -> None:
    """Hang up in the middle of an answer."""
    peer.log_in()
    peer.receive()
    peer.connection.sendall(b"\xff\x00\x00\x01\x02")


FAULTS: list[tuple[str, Behaviour, str]] = [
    ("accepts and never greets", Peer.hang, "timeout"),
    ("greets and never answers", greets_and_is_silent, "timeout"),
    ("logs in and never answers", logs_in_and_is_silent, "timeout"),
    ("cuts mid-packet", cuts_mid_packet, "connection-lost"),
    ("closes at once", sends_bytes(b""), "connection-lost"),
    ("answers garbage", sends_bytes(b"\x07garbage\xff" * 50), "error"),
    ("never ends its garbage", sends_bytes(b"\xff\xff\xff\x00" + b"\x0a" * 100_000, then_hangs=True), "error"),
]


def check_faults(server: FakeMySQL, service: Service, faults: list[tuple[str, Behaviour, str]]) -> None:
    """Check that each fault shows in time with its reason and nothing else, and is over in time."""
    healthy = server.behaviour
    for name, behaviour, reason in faults:
        before = len(service.status()["changes"])
        with undisturbed(service, expected={reason}):
            server.behaviour = behaviour
            server.drop_connections()
            wait_until_shown(service, reason)
            server.behaviour = healthy
            # A login that is under way would wait for its answer for 5 s.
            server.drop_connections()
            wait_until_back(service)
            assert set(reasons_since(service, before)) == {reason, "synced"}, name


def start_for(server: FakeMySQL, services: Services, *, tls_ca: str = "", tls: bool = False) -> Service:
    """Start clustercheckd for a fake."""
    return services.start(
        MYSQL_HOST=LOOPBACK,
        MYSQL_PORT=str(server.port),
        MYSQL_USERNAME="someone",
        MYSQL_PASSWORD="geheim",
        MYSQL_SSL="1" if tls else "0",
        MYSQL_SSL_CA=tls_ca,
    )


def test_broken_servers_show_their_reason_in_time_and_are_back_in_time(services: Services) -> None:
    with fake_mysql(galera()) as server:
        service = start_for(server, services)
        service.wait_for_verdict(200, "synced")
        check_faults(server, service, FAULTS[:1])
        footprint = Footprint(service)
        began, before = time.monotonic(), server.connections
        check_faults(server, service, FAULTS)
        footprint.check()
        assert server.most_open_connections <= MOST_SESSIONS
        # Each poll makes one attempt, and four begin in a second.
        assert server.connections - before <= 4 * (time.monotonic() - began) + 2 * len(FAULTS)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a key and a certificate that it has signed itself, in one file."""
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-addext", f"subjectAltName=IP:{LOOPBACK}", "-keyout", path, "-out", f"{path}.crt"],
                   check=True, capture_output=True, timeout=20)  # fmt: skip
    with path.open("a") as both:
        both.write(Path(f"{path}.crt").read_text())
    return path


def over_tls(certificate: Path, then: Callable[[Peer], None]) -> Behaviour:
    """Offer TLS, begin it, and go on within it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def behaviour(peer: Peer) -> None:
        peer.greet(capabilities=TLS_CAPABILITIES)
        peer.receive()
        # The server keeps the other one, to count it and to hang up.
        with context.wrap_socket(peer.connection.dup(), server_side=True) as secured:
            peer.connection = secured
            then(peer)

    return behaviour


def serves_galera(peer: Peer) -> None:
    """Let the client in, and behave like a Synced node."""
    peer.receive()
    peer.send(OK)
    peer.answer_queries(SYNCED_STATUS, SYNCED_VARIABLES)


def test_a_server_that_hangs_in_tls_leaks_no_descriptor(services: Services, certificate: Path) -> None:
    may_end = threading.Event()

    # They do not even read the end of the connection, which TLS waits to have answered.
    def hangs_in_the_handshake(peer: Peer) -> None:
        peer.greet(capabilities=TLS_CAPABILITIES)
        peer.receive()
        may_end.wait()

    def hangs_in_a_query(peer: Peer) -> None:
        peer.receive()
        peer.send(OK)
        may_end.wait()

    with fake_mysql(over_tls(certificate, serves_galera)) as server, ExitStack() as exits:
        exits.callback(may_end.set)
        healthy = server.behaviour
        service = start_for(server, services, tls=True, tls_ca=f"{certificate}.crt")
        service.wait_for_verdict(200, "synced")
        footprint = Footprint(service)
        for behaviour in (
            hangs_in_the_handshake,
            over_tls(certificate, hangs_in_a_query),
        ):
            server.behaviour = behaviour
            server.drop_connections()
            wait_until_shown(service, "timeout")
            attempts = server.connections
            wait_for("a further attempt", lambda: server.connections > attempts, seconds=10)  # noqa: B023 (in turn)
            # One is under way.
            most = footprint.descriptors + 1
            wait_for("few descriptors", lambda: service.process.descriptors <= most, seconds=5)  # noqa: B023 (in turn)
            server.behaviour = healthy
            may_end.set()
            wait_until_back(service)
            may_end.clear()
            footprint.check()
        assert server.most_open_connections <= MOST_SESSIONS


def test_a_server_without_tls_is_told_nothing_where_tls_is_required(services: Services) -> None:
    received: list[bytes] = []

    def greets_and_listens(peer: Peer) -> None:
        peer.greet()
        while chunk := peer.connection.recv(65536):
            received.append(chunk)
        received.append(b"")

    with fake_mysql(greets_and_listens) as server:
        service = start_for(server, services, tls=True)
        reply = wait_until_shown(service, "error")
        assert f"{LOOPBACK}:{server.port} offers no TLS, but MYSQL_SSL* or the option file requires it" in reply.body
        footprint = Footprint(service)
        # They become rarer: the second comes after 1 s, the third after 2 s more.
        wait_for("several attempts", lambda: len(received) >= 3, seconds=10)
        assert b"".join(received) == b""
        footprint.check()


def test_a_server_hung_for_30_seconds_leaves_nothing_behind_and_is_back_within_a_second(hang: Hang) -> None:
    # The time that the tests before this one took counts.
    wait_for("30 seconds to be over", lambda: time.monotonic() - hang.since >= HUNG_SECONDS, seconds=HUNG_SECONDS)
    assert reasons_since(hang.service, hang.changes) == ["timeout"]
    hang.footprint.check()
    hang.node.resume()
    wait_until_back(hang.service)
    assert reasons_since(hang.service, hang.changes) == ["timeout", "synced"]
    wait_for("few sessions of ours", lambda: (hang.node.sessions_of(ACCOUNT) or 9) <= MOST_SESSIONS, seconds=10)
    hang.footprint.check()
