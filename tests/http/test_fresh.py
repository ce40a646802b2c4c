"""An answer is fresh: a health check asks for a poll, waits for its end, and is never lost meanwhile."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from app.monitor import IDLE_SECONDS, REFUSAL_SECONDS, oldest_usable_seconds
from harness.ports import LOOPBACK
from harness.service import Service, read_to_end
from harness.waiting import wait_for
from tests.conftest import Services
from tests.fake_mysql import SYNCED_STATUS, SYNCED_VARIABLES, FakeMySQL, Peer, fake_mysql
from tests.http.test_policies import beside
from tests.measured import within

HEALTH_CHECK = b"GET / HTTP/1.0\r\n\r\n"
INTERVAL_SECONDS, DEADLINE_SECONDS = 0.25, 0.8
PATIENT = {"CLUSTERCHECK_DEADLINE": "20"}
SECONDS = 10.0


class SlowNode:
    """A node whose status may change at any time, and whose polls wait until the gate opens."""

    server: FakeMySQL

    def __init__(self) -> None:
        self.status: dict[str, str | bytes] = {**SYNCED_STATUS}
        self.gate = threading.Event()
        self.gate.set()
        self.answer_seconds = 0.0
        self.polls = 0

    def __call__(self, peer: Peer) -> None:
        """Behave like a node."""
        slow = _SlowPeer(peer.connection, self)
        slow.log_in()
        slow.answer_queries(self.status, SYNCED_VARIABLES)

    def turn(self, *, ready: bool) -> None:
        """Be ready from now on, or not."""
        self.status["wsrep_ready"] = "ON" if ready else "OFF"

    def wait(self) -> None:
        """Keep a poll waiting."""
        self.polls += 1
        threading.Event().wait(self.answer_seconds)
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


@contextmanager
def slow_node() -> Iterator[SlowNode]:
    """Run a node."""
    node = SlowNode()
    with fake_mysql(node) as node.server:
        try:
            yield node
        finally:
            node.gate.set()


@pytest.fixture
def node() -> Iterator[SlowNode]:
    """Run a node."""
    with slow_node() as running:
        yield running


def watch(services: Services, node: SlowNode, **environ: str) -> Service:
    """Start clustercheckd with one session, so that only polls ask the node for its status."""
    service = beside(services, node.server, CLUSTERCHECK_LOGIN_INTERVAL="0", **environ)
    service.wait_for_verdict(200, "synced")
    return service


def let_pass(seconds: float) -> None:
    """Wait until so much time has passed."""
    began = time.monotonic()
    wait_for("time to pass", lambda: time.monotonic() - began >= seconds)


def send(service: Service, request: bytes = HEALTH_CHECK) -> socket.socket:
    """Send a request, and do not wait for its answer."""
    connection = socket.create_connection((LOOPBACK, service.port), timeout=SECONDS)
    connection.sendall(request)
    return connection


def answer_to(connection: socket.socket) -> tuple[int, str]:
    """Wait for an answer; return its status and reason."""
    with connection:
        head, _, _ = read_to_end(connection).decode().partition("\r\n\r\n")
    return int(head.split()[1]), head.partition("x-clustercheck-reason: ")[2].partition("\r\n")[0]


def hold(service: Service, node: SlowNode, request: bytes = HEALTH_CHECK) -> socket.socket:
    """Close the gate, and send a request that has to wait for a poll behind it."""
    before = node.polls
    node.gate.clear()
    let_pass(1.1 * INTERVAL_SECONDS)
    held = send(service, request)
    wait_for("a poll to be under way", lambda: node.polls > before, seconds=SECONDS)
    # Sent later, on the same loop: if the first request had its answer already, that would have left before.
    assert service.get("/livez").status == 200
    assert is_open(held)
    return held


def is_open(connection: socket.socket) -> bool:
    """Return whether the service has neither answered nor closed it."""
    connection.setblocking(False)  # noqa: FBT003 (socket's own signature)
    try:
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    finally:
        connection.settimeout(SECONDS)
    return False


def test_an_answer_shows_what_happened_just_before_the_health_check(services: Services, node: SlowNode) -> None:
    service = watch(services, node)
    for ready, expected in ((False, (503, "not-ready")), (True, (200, "synced"))):
        service.get()
        asked_at = time.monotonic()
        let_pass(1.2 * INTERVAL_SECONDS)
        node.turn(ready=ready)
        # Later, a poll that nobody asked for may have come first.
        within("between two health checks", time.monotonic() - asked_at, IDLE_SECONDS - INTERVAL_SECONDS)
        asked_at = time.monotonic()
        reply = service.get()
        if ready and reply.status != 200:
            # The answer before was 503, which waits only so long.
            within("a poll", time.monotonic() - asked_at, REFUSAL_SECONDS)
        assert (reply.status, reply.reason) == expected


def test_many_health_checks_get_one_poll_an_interval_and_without_any_there_is_one_a_second(
    services: Services, node: SlowNode
) -> None:
    service = watch(services, node)
    before, began, answers = node.polls, time.monotonic(), 0
    while time.monotonic() - began < 8 * INTERVAL_SECONDS:
        assert service.get().status == 200
        answers += 1
    polls, seconds = node.polls - before, time.monotonic() - began
    assert polls <= seconds / INTERVAL_SECONDS + 1
    assert answers > polls > 1
    before = node.polls
    wait_for("a poll that nobody asked for", lambda: node.polls > before, seconds=SECONDS)
    began = time.monotonic()
    wait_for("three more", lambda: node.polls > before + 3, seconds=SECONDS)
    seconds = time.monotonic() - began
    assert seconds > 2.5 * IDLE_SECONDS
    within("three polls that nobody asked for", seconds, 4 * IDLE_SECONDS)


@pytest.mark.parametrize("target", ["/", "/readyz", "/?available_when_donor=1", "/status"])
def test_a_200_waits_for_the_poll_and_becomes_its_verdict(services: Services, node: SlowNode, target: str) -> None:
    service = watch(services, node, **PATIENT)
    request = f"GET {target} HTTP/1.0\r\n\r\n".encode()
    with hold(service, node, request) as held:
        node.gate.set()
        assert read_to_end(held).startswith(b"HTTP/1.1 200 OK\r\n")
    with hold(service, node, request) as held:
        node.turn(ready=False)
        node.gate.set()
        head, _, body = read_to_end(held).decode().partition("\r\n\r\n")
    if target == "/status":
        assert json.loads(body)["reason"] == "not-ready"
    else:
        assert head.startswith("HTTP/1.1 503 ")


def test_a_200_that_waits_for_a_hung_poll_becomes_timeout_at_the_deadline(services: Services, node: SlowNode) -> None:
    service = watch(services, node)
    began = time.monotonic()
    assert answer_to(hold(service, node)) == (503, "timeout")
    # The poll begins at most an interval after the one before.
    within("the timeout", time.monotonic() - began, INTERVAL_SECONDS + DEADLINE_SECONDS + 0.3)


def test_a_known_503_waits_50_ms_at_most(services: Services, node: SlowNode) -> None:
    service = watch(services, node, **PATIENT)
    node.turn(ready=False)
    service.wait_for_verdict(503, "not-ready")
    node.gate.clear()
    let_pass(1.1 * INTERVAL_SECONDS)
    began = time.monotonic()
    assert service.get().reason == "not-ready"
    within("a known 503", time.monotonic() - began, REFUSAL_SECONDS + 0.1)


def test_what_does_not_depend_on_the_poll_never_waits_for_it(services: Services, node: SlowNode) -> None:
    service = watch(services, node, CLUSTERCHECK_DRAIN_SECONDS="30", **PATIENT)
    with hold(service, node):
        for target, status in (("/metrics", 200), ("/livez", 200), ("/nothing", 404), ("/?nothing=1", 400)):
            assert service.get(target).status == status
        service.disabled_file.touch()
        assert service.get().reason == "disabled"
        service.disabled_file.unlink()
        service.process.terminate()
        wait_for("the drain", lambda: "INFO draining " in service.log.read_text(), seconds=SECONDS)
        assert service.get().reason == "shutting-down"
        service.process.terminate()


def test_a_slow_node_is_answered_late_and_truly(services: Services, node: SlowNode) -> None:
    node.answer_seconds = 0.6
    # Two such polls in a row are longer.
    service = watch(services, node, CLUSTERCHECK_DEADLINE="1")
    assert {service.get().reason for _ in range(5)} == {"synced"}
    assert [change["reason"] for change in service.status()["changes"]] == ["synced"]


def test_a_pause_of_the_service_is_not_the_nodes_fault(services: Services) -> None:
    pauses = (1.1 * DEADLINE_SECONDS, oldest_usable_seconds(INTERVAL_SECONDS, DEADLINE_SECONDS) + 0.2)
    with ExitStack() as exits:
        nodes = [exits.enter_context(slow_node()) for _ in range(4)]
        watched = [(beside(services, node.server), node) for node in nodes]
        for service, _ in watched:
            service.wait_for_verdict(200, "synced")
        for seconds in 3 * pauses:
            held = []
            for service, node in watched:
                held.append(hold(service, node))
                service.process.send(signal.SIGSTOP)
                # The answer lies in the socket while the service stands still.
                node.gate.set()
            let_pass(seconds)
            for service, _ in watched:
                held += [send(service, b"GET /metrics HTTP/1.0\r\n\r\n"), send(service)]
                service.process.send(signal.SIGCONT)
            # /metrics has no reason.
            answers = [answer_to(connection) for connection in held]
            assert set(answers) == {(200, "synced"), (200, "")}
        for service, _ in watched:
            assert [line.split()[2] for line in service.log.read_text().splitlines()] == ["started", "available"]


def test_what_was_read_before_a_pause_of_the_service_is_not_answered_after_it(
    services: Services, node: SlowNode
) -> None:
    service = watch(services, node)
    service.process.send(signal.SIGSTOP)
    node.turn(ready=False)
    waiting = [send(service) for _ in range(20)]
    let_pass(1.2 * INTERVAL_SECONDS)
    service.process.send(signal.SIGCONT)
    assert {answer_to(connection) for connection in waiting} == {(503, "not-ready")}


def test_the_first_health_check_waits_for_the_first_poll_as_long_as_the_deadline_allows(
    services: Services, node: SlowNode
) -> None:
    # A client that sends nothing may stay for 2 s.
    node.answer_seconds = 2.5
    service = beside(services, node.server, CLUSTERCHECK_DEADLINE="4")
    reply = service.get()
    assert (reply.status, reply.reason) == (200, "synced")


@pytest.mark.parametrize(("deadline", "ends"), [("20", True), ("0.8", False)])
def test_a_health_check_that_waits_is_answered_before_the_service_ends(
    services: Services, node: SlowNode, deadline: str, *, ends: bool
) -> None:
    service = watch(services, node, CLUSTERCHECK_DEADLINE=deadline)
    held = hold(service, node)
    service.process.terminate()
    wait_for("the end to begin", lambda: "INFO stopping " in service.log.read_text(), seconds=SECONDS)
    if ends:
        # Longer than a connection has for its request then.
        let_pass(0.5)
        node.gate.set()
    assert answer_to(held) in ([(200, "synced")] if ends else [(503, "timeout"), (503, "shutting-down")])
    assert service.stop() == 0
    assert "ERROR" not in service.log.read_text()


def test_health_checks_that_wait_and_half_close_are_answered_and_those_that_leave_leave_nothing(
    services: Services, node: SlowNode
) -> None:
    service = watch(services, node, **PATIENT)
    before = service.process.descriptors
    staying = [hold(service, node), *(send(service) for _ in range(20))]
    for connection in staying:
        connection.shutdown(socket.SHUT_WR)
    for _ in range(200):
        leaving = send(service)
        leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        leaving.close()
    talking = send(service, HEALTH_CHECK + b"x" * 4000)
    talking.sendall(b"x" * 4000)
    most = before + len(staying) + 2
    wait_for("those that left to be forgotten", lambda: service.process.descriptors <= most, seconds=SECONDS)
    node.gate.set()
    assert {answer_to(connection) for connection in (*staying, talking)} == {(200, "synced")}
    wait_for("the descriptors", lambda: service.process.descriptors <= before, seconds=SECONDS)
    assert len(service.log.read_text().splitlines()) == 2


def test_the_age_of_a_poll_counts_time_asleep() -> None:
    # In a time namespace of its own, the machine has slept for a day more than here.
    command = [sys.executable, "-c", "from app.monitor import boot_seconds; print(boot_seconds())"]
    slept = ["unshare", "--time", "--boottime", "86400"]

    def seconds(wrapper: list[str]) -> float:
        return float(subprocess.run([*wrapper, *command], check=True, capture_output=True, timeout=20).stdout)

    if subprocess.run([*slept, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no time namespace to be had here")
    assert abs(seconds(slept) - seconds([]) - 86400) < 60
