"""An answer is fresh: a health check asks for a poll, waits for its end, and is never lost
meanwhile.
"""

import json
import select
import socket
import threading
from collections import UserDict
from collections.abc import ItemsView, Iterator

import pytest

from app.monitor.monitor import REFUSAL_SECONDS, oldest_usable_seconds
from harness.service import Service, read_to_end
from harness.waiting import wait_for
from tests.conftest import Services
from tests.fake_mysql import (
    SYNCED_STATUS,
    SYNCED_VARIABLES,
    FakeMySQL,
    Peer,
    Value,
    fake_mysql,
)
from tests.http.conftest import HEALTH_CHECK
from tests.measured import STALLED, DisturbedError, done_within, let_pass

INTERVAL_SECONDS, DEADLINE_SECONDS = 0.25, 0.8
PATIENT = {"CLUSTERCHECK_DEADLINE": "20"}
# Then only polls ask the node for its status.
ONE_SESSION = {"CLUSTERCHECK_LOGIN_INTERVAL": "0"}


class SlowNode(UserDict[str, Value]):
    """A mock node and its status, which may change at any time; whoever asks for it waits until the
    gate opens.
    """

    server: FakeMySQL

    def __init__(self) -> None:
        super().__init__(SYNCED_STATUS)
        self.gate = threading.Event()
        self.gate.set()
        self.polls = 0

    def __call__(self, peer: Peer) -> None:
        """Behave like a node."""
        peer.log_in()
        peer.answer_queries(self, SYNCED_VARIABLES)

    def items(self) -> ItemsView[str, Value]:
        """Return the status, late."""
        self.polls += 1
        self.gate.wait()
        return super().items()


@pytest.fixture
def node() -> Iterator[SlowNode]:
    """Run a node."""
    slow = SlowNode()
    with fake_mysql(slow) as slow.server:
        yield slow
        slow.gate.set()


REFUSALS = [(503, "timeout"), (503, "shutting-down")]


def send(service: Service, request: bytes = HEALTH_CHECK) -> socket.socket:
    """Send a request, and do not wait for its answer."""
    connection = service.connect()
    connection.sendall(request)
    return connection


def answer_to(connection: socket.socket) -> tuple[int, str]:
    """Wait for an answer; return its status and reason."""
    with connection:
        head, _, body = read_to_end(connection).decode().partition("\r\n\r\n")
    reason = (
        json.loads(body)["reason"]
        if body.startswith("{")
        else head.partition("x-clustercheck-reason: ")[2]
    )
    return int(head.split()[1]), reason.partition("\r\n")[0]


def hold(
    service: Service, node: SlowNode, request: bytes = HEALTH_CHECK
) -> socket.socket:
    """Close the gate, and send a request that has to wait for a poll behind it."""
    before = node.polls
    node.gate.clear()
    let_pass(1.1 * INTERVAL_SECONDS)
    held = send(service, request)
    wait_for("a poll to be under way", lambda: node.polls > before)
    # Sent later, on the same loop: if the first request had its answer already, that would have
    # left before.
    assert service.get("/livez").status == 200
    assert select.select([held], [], [], 0)[0] == []
    return held


def test_a_200_waits_for_the_poll_and_becomes_its_verdict_and_a_503_waits_50_ms(
    services: Services, node: SlowNode
) -> None:
    service = services.beside(node.server, **ONE_SESSION, **PATIENT)
    for target in ("/", "/readyz", "/?available_when_donor=1", "/status"):
        for ready, reason in (("ON", "synced"), ("OFF", "not-ready")):
            held = hold(service, node, f"GET {target} HTTP/1.0\r\n\r\n".encode())
            node["wsrep_ready"] = ready
            node.gate.set()
            status = 200 if ready == "ON" or target == "/status" else 503
            assert answer_to(held) == (status, reason)
        node.gate.clear()
        let_pass(1.1 * INTERVAL_SECONDS)
        with done_within("a known 503", REFUSAL_SECONDS + 0.1):
            assert service.get().reason == "not-ready"
        node["wsrep_ready"] = "ON"
        node.gate.set()
        service.wait_for_verdict(200, "synced")


def test_what_does_not_depend_on_the_poll_never_waits_for_it(
    services: Services, node: SlowNode
) -> None:
    service = services.beside(
        node.server, CLUSTERCHECK_DRAIN_SECONDS="30", **ONE_SESSION, **PATIENT
    )
    with hold(service, node):
        for target, status in (
            ("/metrics", 200),
            ("/livez", 200),
            ("/nothing", 404),
            ("/?nothing=1", 400),
        ):
            assert service.get(target).status == status
        service.disabled_file.touch()
        assert service.get().reason == "disabled"
        service.disabled_file.unlink()
        service.process.terminate()
        service.wait_for_log(" INFO draining ")
        assert service.get().reason == "shutting-down"
        service.process.terminate()


def test_a_pause_of_the_service_is_not_the_nodes_fault(
    services: Services, node: SlowNode
) -> None:
    service = services.beside(node.server)
    for seconds in 3 * (
        1.1 * DEADLINE_SECONDS,
        oldest_usable_seconds(INTERVAL_SECONDS, DEADLINE_SECONDS) + 0.2,
    ):
        held = hold(service, node)
        with service.process.paused():
            # The answer lies in the socket while the service stands still.
            node.gate.set()
            let_pass(seconds)
            metrics = send(service, b"GET /metrics HTTP/1.0\r\n\r\n")
            sent_meanwhile = send(service)
        assert answer_to(held) == answer_to(sent_meanwhile) == (200, "synced")
        # /metrics has no reason.
        assert answer_to(metrics) == (200, "")
    assert [line.split()[2] for line in service.log.read_text().splitlines()] == [
        "started",
        "available",
    ]


@pytest.mark.parametrize(
    ("deadline", "pause_seconds", "answers"),
    [
        ("20", 0, [(200, "synced")]),
        ("0.8", 0, REFUSALS),
        # The pause is longer than all that the service waits for.
        ("0.8", 3, [*REFUSALS, (503, "stale")]),
    ],
    ids=["the poll ends", "it does not end", "nor before a pause"],
)
def test_a_health_check_that_waits_is_answered_before_the_service_ends(
    services: Services,
    node: SlowNode,
    deadline: str,
    pause_seconds: float,
    answers: list[tuple[int, str]],
) -> None:
    service = services.beside(
        node.server, CLUSTERCHECK_DEADLINE=deadline, **ONE_SESSION
    )
    held = hold(service, node)
    service.process.terminate()
    service.wait_for_log(" INFO stopping ")
    with service.process.paused():
        let_pass(pause_seconds)
    if (200, "synced") in answers:
        # Longer than a connection has for its request then.
        let_pass(0.5)
        node.gate.set()
    answer = answer_to(held)
    if answer not in answers and answer[1] in STALLED:
        raise DisturbedError(answer)
    assert answer in answers
    assert service.stop() == 0
    assert "ERROR" not in service.log.read_text()
