"""Real nodes behind haproxy.cfg.example: where clients land as nodes come and go, and how soon."""

import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from harness.galera import Node
from harness.haproxy import READER, WRITER, Backend
from harness.ports import LOOPBACK
from harness.stack import Stack
from harness.waiting import wait_for
from tests.haproxy.front import SILENT_SECONDS, SWITCH_SECONDS
from tests.measured import within

SAMPLES = 6


def writer(stack: Stack) -> Backend:
    """Find the node that writes land on, once they land."""
    name = wait_for("a writer to land", lambda: stack.haproxy.lands_on(WRITER))
    return next(backend for backend in stack.backends if backend.node.name == name)


@contextmanager
def desynced(old: Backend) -> Iterator[None]:
    """Have the node be desynced, as for a backup."""
    old.node.sql("SET GLOBAL wsrep_desync=ON")
    try:
        yield
    finally:
        old.node.sql("SET GLOBAL wsrep_desync=OFF")


@contextmanager
def donor(old: Backend) -> Iterator[None]:
    """Have the node look like one that sends its state in a blocking way."""
    with old.node.connect() as session, session.cursor() as cursor:
        cursor.execute("FLUSH TABLES WITH READ LOCK")
        yield


@contextmanager
def drained(old: Backend) -> Iterator[None]:
    """Drain the node as `clustercheckd drain` does, without the time that a command takes to start."""
    old.service.disabled_file.touch()
    try:
        yield
    finally:
        old.service.disabled_file.unlink()


@contextmanager
def read_only(old: Backend) -> Iterator[None]:
    """Have the node take no writes."""
    old.node.sql("SET GLOBAL read_only=ON")
    try:
        yield
    finally:
        old.node.sql("SET GLOBAL read_only=OFF")


@contextmanager
def killed(old: Backend) -> Iterator[None]:
    """End the node as kill -9 does; it is started again for the next test."""
    old.node.kill()
    yield


@contextmanager
def hung(old: Backend) -> Iterator[None]:
    """Have the server hang."""
    old.node.hang()
    try:
        yield
    finally:
        old.node.resume()


@pytest.mark.parametrize(
    ("fault", "bound"),
    [
        (desynced, SWITCH_SECONDS),
        (donor, SWITCH_SECONDS),
        (drained, SWITCH_SECONDS),
        (read_only, SWITCH_SECONDS),
        (killed, SWITCH_SECONDS),
        (hung, SILENT_SECONDS),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_writes_move_to_one_other_node_in_time_and_stay_there(
    stack: Stack, fault: Callable[[Backend], AbstractContextManager[None]], bound: float
) -> None:
    old = writer(stack)
    with socket.create_connection((LOOPBACK, stack.haproxy.ports[WRITER])) as session:
        assert session.recv(1)  # the server's greeting
        session.settimeout(20)
        failed_at = time.monotonic()
        with fault(old):
            while session.recv(1000):
                pass
            cut_seconds = time.monotonic() - failed_at
            new = writer(stack)
            next_seconds = time.monotonic() - failed_at
            assert new is not old
    within(f"real writer {fault.__name__}: session cut", cut_seconds, bound)
    within(f"real writer {fault.__name__}: next node serves", next_seconds, bound)
    if old.node.process.exit_code is not None:
        stack.restart_node(old.node)
    stack.haproxy.wait_for_status(WRITER, old.node, "UP")
    assert {writer(stack).node.name for _ in range(SAMPLES)} == {new.node.name}


def test_readers_stay_on_a_donor_that_keeps_up_and_writers_leave_it(stack: Stack) -> None:
    backend = stack.backends[1]
    with desynced(backend):
        stack.haproxy.wait_for_status(WRITER, backend.node, "DOWN")
        assert stack.haproxy.server_status(READER, backend.node) == "UP"
        stack.haproxy.session_on(READER, backend.node).close()


def lines_about(log: str, node: Node) -> list[str]:
    """Give HAProxy's log lines about a node; its messages on standard error are not among them."""
    return [line for line in log.splitlines() if re.match(rf"<\d>.*[Ss]erver \w+/{node.name} ", line)]


def test_each_transition_is_one_log_line_a_section_with_the_reason(stack: Stack) -> None:
    node = stack.nodes[1]
    before = len(lines_about(stack.haproxy.log.read_text(), node))
    node.sql("SET GLOBAL wsrep_reject_queries=ALL")
    try:
        for section in (WRITER, READER):
            stack.haproxy.wait_for_status(section, node, "DOWN")
            row = stack.haproxy.servers()[section, node.name]
            assert (row["check_status"], row["check_code"]) == ("L7STS", "503")
            assert "rejects-queries" in row["last_chk"]
        assert "rejects-queries" in stack.haproxy.stats_page()
        assert {stack.haproxy.lands_on(READER) for _ in range(SAMPLES)} <= {"node1", "node3"}
    finally:
        node.sql("SET GLOBAL wsrep_reject_queries=NONE")
    for section in (WRITER, READER):
        stack.haproxy.wait_for_status(section, node, "UP")
    stack.haproxy.session_on(READER, node).close()
    down, up = (
        [line for line in lines_about(stack.haproxy.log.read_text(), node)[before:] if f" is {word}, " in line]
        for word in ("DOWN", "UP")
    )
    for lines in (down, up):
        assert sorted(re.findall(r"erver (\w+)/", line)[0] for line in lines) == [READER, WRITER]
    assert all('code: 503, info: "rejects-queries"' in line for line in down)
