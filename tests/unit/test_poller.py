"""Every way a node can fail to be read, on mock peers.

The good ways are tested on real servers.
"""

import socket
from pathlib import Path

import pytest

from app.settings.database import Database
from app.verdict.reason import Reason
from harness.network import RemoteHost
from harness.waiting import wait_for
from tests import fake_mysql as fake
from tests.unit.polling import LOOPS, Loop, database_of, polling, polls_of

LOST_SECONDS = 45.0
"""Keepalive gives up after 25 s, and the kernel's timers are coarse."""


def cuts_mid_packet(peer: fake.Peer) -> None:
    """Hang up in the middle of a result."""
    peer.log_in()
    peer.answer_queries(statements=1)
    peer.receive()
    peer.connection.sendall(b"\xff\x00\x00\x01\x02")


CONNECTING, LOGGING_IN = "while connecting", "while logging in"
READING = "while reading the node's state"
MORE_RESULTS_EXIST = b"\x08\x00\x00\x00"
BROKEN: list[tuple[str, fake.Behaviour, str, str]] = [
    ("never greets", fake.Peer.hang, "timeout", CONNECTING),
    (
        "logs in and never answers",
        fake.greets_then(fake.OK),
        "timeout",
        LOGGING_IN,
    ),
    ("never answers a poll", fake.greets_then(*[fake.OK] * 2), "timeout", READING),
    ("closes at once", lambda _: None, "connection-lost", CONNECTING),
    (
        "resets",
        lambda peer: fake.reset(peer.connection),
        "connection-lost",
        CONNECTING,
    ),
    ("cuts after login", fake.galera(answers={"": b""}), "connection-lost", LOGGING_IN),
    ("cuts mid-packet", cuts_mid_packet, "connection-lost", READING),
    (
        "a web server",
        fake.says(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9),
        "error",
        CONNECTING,
    ),
    (
        "no greeting",
        fake.says(fake.packet(0, b"\x0a\x00\x01")),
        "error",
        CONNECTING,
    ),
    ("an empty packet", fake.says(fake.packet(0, b"")), "error", CONNECTING),
    (
        "a further result",
        fake.greets_then(fake.OK, fake.OK[:3] + MORE_RESULTS_EXIST),
        "error",
        "sent more than it was asked for while logging in",
    ),
    (
        "rows that make no sense",
        fake.galera(answers={"SHOW GLOBAL": fake.table(["one"], [["1"]])}),
        "error",
        READING,
    ),
    (
        "a login refused",
        fake.greets_then(fake.error(1045)),
        "access-denied",
        "1045",
    ),
    # An error that has no cause of its own.
    (
        "a statement refused",
        fake.galera(answers={"SHOW": fake.packet(1, fake.error(1205))}),
        "error",
        "1205",
    ),
]


@LOOPS
@pytest.mark.parametrize(
    ("behaviour", "reason", "words"),
    [row[1:] for row in BROKEN],
    ids=[row[0] for row in BROKEN],
)
def test_a_failure_is_a_value_with_its_cause(
    behaviour: fake.Behaviour, reason: str, words: str, new_loop: Loop
) -> None:
    with polling(behaviour, new_loop=new_loop) as (polls, server):
        failure = polls.failure()
        assert failure.reason == reason
        assert words in failure.detail
        assert "geheim" not in failure.detail
        assert "message of the server" not in failure.detail
        # One that is cut may be an accident.
        assert server.connections == 1 + (reason == "connection-lost")
        if reason != "timeout":
            polls.check_closed(server)


def test_a_server_that_asks_for_a_local_file_gets_nothing() -> None:
    # The request of LOAD DATA LOCAL INFILE, which a hostile server may send in answer to any
    # statement.
    received: list[bytes] = []

    def asks_for_a_file(peer: fake.Peer) -> None:
        peer.log_in()
        peer.receive()
        peer.send(b"\xfb/etc/passwd")
        try:
            received.append(peer.receive())
        except ConnectionError:
            received.append(b"")

    with polling(asks_for_a_file) as (polls, _):
        polls.failure()
        wait_for("the server to see the end of the connection", lambda: received)
    assert set(received) == {b""}


@LOOPS
def test_a_full_accept_queue_is_a_timeout_until_there_is_room(
    new_loop: Loop, tmp_path: Path
) -> None:
    path = str(tmp_path / "mysqld.sock")
    with (
        fake.FakeMySQL(fake.galera(), path) as server,
        socket.socket(socket.AF_UNIX) as waiting,
    ):
        server.socket.listen(0)
        waiting.connect(path)
        with polls_of(
            Database(mysql_socket=path, mysql_username="someone"), new_loop=new_loop
        ) as polls:
            assert polls.failure().reason is Reason.TIMEOUT
            with server.serving():
                polls.state()
                waiting.close()


def works_once_then(
    answer: bytes, then: fake.Behaviour = lambda _: None
) -> fake.Behaviour:
    """Answer one poll well, and the next with these bytes; then close the connection, or hang."""

    def behaviour(peer: fake.Peer) -> None:
        peer.poll_once()
        peer.receive()
        peer.receive()
        peer.connection.sendall(answer)
        then(peer)

    return behaviour


def selected(*rows: list[str]) -> bytes:
    """Make an answer whose SELECT has one of the columns, and these rows."""
    return (
        fake.shown(fake.SYNCED_STATUS)
        + fake.table(["@@global.read_only"], rows)
        + fake.packet(1, fake.OK)
    )


HELD_CONNECTION_FAULTS = {
    "closed": works_once_then(b""),
    "error 1927, killed by an administrator": works_once_then(
        fake.packet(1, fake.error(1927))
    ),
    "no MySQL packet": works_once_then(fake.packet(1, b"")),
    "a result of no columns": works_once_then(
        fake.packet(1, b"\x01") + fake.packet(2, b"\x00")
    ),
    "a SELECT that answers nothing": works_once_then(selected(), fake.Peer.hang),
    "a SELECT that answers half": works_once_then(selected(["1"]), fake.Peer.hang),
}


@pytest.mark.parametrize(
    "behaviour", HELD_CONNECTION_FAULTS.values(), ids=HELD_CONNECTION_FAULTS
)
def test_any_fault_of_a_held_connection_is_retried_once_on_a_new_one(
    behaviour: fake.Behaviour,
) -> None:
    with polling(behaviour) as (polls, server):
        first = polls.state()
        server.behaviour = fake.galera()
        assert first == polls.poll()
        # One connection serves all polls that follow.
        assert first == polls.poll()
        assert server.connections == 2


@pytest.mark.parametrize(
    "answers", [lambda _: None, lambda peer: peer.poll_once(2)], ids=["", "its read"]
)
def test_one_login_that_is_cut_costs_no_verdict(answers: fake.Behaviour) -> None:
    def cuts(peer: fake.Peer) -> None:
        server.behaviour = fake.galera()
        answers(peer)

    with polling(cuts) as (polls, server):
        polls.state()
        server.behaviour = cuts
        server.drop_connections()
        polls.state()


ENDLESS_PACKET = b"\xff\xff\xff\x00\x0a", b"x" * 65536
ENDLESS_ROWS = (
    fake.packet(1, b"\x01")
    + fake.packet(2, b"\x03def\0\0\0\x01n\0\x0c" + bytes(12))
    + fake.packet(3, fake.EOF),
    b"".join(
        fake.packet((4 + number) % 256, b"\xc8" + b"x" * 200) for number in range(256)
    ),
)


@pytest.mark.parametrize(
    ("start", "rest", "logs_in"),
    [(*ENDLESS_PACKET, False), (*ENDLESS_ROWS, True)],
    ids=["a packet of 16 MiB instead of a greeting", "rows without end"],
)
def test_nothing_a_server_sends_is_taken_without_bound(
    start: bytes, rest: bytes, *, logs_in: bool
) -> None:
    taken: list[int] = []

    def behaviour(peer: fake.Peer) -> None:
        # The client's own buffer is bounded by asyncio; ours would take megabytes more.
        peer.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        if logs_in:
            peer.log_in()
            peer.receive()
        peer.connection.sendall(start)
        while True:
            taken.append(peer.connection.send(rest))

    with polling(behaviour) as (polls, _):
        assert "sent more than it was asked for" in polls.failure().detail
    assert sum(taken) < 2 << 20


@pytest.mark.long
@pytest.mark.parametrize("polled", [False, True], ids=["idle", "polled"])
def test_a_session_whose_host_is_gone_without_a_word_ends(
    remote_host: RemoteHost, *, polled: bool
) -> None:
    with remote_host.entered():
        server = fake.FakeMySQL(fake.galera(), (remote_host.address, 0))
    with server, server.serving(), polls_of(database_of(server)) as polls:
        polls.state()
        with remote_host.cut_off():
            if polled:
                polls.failure()
            polls.check_closed(server, LOST_SECONDS)
        polls.state()
