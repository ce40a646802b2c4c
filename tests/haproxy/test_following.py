"""Which server a client of HAProxy lands on, with haproxy.cfg.example, as nodes come and go."""

import re
import subprocess
import urllib.request
from pathlib import Path

import pytest

from harness.haproxy import READER, READER_QUESTION, WRITER
from harness.ports import LOOPBACK
from harness.process import with_system_path
from harness.stack import Stack
from harness.waiting import wait_for

EXAMPLE = Path(__file__).parents[2] / "haproxy.cfg.example"
SAMPLES = 6


def readers(stack: Stack) -> set[str | None]:
    """Name the nodes that a few new readers land on."""
    return {stack.haproxy.lands_on(READER) for _ in range(SAMPLES)}


def writer(stack: Stack) -> str:
    """Name the node that writes land on, once they land."""
    return wait_for("a writer to land", lambda: stack.haproxy.lands_on(WRITER))


def test_the_example_passes_haproxys_own_check() -> None:
    command = ["haproxy", "-c", "-f", str(EXAMPLE)]
    done = subprocess.run(command, env=with_system_path({}), capture_output=True, text=True, check=False, timeout=20)
    assert done.returncode == 0, done.stderr
    # What the example itself announces, and nothing else.
    warnings = [line for line in done.stderr.splitlines() if "[WARNING]" in line or "[ALERT]" in line]
    assert [line for line in warnings if "HTTP log/header format not usable" not in line] == []


def test_the_examples_questions_are_the_ones_that_demo_and_tests_ask() -> None:
    assert f" uri {READER_QUESTION} ver " in EXAMPLE.read_text()


def test_everybody_lands_on_available_nodes(stack: Stack) -> None:
    assert readers(stack) == {"node1", "node2", "node3"}
    assert writer(stack) == writer(stack)


def test_a_writer_that_is_desynced_hands_the_writes_over(stack: Stack) -> None:
    old = next(node for node in stack.nodes if node.name == writer(stack))
    old.sql("SET GLOBAL wsrep_desync=ON")
    try:
        stack.haproxy.wait_for_status(WRITER, old, "DOWN")
        new = writer(stack)
        assert new != old.name
    finally:
        old.sql("SET GLOBAL wsrep_desync=OFF")
    stack.haproxy.wait_for_status(WRITER, old, "UP")
    assert {writer(stack) for _ in range(SAMPLES)} == {new}


def test_a_node_that_rejects_queries_gets_no_new_readers_and_then_gets_them_again(stack: Stack) -> None:
    node = stack.nodes[1]
    assert "node2" in readers(stack)
    node.sql("SET GLOBAL wsrep_reject_queries=ALL")
    try:
        stack.haproxy.wait_for_status(READER, node, "DOWN")
        assert readers(stack) == {"node1", "node3"}
    finally:
        node.sql("SET GLOBAL wsrep_reject_queries=NONE")
    stack.haproxy.wait_for_status(READER, node, "UP")
    assert readers(stack) == {"node1", "node2", "node3"}


def test_the_reason_is_in_haproxys_log_and_on_its_stats_page(stack: Stack) -> None:
    node = stack.nodes[1]
    node.sql("SET GLOBAL wsrep_desync=ON")
    try:
        stack.haproxy.wait_for_status(WRITER, node, "DOWN")
        row = stack.haproxy.servers()[WRITER, "node2"]
        assert (row["check_status"], row["check_code"]) == ("L7STS", "503")
        assert "desynced" in row["last_chk"]
        page = urllib.request.urlopen(f"http://{LOOPBACK}:{stack.haproxy.ports['stats']}/", timeout=10).read().decode()
        assert "desynced" in page
    finally:
        node.sql("SET GLOBAL wsrep_desync=OFF")
    stack.haproxy.wait_for_status(WRITER, node, "UP")
    assert re.search(
        r"Health check for backup server galera_writer/node2 failed.*desynced", stack.haproxy.log.read_text()
    )


@pytest.mark.parametrize("fault", ["kill", "isolate"])
def test_writes_move_once_and_do_not_move_back(stack: Stack, fault: str) -> None:
    old = next(backend for backend in stack.backends if backend.node.name == writer(stack))
    others = {node.name for node in stack.nodes if node is not old.node}
    if fault == "kill":
        old.node.kill()
    else:
        old.node.sql("SET GLOBAL wsrep_provider_options='gmcast.isolate=1'")
    try:
        stack.haproxy.wait_for_status(WRITER, old.node, "DOWN")
        stack.haproxy.wait_for_status(READER, old.node, "DOWN")
        new = writer(stack)
        assert new in others
        assert readers(stack) == others
        with stack.haproxy.connect(WRITER) as connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO writes (node) VALUES (@@wsrep_node_name)")
    finally:
        if fault == "kill":
            stack.restart_node(old.node)
        else:
            old.node.sql("SET GLOBAL wsrep_provider_options='gmcast.isolate=0'")
    stack.wait_until_whole()
    assert {writer(stack) for _ in range(SAMPLES)} == {new}
    assert readers(stack) == {"node1", "node2", "node3"}
