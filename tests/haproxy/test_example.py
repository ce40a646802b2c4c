"""haproxy.cfg.example itself: HAProxy's own check, what it asks, what it logs, what a reload keeps."""

import os
import re
import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from harness.haproxy import EXAMPLE, READER, READER_QUESTION, WRITER, WRITER_QUESTION
from harness.process import with_system_path
from harness.waiting import wait_for
from tests.haproxy.front import Front, MockNodes
from tests.haproxy.variations import PAGE, varied
from tests.measured import record
from tests.unit.pages import Block, blocks_under, checked_blocks

VARIATIONS = [block.headings[-1] for block in blocks_under(PAGE, "Variations", "diff")]
DISTRIBUTION = Path("/etc/haproxy/haproxy.cfg")
UNRESOLVABLE = "x" * 64
"""A name too long for the resolver to ask anybody about it."""
INTER_SECONDS = 1.0
DEADLINE_SECONDS = 0.8  # CLUSTERCHECK_DEADLINE
CROWD = 100
TAUGHT_SECONDS = 6
"""HAProxy 2.6 hands its memory to the next process only once it has run for 5 s."""


@pytest.mark.parametrize("variation", [None, *VARIATIONS])
def test_haproxys_own_check_says_nothing(tmp_path: Path, variation: str | None) -> None:
    assert_haproxy_accepts(tmp_path, varied(variation) if variation else EXAMPLE.read_text())


@pytest.mark.skipif(not DISTRIBUTION.exists(), reason="NOT TESTED: there is no haproxy.cfg of the distribution")
@pytest.mark.parametrize("block", checked_blocks("haproxy"), ids=str)
def test_the_lines_of_a_page_serve_clients_below_the_distributions_own_file(
    nodes: MockNodes, tmp_path: Path, block: Block
) -> None:
    # Without the sections that somebody may have added to it here.
    packaged = re.split(r"^(?:listen|frontend|backend|peers)\b", DISTRIBUTION.read_text(), flags=re.MULTILINE)[0]
    assert re.search(r"^\s*mode\s+http$", packaged, re.MULTILINE)
    assert re.search(r"^\s*timeout client\s+50000$", packaged, re.MULTILINE)
    assert_haproxy_accepts(tmp_path, f"{packaged}\n{block.text}")
    here = {"/run/haproxy/admin.sock": str(tmp_path / "haproxy-lb1.sock"), "check port 9200": "check"}
    for lines, serves in ((block.text, True), (block.text.replace("    mode tcp\n", ""), False)):
        front = nodes.front(text=f"{packaged}\n{lines}", replace=here)
        (client,) = (front.writers if "bind :3306" in lines else front.readers).open(seconds=2)
        # Without mode tcp, the nodes are UP nevertheless.
        assert (client.node is not None) == serves
        front.haproxy.kill()


def assert_haproxy_accepts(directory: Path, text: str) -> None:
    """Fail if HAProxy has an error or a warning for a configuration."""
    done = haproxys_own_check(directory, text)
    assert (done.returncode, done.stderr) == (0, "")


def haproxys_own_check(directory: Path, text: str) -> "subprocess.CompletedProcess[str]":
    """Have HAProxy check a configuration."""
    config = directory / "haproxy.cfg"
    config.write_text(text)
    command = ["haproxy", "-L", "lb1", "-c", "-f", str(config)]
    return subprocess.run(command, env=with_system_path({}), capture_output=True, text=True, check=False, timeout=20)


def test_ipv6_is_another_bind(tmp_path: Path) -> None:
    (advice,) = re.findall(r"for IPv6 as well: (bind \S+ v4v6)", EXAMPLE.read_text())
    assert_haproxy_accepts(tmp_path, EXAMPLE.read_text().replace("bind :3306", advice))


def test_a_name_that_cannot_be_resolved_stops_haproxy_without_init_addr_alone(tmp_path: Path) -> None:
    (advice,) = re.findall(r"names instead of addresses, add: (.*)", EXAMPLE.read_text())
    text = EXAMPLE.read_text().replace("10.0.0.11", UNRESOLVABLE)
    assert "could not resolve address" in haproxys_own_check(tmp_path, text).stderr
    assert haproxys_own_check(tmp_path, text).returncode != 0
    text = text.replace("on-marked-down shutdown-sessions", f"on-marked-down shutdown-sessions {advice}")
    assert haproxys_own_check(tmp_path, text).returncode == 0


def test_prometheus_can_read_how_many_sessions_each_node_has(front: Front) -> None:
    front.writers.open(3)
    metrics = front.haproxy.stats_page("/metrics")
    sessions = r'^haproxy_server_current_sessions\{proxy="writer",server="(node\d)"\} (\d+)$'
    assert re.findall(sessions, metrics, re.MULTILINE) == [("node1", "3"), ("node2", "0"), ("node3", "0")]


def test_the_file_fits_on_a_screen() -> None:
    lines = EXAMPLE.read_text().splitlines()
    assert len(lines) <= 85
    assert max(map(len, lines)) <= 120


def test_each_node_is_asked_two_questions_a_second_and_may_take_its_whole_deadline(
    nodes: MockNodes, front: Front
) -> None:
    slow = nodes.nodes[2]
    slow.holds_seconds = DEADLINE_SECONDS
    # The slow node: each question is asked and answered twice, for HAProxy asks a third time after the second answer.
    wait_for("some checks", lambda: all(len(node.checks) > (4 if node is slow else 7) for node in nodes.nodes))
    for node in nodes.nodes:
        times = {question: [at for at, asked in node.checks if asked == question] for _, question in node.checks}
        assert set(times) == {WRITER_QUESTION, READER_QUESTION}
        gaps = [later - earlier for asked in times.values() for earlier, later in pairwise(asked)]
        # A check that is late makes the gap after it shorter.
        assert sum(gaps) / len(gaps) > 0.9 * INTER_SECONDS, gaps
        record(f"{node.name}: 2 questions, each asked {sum(gaps) / len(gaps):.2f} s after the last")
        assert [front.haproxy.server_status(section, node) for section in (WRITER, READER)] == ["UP", "UP"]
    assert "is DOWN" not in front.haproxy.log.read_text()


def test_the_log_has_sessions_that_failed_and_none_that_ended_well(nodes: MockNodes, front: Front) -> None:
    assert front.writers.landings(5) == Counter({"node1": 5})
    front.writers.open(3)
    nodes.nodes[0].says = "non-primary"
    front.haproxy.wait_for_status(WRITER, nodes.nodes[0], "DOWN")

    def sessions() -> list[str]:
        return re.findall(r"^<6>.* writer writer/node1 .* (\S\S) \d+/", front.haproxy.log.read_text(), re.MULTILINE)

    wait_for("the sessions in the log", lambda: len(sessions()) == 3)
    # D: the server was marked down.
    assert [how[0] for how in sessions()] == ["D"] * 3


def test_a_reload_keeps_the_writer_and_goes_on_logging(nodes: MockNodes, front: Front) -> None:
    first, second, _ = nodes.nodes
    first.says = "non-primary"
    front.haproxy.wait_for_status(WRITER, first, "DOWN")
    assert nodes.writer(front) is second
    first.says = "synced"
    front.haproxy.wait_for_status(WRITER, first, "UP")
    wait_for("HAProxy to have run for a while", lambda: front.haproxy.seconds_up() >= TAUGHT_SECONDS)
    with front.writers.arriving() as came:
        front.haproxy.reload()
        assert front.writers.landings(CROWD) == Counter({second.name: CROWD})
    assert {client.node for client in came} == {second.name}
    assert "server_key=node2" in front.haproxy.ask(f"show table {WRITER}")
    logged = len(front.haproxy.log.read_text())
    first.says = "non-primary"
    front.haproxy.wait_for_status(WRITER, first, "DOWN")
    assert re.search(r"^<1>Server writer/node1 is DOWN", front.haproxy.log.read_text()[logged:], re.MULTILINE)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its user")
def test_the_worker_has_given_up_root_and_its_files(front: Front) -> None:
    worker = Path("/proc") / str(front.haproxy.worker())
    assert str((worker / "root").readlink()).endswith("/var/lib/haproxy")
    uids = re.search(r"^Uid:\s+(\d+)\s+(\d+)", (worker / "status").read_text(), re.MULTILINE)
    assert uids is not None
    assert "0" not in uids.groups()
