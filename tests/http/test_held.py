"""A 200 is fresh or held: while a poll is late, whoever would get 200 waits for its end, and nobody is lost."""

import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle

import pytest

from app.http.guard import CONNECTIONS, DEADLINE_SECONDS
from app.monitor import IN_DOUBT_SECONDS
from harness.ports import LOOPBACK
from harness.service import Service, read_to_end
from harness.waiting import wait_for
from tests.conftest import Services
from tests.fake_mysql import FakeMySQL, Peer, fake_mysql, galera
from tests.measured import within

HEALTH_CHECK = b"GET / HTTP/1.0\r\n\r\n"
OK_LINE, UNAVAILABLE_LINE = b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 503 Service Unavailable\r\n"
DOUBT_SECONDS = 0.25 + IN_DOUBT_SECONDS
LATE_SECONDS = 10.0
NOT_READY = {"wsrep_ready": "OFF"}


class SlowNode:
    """A hand-written node whose polls wait: for the gate to open, or for as long as delays says."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.delays: Iterator[float] = cycle([0.0])
        self.state: dict[str, str | bytes] = {}
        self.polls = 0

    def __call__(self, peer: Peer) -> None:
        """Behave like a node; slowly."""
        galera(self.state)(_SlowPeer(peer.connection, self))

    def wait(self) -> None:
        """Have one poll wait."""
        self.polls += 1
        # What has become of the node meanwhile is what is read.
        threading.Event().wait(next(self.delays))
        self.gate.wait()


class _SlowPeer(Peer):
    def __init__(self, connection: socket.socket, node: SlowNode) -> None:
        super().__init__(connection)
        self._node = node

    def receive(self) -> bytes:
        packet = super().receive()
        if b"SHOW STATUS" in packet:
            self._node.wait()
        return packet


@pytest.fixture
def node() -> Iterator[SlowNode]:
    """Make a node whose gate is open at the end in any case."""
    made = SlowNode()
    yield made
    made.gate.set()


@pytest.fixture
def server(node: SlowNode) -> Iterator[FakeMySQL]:
    """Run the node."""
    with fake_mysql(node) as running, ExitStack() as exits:
        exits.callback(node.gate.set)
        yield running


def watch(services: Services, server: FakeMySQL, **environ: str) -> Service:
    """Start clustercheckd for it, with much patience."""
    settings = {"MYSQL_HOST": LOOPBACK, "MYSQL_PORT": str(server.port), "MYSQL_USERNAME": "someone"}
    service = services.start(**{**settings, "CLUSTERCHECK_DEADLINE": "20", **environ})
    service.wait_for_verdict(200, "synced")
    return service


def age_seconds(service: Service) -> float:
    """Return how old the latest poll is."""
    age: float = service.status()["age_seconds"]
    return age


def wait_for_doubt(service: Service, seconds: float = DOUBT_SECONDS) -> None:
    """Wait until the latest poll is older than this."""
    wait_for("the poll to be late", lambda: age_seconds(service) > seconds, seconds=LATE_SECONDS)


def send_check(service: Service, request: bytes = HEALTH_CHECK) -> socket.socket:
    """Send a health check, and do not wait for its answer."""
    connection = socket.create_connection((LOOPBACK, service.port), timeout=LATE_SECONDS)
    connection.sendall(request)
    return connection


def answer_to(connection: socket.socket) -> bytes:
    """Wait for the answer."""
    with connection:
        return read_to_end(connection)


def turn_not_ready(server: FakeMySQL, node: SlowNode) -> None:
    """Have the next poll find the node not ready."""
    node.state.update(NOT_READY)
    # The rows of the connection that is held were chosen as it began.
    server.drop_connections()


@pytest.mark.parametrize("target", ["/", "/readyz", "/?available_when_donor=1"])
def test_a_200_in_doubt_is_held_and_becomes_the_verdict_of_the_poll_that_ends(
    services: Services, server: FakeMySQL, node: SlowNode, target: str
) -> None:
    service = watch(services, server)
    for state, line in (({}, OK_LINE), (NOT_READY, UNAVAILABLE_LINE)):
        node.gate.clear()
        wait_for_doubt(service)
        held = send_check(service, f"GET {target} HTTP/1.0\r\n\r\n".encode())
        # Answered after the held one was sent, on the same loop: an answer to that one would have left before.
        assert service.get("/livez").status == 200
        if state:
            turn_not_ready(server, node)
        node.gate.set()
        assert answer_to(held).startswith(line)


def test_a_503_is_never_held(services: Services, server: FakeMySQL, node: SlowNode) -> None:
    service = watch(services, server)
    turn_not_ready(server, node)
    service.wait_for_verdict(503, "not-ready")
    node.gate.clear()
    wait_for_doubt(service)
    assert service.get().reason == "not-ready"
    service.disabled_file.touch()
    assert service.get().reason == "disabled"


def test_what_is_switched_off_by_hand_is_not_held_either(services: Services, server: FakeMySQL, node: SlowNode) -> None:
    service = watch(services, server)
    node.gate.clear()
    wait_for_doubt(service)
    service.disabled_file.touch()
    assert service.get().reason == "disabled"


def test_a_late_poll_delays_neither_status_nor_liveness_nor_what_is_no_endpoint(
    services: Services, server: FakeMySQL, node: SlowNode
) -> None:
    service = watch(services, server)
    node.gate.clear()
    wait_for_doubt(service)
    for target, status in (("/status", 200), ("/livez", 200), ("/nothing", 404), ("/?nothing=1", 400)):
        assert service.get(target).status == status


def test_a_slow_node_is_answered_late_and_truly_and_is_never_stale_in_turns(
    services: Services, server: FakeMySQL, node: SlowNode
) -> None:
    # Enough for what a busy machine adds, and so little that two slow polls in a row are longer.
    service = watch(services, server, CLUSTERCHECK_DEADLINE="1")
    node.delays = cycle([0.2, 0.7, 0.7, 0.3, 0.7, 0.2])
    begun = node.polls
    seen = set()
    while node.polls < begun + 8:
        reply = service.get()
        seen.add((reply.status, reply.reason))
        seen.add((reply.status, service.status()["reason"]))
    assert seen == {(200, "synced")}
    assert [change["reason"] for change in service.status()["changes"]] == ["synced"]


def test_a_200_rests_on_an_poll_that_is_fresh_or_has_just_ended(
    services: Services, server: FakeMySQL, node: SlowNode
) -> None:
    service = watch(services, server)
    node.gate.clear()
    asked_at, last_200_at = time.monotonic(), 0.0
    waiting: list[socket.socket] = []
    while time.monotonic() - asked_at < 4 * DOUBT_SECONDS:
        waiting.append(send_check(service))
        answered, _, _ = select.select(waiting, [], [], 0.02)
        for connection in answered:
            assert answer_to(connection).startswith(OK_LINE)
            last_200_at = time.monotonic()
            waiting.remove(connection)
    # The poll that the gate holds up began at most an interval after the one before it.
    within("last 200 before a late poll", last_200_at - asked_at, DOUBT_SECONDS + 0.25)
    turn_not_ready(server, node)
    node.gate.set()
    assert len(waiting) > 5
    for connection in waiting:
        assert answer_to(connection).startswith(UNAVAILABLE_LINE)


def test_a_health_check_is_held_for_longer_than_a_silent_client_may_stay(
    services: Services, server: FakeMySQL, node: SlowNode
) -> None:
    service = watch(services, server)
    node.gate.clear()
    wait_for_doubt(service)
    with send_check(service) as held, send_check(service, b"GET / HT") as silent:
        wait_for_doubt(service, DOUBT_SECONDS + 2 * DEADLINE_SECONDS)
        assert silent.recv(4096) == b""
        node.gate.set()
        assert read_to_end(held).startswith(OK_LINE)


def test_held_health_checks_that_half_close_are_answered_and_those_that_leave_leave_nothing(
    services: Services, server: FakeMySQL, node: SlowNode
) -> None:
    service = watch(services, server)
    before = service.process.descriptors
    node.gate.clear()
    wait_for_doubt(service)
    staying = [send_check(service) for _ in range(20)]
    for connection in staying:
        connection.shutdown(socket.SHUT_WR)
    for _ in range(200):
        leaving = send_check(service)
        leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        leaving.close()
    talking = send_check(service, HEALTH_CHECK + b"x" * 4000)
    talking.sendall(b"x" * 4000)
    wait_for(
        "those that left to be forgotten",
        lambda: service.process.descriptors <= before + len(staying) + 2,
        seconds=LATE_SECONDS,
    )
    node.gate.set()
    for connection in (*staying, talking):
        assert answer_to(connection).startswith(OK_LINE)
    wait_for("the descriptors", lambda: service.process.descriptors <= before, seconds=LATE_SECONDS)
    assert len(service.log.read_text().splitlines()) == 2


def is_open(connection: socket.socket) -> bool:
    """Whether the server has neither answered nor closed it."""
    connection.setblocking(False)  # noqa: FBT003 (socket's own signature)
    try:
        connection.recv(1)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        connection.settimeout(LATE_SECONDS)
    return False


def test_a_flood_ends_what_is_silent_first_and_then_the_oldest_that_is_held(
    services: Services, server: FakeMySQL, node: SlowNode
) -> None:
    service = watch(services, server)
    before = service.process.descriptors
    node.gate.clear()
    wait_for_doubt(service)
    with ExitStack() as exits:

        def several(count: int, request: bytes) -> list[socket.socket]:
            return [exits.enter_context(send_check(service, request)) for _ in range(count)]

        def open_of(connections: list[socket.socket]) -> int:
            return sum(map(is_open, connections))

        held = several(CONNECTIONS - 20, HEALTH_CHECK)
        silent = several(20, b"GET / HT")
        more = several(20, HEALTH_CHECK)
        wait_for("the silent ones to be closed", lambda: open_of(silent) == 0, seconds=LATE_SECONDS)
        assert open_of(held + more) == CONNECTIONS
        last = several(30, HEALTH_CHECK)
        wait_for("the oldest to be closed", lambda: open_of(held[:30]) == 0, seconds=LATE_SECONDS)
        remaining = held[30:] + more + last
        assert open_of(remaining) == CONNECTIONS
        assert service.process.descriptors <= before + CONNECTIONS + 1
        node.gate.set()
        assert all(read_to_end(connection).startswith(OK_LINE) for connection in remaining)
    wait_for("the descriptors", lambda: service.process.descriptors <= before, seconds=LATE_SECONDS)


@pytest.mark.parametrize(
    ("deadline", "reason"),
    [
        # It ends within the time that is left for answers.
        ("0.6", b"x-clustercheck-reason: timeout\r\n"),
        ("20", b"x-clustercheck-reason: shutting-down\r\n"),
    ],
)
def test_a_held_health_check_is_answered_before_the_service_ends(
    services: Services, server: FakeMySQL, node: SlowNode, deadline: str, reason: bytes
) -> None:
    service = watch(services, server, CLUSTERCHECK_DEADLINE=deadline)
    node.gate.clear()
    wait_for_doubt(service)
    held = send_check(service)
    assert service.get("/livez").status == 200
    service.process.terminate()
    answer = answer_to(held)
    assert answer.startswith(UNAVAILABLE_LINE)
    assert reason in answer
    assert service.stop() == 0
    assert "ERROR" not in service.log.read_text()


def test_the_age_of_an_poll_counts_time_asleep() -> None:
    # In a time namespace of its own, the machine has slept for a day more than here.
    command = [sys.executable, "-c", "from app.monitor import boot_seconds; print(boot_seconds())"]
    slept = ["unshare", "--time", "--boottime", "86400"]

    def seconds(wrapper: list[str]) -> float:
        return float(subprocess.run([*wrapper, *command], check=True, capture_output=True, timeout=20).stdout)

    if subprocess.run([*slept, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no time namespace to be had here")
    assert abs(seconds(slept) - seconds([]) - 86400) < 60
