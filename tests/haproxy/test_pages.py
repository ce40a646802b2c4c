"""What docs/haproxy.md has an administrator type into HAProxy's socket, and the line that it shows from the log."""

import re

from harness.haproxy import WRITER
from harness.waiting import wait_for
from tests.haproxy.front import Front, StandIns
from tests.haproxy.variations import PAGE
from tests.unit.pages import blocks_under, typed_on_pages


def test_haproxy_knows_each_command(front: Front) -> None:
    asked = [
        words[1]
        for command, words in typed_on_pages("echo")
        if "| socat - /var/lib/haproxy/admin.sock" in command.line and command.block.page == PAGE
    ]
    assert len(asked) >= 5
    for command in asked:
        said = front.haproxy.ask(command)
        # One that changes something says nothing where it has worked.
        assert said.startswith("#") if command.startswith("show") else said.strip() == "", f"{command}: {said}"


def test_the_log_line_is_haproxys(nodes: StandIns, front: Front) -> None:
    (shown,) = blocks_under(PAGE, "See what it does", "text")
    pattern = re.sub(r"\d+ms", r"\\d+ms", re.escape(shown.text.strip().removesuffix(" ...")))
    nodes.nodes[0].says = "read-only"
    front.wait_for_status(WRITER, nodes.nodes[0], "DOWN")
    wait_for("the line in the log", lambda: re.search(pattern, front.haproxy.log.read_text()) is not None)
