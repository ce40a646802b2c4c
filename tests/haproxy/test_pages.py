"""What docs/haproxy.md shows: the commands for its sockets, the line of its log, variations."""

import re

import pymysql
import pytest

from harness.galera import DEMO, Installation, Node
from harness.haproxy import WRITER
from harness.ports import LOOPBACK
from harness.waiting import wait_for
from tests.haproxy.front import (
    PAGE,
    VARIATIONS,
    Front,
    MockNodes,
    cutting,
    switched,
    varied,
)
from tests.unit.pages import blocks_under, typed_on_pages

CLIENT = "127.0.0.5"
"""A client's address that is not HAProxy's."""


def test_haproxy_knows_each_command(front: Front) -> None:
    asked = [
        words[1]
        for command, words in typed_on_pages("echo")
        if "| socat - /var/lib/haproxy/admin.sock" in command.line
        and command.block.page in (PAGE, VARIATIONS)
    ]
    assert len(asked) >= 5
    for command in asked:
        said = front.haproxy.ask(command)
        # One that changes something says nothing where it has worked. show peers begins with an
        # address.
        assert (
            said.startswith(("#", "0x"))
            if command.startswith("show")
            else said.strip() == ""
        ), f"{command}: {said}"


def test_each_change_is_one_log_line_a_section_with_the_reason_as_the_page_shows_it(
    front: Front,
) -> None:
    (shown,) = blocks_under(PAGE, "See what it does", "text")
    words, node = shown.text.strip().removesuffix(" ..."), front.nodes[0]
    assert '"read-only"' in words

    def logged(word: str) -> list[str]:
        return re.findall(
            rf"^<\d>.*?(Server \w+/node1 is {word}, .*)",
            front.haproxy.log.read_text(),
            re.MULTILINE,
        )

    front.turn("read-only", node, writer="DOWN")
    (down,) = wait_for("the line in the log", lambda: logged("DOWN"))
    assert re.match(re.sub(r"\d+ms", r"\\d+ms", re.escape(words)), down)
    assert "read-only" in front.haproxy.stats()
    front.turn("non-primary", node, readers="DOWN")
    front.turn("synced", node, writer="UP", readers="UP")
    wait_for(
        "the lines in the log", lambda: len(logged("UP")) == len(logged("DOWN")) == 2
    )


def test_the_last_donor_takes_the_writes_and_keeps_them_so_that_there_is_one_writer(
    nodes: MockNodes,
) -> None:
    front = nodes.front(text=varied("The last donor"))
    first, *others = front.nodes
    # A donor is the last choice, wherever it stands in the file.
    front.turn("donor", first, writer="DOWN", donors="UP")
    assert front.writers.lands_on() == {"node2"}
    with cutting("all but a donor fail", front.writers.open(5)):
        front.turn("non-primary", *others, writer="DOWN", donors="DOWN")
    held = front.writers.open(5)
    assert {client.node for client in held} == {"node1"}
    front.turn("synced", *front.nodes, writer="UP", donors="UP")
    assert front.writers.lands_on() == {"node1"}
    assert all(client.is_served for client in held)
    with switched(front, first):
        first.become("non-primary")


@pytest.fixture(scope="module")
def node(installation: Installation) -> Node:
    """Start a node with TLS that accepts the PROXY protocol from HAProxy."""
    authority, certificate = installation.certified("tls-behind-haproxy")
    options = [
        f"--ssl-ca={authority.cert}",
        f"--ssl-cert={certificate.cert}",
        f"--ssl-key={certificate.key}",
        "--skip-name-resolve",
    ]
    started = installation.node("behind-haproxy", options)
    started.start()
    started.wait_until_up()
    started.sql(f"CREATE USER '{DEMO}'@'{CLIENT}' IDENTIFIED BY '{DEMO}'")
    started.sql(f"SET GLOBAL proxy_protocol_networks='{LOOPBACK}'")
    return started


@pytest.mark.parametrize(
    ("variation", "seen"),
    [(None, LOOPBACK), ("The client's address", CLIENT)],
    ids=["example", "PROXY protocol"],
)
def test_tls_goes_through_and_the_proxy_protocol_tells_the_clients_address(
    nodes: MockNodes, node: Node, variation: str | None, seen: str
) -> None:
    nodes.nodes[0].server = nodes.nodes[0].server._replace(port=node.port)
    front = nodes.front(text=varied(variation) if variation else None)
    with (
        pymysql.connect(
            host=LOOPBACK,
            port=front.haproxy.ports[WRITER],
            bind_address=CLIENT,
            user=DEMO,
            password=DEMO,
            ssl_ca=str(node.data.parent / "tls-behind-haproxy" / "ca.pem"),
            ssl_verify_cert=True,
            ssl_verify_identity=True,
        ) as session,
        session.cursor() as cursor,
    ):
        cursor.execute("SHOW STATUS LIKE 'Ssl_cipher'")
        assert cursor.fetchall()[0][1] != ""
        cursor.execute("SELECT USER()")
        assert cursor.fetchall() == ((f"{DEMO}@{seen}",),)
