"""haproxy.cfg.example itself: what it asks, what it logs, what a reload keeps."""

import re
from pathlib import Path

import pytest

from harness.haproxy import EXAMPLE, READER_QUESTION, WRITER, WRITER_QUESTION
from harness.process import output_of, with_system_path
from harness.waiting import wait_for
from tests.haproxy.front import VARIATIONS, Front, MockNodes, varied
from tests.unit.pages import CodeBlock, blocks_in, blocks_of

HEADINGS = [
    block.headings[-1] for block in blocks_of(VARIATIONS) if block.language == "diff"
]
DISTRIBUTION = Path("/etc/haproxy/haproxy.cfg")
UNRESOLVABLE = "x" * 64
"""A name too long for the resolver to ask anybody about it."""
INTER_SECONDS = 1.0
DEADLINE_SECONDS = 0.8  # CLUSTERCHECK_DEADLINE
TAUGHT_SECONDS = 6
"""HAProxy 2.6 hands its memory to the next process only once it has run for 5 s."""


@pytest.mark.parametrize("variation", [None, *HEADINGS])
def test_haproxys_own_check_says_nothing(tmp_path: Path, variation: str | None) -> None:
    assert (
        haproxys_own_check(
            tmp_path, varied(variation) if variation else EXAMPLE.read_text()
        )
        == ""
    )


@pytest.mark.skipif(
    not DISTRIBUTION.exists(),
    reason="NOT TESTED: there is no haproxy.cfg of the distribution",
)
@pytest.mark.parametrize("block", blocks_in("haproxy"), ids=str)
def test_the_lines_of_a_page_serve_clients_below_the_distributions_own_file(
    nodes: MockNodes, tmp_path: Path, block: CodeBlock
) -> None:
    # Without the sections that somebody may have added to it here.
    packaged = re.split(
        r"^(?:listen|frontend|backend|peers)\b",
        DISTRIBUTION.read_text(),
        flags=re.MULTILINE,
    )[0]
    text = f"{packaged}\n{block.text}"
    assert haproxys_own_check(tmp_path, text) == ""
    here = {
        "/run/haproxy/admin.sock": str(tmp_path / "haproxy-lb1.sock"),
        "check port 9200": "check",
    }
    front = nodes.front(text=text, replace=here)
    clients = front.writers if "bind :3306" in text else front.readers
    assert None not in clients.lands_on(1)


def haproxys_own_check(directory: Path, text: str) -> str:
    """Return HAProxy's warnings for a configuration that it accepts."""
    config = directory / "haproxy.cfg"
    config.write_text(text)
    command = ("haproxy", "-L", "lb1", "-c", "-f", config)
    said = output_of(*command, env=with_system_path({}), seconds=20)
    return said.removesuffix("Configuration file is valid\n")


@pytest.mark.parametrize(
    ("advice", "old", "new"),
    [
        (r"for IPv6 as well: (bind \S+ v4v6)", "bind :3306", "{}"),
        (
            r"names instead of addresses, add: (.*)",
            "10.0.0.11:3306 check\n",
            f"{UNRESOLVABLE}:3306 check {{}}\n",
        ),
    ],
)
def test_haproxy_accepts_what_a_comment_advises(
    tmp_path: Path, advice: str, old: str, new: str
) -> None:
    text = EXAMPLE.read_text()
    (words,) = re.findall(advice, text)
    # An unresolvable name is a warning then, and without the advice an error, which raises.
    haproxys_own_check(tmp_path, text.replace(old, new.format(words)))


def test_each_node_is_asked_two_questions_a_second_and_may_take_its_whole_deadline(
    front: Front,
) -> None:
    front.nodes[2].holds_seconds = DEADLINE_SECONDS
    wait_for("some checks", lambda: all(len(node.checks) > 6 for node in front.nodes))
    for node in front.nodes:
        assert {question for _, question in node.checks} == {
            WRITER_QUESTION,
            READER_QUESTION,
        }
        for question in (WRITER_QUESTION, READER_QUESTION):
            asked = [at for at, target in node.checks if target == question]
            # A check that is late makes the gap after it shorter.
            assert asked[-1] - asked[0] > 0.9 * INTER_SECONDS * (len(asked) - 1), asked
    assert "is DOWN" not in front.haproxy.log.read_text()


def test_a_reload_keeps_the_writer_and_goes_on_logging(front: Front) -> None:
    haproxy, first = front.haproxy, front.nodes[0]
    front.turn("non-primary", first, writer="DOWN")
    assert front.writers.lands_on() == {"node2"}
    front.turn("synced", first, writer="UP")
    wait_for(
        "HAProxy to have run for a while",
        lambda: haproxy.info("Uptime_sec") >= TAUGHT_SECONDS,
    )
    with front.writers.arriving() as came:
        haproxy.reload()
        assert front.writers.lands_on() == {"node2"}
    assert {client.node for client in came} == {"node2"}
    assert "server_key=node2" in haproxy.ask(f"show table {WRITER}")
    logged = len(haproxy.log.read_text())
    first.become("non-primary")
    down = re.compile(r"^<1>Server writer/node1 is DOWN", re.MULTILINE)
    wait_for(
        "the line in the log", lambda: down.search(haproxy.log.read_text(), logged)
    )
