"""What docs/haproxy.md has an administrator type into HAProxy's socket, and the line that it shows from the log."""

import re

from harness.waiting import wait_for
from tests.haproxy.front import Front, MockNodes
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
        # One that changes something says nothing where it has worked. show peers begins with an address.
        assert said.startswith(("#", "0x")) if command.startswith("show") else said.strip() == "", f"{command}: {said}"


def test_each_change_is_one_log_line_a_section_with_the_reason_as_the_page_shows_it(
    nodes: MockNodes, front: Front
) -> None:
    (shown,) = blocks_under(PAGE, "See what it does", "text")
    words, node = shown.text.strip().removesuffix(" ..."), nodes.nodes[0]
    assert '"read-only"' in words

    def logged(word: str) -> list[str]:
        return re.findall(rf"^<\d>.*?(Server \w+/node1 is {word}, .*)", front.haproxy.log.read_text(), re.MULTILINE)

    node.says = "read-only"
    front.haproxy.wait_for_status(node, writer="DOWN")
    (down,) = wait_for("the line in the log", lambda: logged("DOWN"))
    assert re.match(re.sub(r"\d+ms", r"\\d+ms", re.escape(words)), down)
    assert "read-only" in front.haproxy.stats()
    node.says = "non-primary"
    front.haproxy.wait_for_status(node, readers="DOWN")
    node.says = "synced"
    front.haproxy.wait_for_status(node, writer="UP", readers="UP")
    wait_for("the lines in the log", lambda: len(logged("UP")) == len(logged("DOWN")) == 2)
