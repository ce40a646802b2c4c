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
from tests.haproxy.front import Front, StandIns
from tests.haproxy.variations import PAGE, varied
from tests.measured import record
from tests.unit.pages import PAGES, Block, blocks_under, checked_blocks

_SECTION = PAGES[PAGE].read_text().partition("\n## Variations\n")[2].partition("\n## ")[0]
VARIATIONS = re.findall(r"^### (.*)$", _SECTION, re.MULTILINE)
INTER_SECONDS = 1.0
DEADLINE_SECONDS = 0.8  # CLUSTERCHECK_DEADLINE
CROWD = 100
TAUGHT_SECONDS = 6
"""HAProxy 2.6 hands its memory to the next process only once it has run for 5 s."""


def test_the_variations_are_those_of_the_page() -> None:
    assert len(VARIATIONS) >= 6


@pytest.mark.parametrize("variation", [None, *(name for name in VARIATIONS if blocks_under(PAGE, name, "diff"))])
def test_haproxys_own_check_says_nothing(tmp_path: Path, variation: str | None) -> None:
    assert_haproxy_accepts(tmp_path, varied(variation) if variation else EXAMPLE.read_text())


@pytest.mark.parametrize("block", checked_blocks("haproxy"), ids=str)
def test_the_lines_of_a_page_pass_haproxys_own_check_with_the_examples_defaults(tmp_path: Path, block: Block) -> None:
    before, separator, _ = EXAMPLE.read_text().partition("\n# One node for all clients")
    assert separator
    assert_haproxy_accepts(tmp_path, f"{before}\n{block.text}")


def assert_haproxy_accepts(directory: Path, text: str) -> None:
    """Fail if HAProxy has an error or a warning for a configuration."""
    config = directory / "haproxy.cfg"
    config.write_text(text)
    done = subprocess.run(
        ["haproxy", "-L", "lb1", "-c", "-f", str(config)],
        env=with_system_path({}),
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_file_fits_on_a_screen() -> None:
    lines = EXAMPLE.read_text().splitlines()
    assert len(lines) <= 84
    assert max(map(len, lines)) <= 120


def test_each_node_is_asked_two_questions_a_second_and_may_take_its_whole_deadline(
    nodes: StandIns, front: Front
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
        assert [front.status(section, node) for section in (WRITER, READER)] == ["UP", "UP"]
    assert "is DOWN" not in front.haproxy.log.read_text()


def test_the_log_has_sessions_that_failed_and_none_that_ended_well(nodes: StandIns, front: Front) -> None:
    assert front.writers.landings(5) == Counter({"node1": 5})
    front.writers.open(3)
    nodes.nodes[0].says = "non-primary"
    front.wait_for_status(WRITER, nodes.nodes[0], "DOWN")

    def sessions() -> list[str]:
        return re.findall(r"^<6>.* writer writer/node1 .* (\S\S) \d+/", front.haproxy.log.read_text(), re.MULTILINE)

    wait_for("the sessions in the log", lambda: len(sessions()) == 3)
    # D: the server was marked down.
    assert [how[0] for how in sessions()] == ["D"] * 3


def test_a_reload_keeps_the_writer_and_goes_on_logging(nodes: StandIns, front: Front) -> None:
    first, second, _ = nodes.nodes
    first.says = "non-primary"
    front.wait_for_status(WRITER, first, "DOWN")
    assert nodes.writer(front) is second
    first.says = "synced"
    front.wait_for_status(WRITER, first, "UP")
    wait_for("HAProxy to have run for a while", lambda: front.haproxy.seconds_up() >= TAUGHT_SECONDS)
    with front.writers.arriving() as came:
        front.haproxy.reload()
        assert front.writers.landings(CROWD) == Counter({second.name: CROWD})
    assert {client.node for client in came} == {second.name}
    assert "server_key=node2" in front.haproxy.ask(f"show table {WRITER}")
    logged = len(front.haproxy.log.read_text())
    first.says = "non-primary"
    front.wait_for_status(WRITER, first, "DOWN")
    assert re.search(r"^<1>Server writer/node1 is DOWN", front.haproxy.log.read_text()[logged:], re.MULTILINE)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its user")
def test_the_worker_has_given_up_root_and_its_files(front: Front) -> None:
    worker = Path("/proc") / str(front.haproxy.worker())
    assert str((worker / "root").readlink()).endswith("/var/lib/haproxy")
    uids = re.search(r"^Uid:\s+(\d+)\s+(\d+)", (worker / "status").read_text(), re.MULTILINE)
    assert uids is not None
    assert "0" not in uids.groups()
