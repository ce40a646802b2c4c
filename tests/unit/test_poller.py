"""Every way a node can fail to be read, against mock peers; the good ways are tested on real
servers.
"""

import asyncio
import socket
import struct
from pathlib import Path

import pytest

from app.database.connection import Connection
from app.database.login import Database, Login
from app.verdict.node_state import PollFailure
from app.verdict.reason import Reason
from harness.network import RemoteHost
from harness.waiting import wait_for
from tests import fake_mysql as fake
from tests.unit.polling import LOOPS, Loop, database_of, polling, polls_of

ADDRESS_SECONDS = 10.0
"""Much longer than the wait for one address, and much shorter than the kernel's patience with
it."""

LOST_SECONDS = 45.0
"""Keepalive gives up after 25 s, and the kernel's timers are coarse."""


def cuts_after_login(peer: fake.Peer) -> None:
    """Let the client in, then hang up on its first statement."""
    peer.log_in()
    peer.receive()


def cuts_mid_packet(peer: fake.Peer) -> None:
    """Hang up in the middle of a result."""
    peer.log_in()
    peer.answer_queries(statements=2)
    peer.receive()
    peer.connection.sendall(b"\xff\x00\x00\x01\x02")


def fails_statements(peer: fake.Peer) -> None:
    """Let the client in, then refuse its statements with an error that has no cause of its own."""
    peer.log_in()
    peer.answer_queries(statements=2)
    while peer.receive():
        peer.send(fake.error(1205, "Lock wait timeout exceeded"))


def resets(peer: fake.Peer) -> None:
    """Reset the connection instead of a greeting."""
    peer.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


NO_MYSQL = "sent an answer that is not MySQL"
BROKEN: list[tuple[str, fake.Behaviour, Reason, str]] = [
    ("never greets", fake.Peer.hang, Reason.TIMEOUT, "within 0.3 s while connecting"),
    (
        "greets and never answers",
        fake.greets_then(),
        Reason.TIMEOUT,
        "within 0.3 s while connecting",
    ),
    ("logs in and never answers", fake.greets_then(fake.OK), Reason.TIMEOUT, "while logging in"),
    (
        "never answers a poll",
        fake.greets_then(fake.OK, fake.OK, fake.OK),
        Reason.TIMEOUT,
        "while reading the node's state",
    ),
    ("half a greeting, then silence", fake.says(b"\x4a\x00\x00"), Reason.TIMEOUT, "within 0.3 s"),
    (
        "half a greeting",
        lambda peer: peer.connection.sendall(b"\x4a\x00"),
        Reason.CONNECTION_LOST,
        "while connecting",
    ),
    (
        "closes at once",
        lambda _: None,
        Reason.CONNECTION_LOST,
        "closed the connection while connecting",
    ),
    ("resets", resets, Reason.CONNECTION_LOST, "closed the connection while connecting"),
    ("cuts after login", cuts_after_login, Reason.CONNECTION_LOST, "while logging in"),
    ("cuts mid-packet", cuts_mid_packet, Reason.CONNECTION_LOST, "while reading the node's state"),
    ("a web server", fake.says(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9), Reason.ERROR, NO_MYSQL),
    ("zeros", fake.says(bytes(400)), Reason.ERROR, NO_MYSQL),
    ("a packet of no sense", fake.says(fake.packet(0, b"\x0a\x00\x01")), Reason.ERROR, NO_MYSQL),
    ("an empty packet", fake.says(fake.packet(0, b"")), Reason.ERROR, NO_MYSQL),
    (
        "a greeting refused",
        fake.says(fake.packet(0, fake.error(1040))),
        Reason.TOO_MANY_CONNECTIONS,
        "(error 1040)",
    ),
    (
        "a login refused",
        fake.greets_then(fake.error(1045)),
        Reason.ACCESS_DENIED,
        "refused user someone (error 1045)",
    ),
    (
        "a plugin",
        fake.greets_then(fake.auth_switch("client_ed25519")),
        Reason.ACCESS_DENIED,
        "plugin client_ed25519",
    ),
    (
        "init_connect fails",
        fake.greets_then(fake.OK, fake.error(1184)),
        Reason.REJECTS_LOGINS,
        "(error 1184)",
    ),
    ("a statement refused", fails_statements, Reason.ERROR, "answered with an error while reading"),
]


@LOOPS
@pytest.mark.parametrize(
    ("behaviour", "cause", "words"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN]
)
def test_a_failure_is_a_value_with_its_cause(
    behaviour: fake.Behaviour, cause: Reason, words: str, new_loop: Loop
) -> None:
    with (
        fake.fake_mysql(behaviour) as server,
        polls_of(database_of(server), new_loop=new_loop) as polls,
    ):
        seen = polls.failure()
        assert (cause, True) == (seen.reason, words in seen.detail), seen
        assert "geheim" not in seen.detail
        assert "message of the server" not in seen.detail
        assert server.connections == 1
        if cause is not Reason.TIMEOUT:
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
    assert received == [b""]


def test_nobody_listening_is_unreachable(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with polls_of(Database(host="127.0.0.1", port=port)) as polls:
            expected = PollFailure(
                Reason.UNREACHABLE, f"cannot connect to 127.0.0.1:{port}: Connection refused"
            )
            assert expected == polls.poll()
    with polls_of(Database(socket=f"{tmp_path}/no.sock")) as polls:
        expected = PollFailure(
            Reason.UNREACHABLE, f"cannot connect to {tmp_path}/no.sock: No such file or directory"
        )
        assert expected == polls.poll()


@LOOPS
def test_a_full_accept_queue_is_a_timeout_until_there_is_room(
    new_loop: Loop, tmp_path: Path
) -> None:
    path = str(tmp_path / "mysqld.sock")
    with fake.FakeMySQL(fake.galera(), path) as server, socket.socket(socket.AF_UNIX) as waiting:
        server.socket.listen(0)
        waiting.connect(path)
        with polls_of(Database(socket=path, username="someone"), new_loop=new_loop) as polls:
            assert polls.failure().reason is Reason.TIMEOUT
            with server.serving():
                polls.state()
                waiting.close()


@LOOPS
def test_an_address_that_drops_packets_does_not_use_up_the_time_of_the_next(new_loop: Loop) -> None:
    async def connect(port: int) -> None:
        login = Login(host="two-addresses.invalid", port=port, username="someone", password="")
        async with asyncio.timeout(ADDRESS_SECONDS):
            connection = await Connection.to(login, ["127.0.0.2", "127.0.0.1"])
        await connection.quit()

    with fake.fake_mysql(fake.galera()) as server, socket.socket() as deaf:
        deaf.bind(("127.0.0.2", server.port))
        deaf.listen(0)
        # Once the queue is full, the kernel drops the packets of further clients.
        waiting = [socket.socket() for _ in range(4)]
        for client in waiting:
            client.setblocking(False)  # noqa: FBT003 (socket's own signature)
            client.connect_ex(deaf.getsockname())
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(connect(server.port))
        assert server.connections == 1
        for client in waiting:
            client.close()


def worked_once_then(*payloads: bytes) -> fake.Behaviour:
    """Give one poll, then answer every statement with these packets and close."""

    def behaviour(peer: fake.Peer) -> None:
        peer.poll_once()
        peer.receive()
        for payload in payloads:
            peer.send(payload)

    return behaviour


HELD_CONNECTION_FAULTS = {
    "closed": (),
    "error 1927, killed by an administrator": (fake.error(1927),),
    "error 1969, over max_statement_time": (fake.error(1969),),
    "no MySQL packet": (b"",),
    "a result of no columns": (b"\x01", b"\x00"),
}


@pytest.mark.parametrize("payloads", HELD_CONNECTION_FAULTS.values(), ids=HELD_CONNECTION_FAULTS)
def test_any_fault_of_a_held_connection_is_retried_once_on_a_new_one(
    payloads: tuple[bytes, ...],
) -> None:
    with polling(worked_once_then(*payloads)) as (polls, server):
        first = polls.state()
        server.behaviour = fake.galera()
        assert first == polls.poll()
        # One connection serves all polls that follow.
        assert first == polls.poll()
        assert server.connections == 2


def test_a_new_connection_that_fails_as_well_is_not_replaced_again() -> None:
    with polling(worked_once_then(fake.error(1927))) as (polls, server):
        polls.state()
        server.behaviour = fails_statements
        assert "(error 1205)" in polls.failure().detail
        assert server.connections == 2


@pytest.mark.parametrize(("number", "attempts"), [(1045, 1), (1040, 5)], ids=["refused", "full"])
def test_only_a_refusal_is_repeated_without_asking_again_each_time(
    number: int, attempts: int
) -> None:
    with polling(fake.greets_then(fake.error(number))) as (polls, server):
        first = polls.failure()
        for _ in range(4):
            assert first == polls.poll()
        assert server.connections == attempts


def test_after_a_refusal_a_server_that_has_gone_is_asked_at_each_poll_again() -> None:
    with polling(fake.greets_then(fake.error(1045))) as (polls, server):
        polls.failure()
        server.behaviour = lambda _: None
        while server.connections == 1:
            polls.failure()
            polls.wait(0.05)
        polls.failure()
        polls.failure()
        assert server.connections == 4


ENDLESS = {
    "a packet of 16 MiB instead of a greeting": (
        b"\xff\xff\xff\x00\x0a",
        b"x" * 65536,
        "connecting",
    ),
    "rows without end": (
        fake.packet(1, b"\x01")
        + fake.packet(2, b"\x03def\0\0\0\x01n\0\x0c" + bytes(12))
        + fake.packet(3, fake.EOF),
        b"".join(fake.packet((4 + number) % 256, b"\xc8" + b"x" * 200) for number in range(256)),
        "logging in",
    ),
}


@pytest.mark.parametrize(("first", "then", "phase"), ENDLESS.values(), ids=ENDLESS)
def test_nothing_a_server_sends_is_taken_without_bound(
    first: bytes, then: bytes, phase: str
) -> None:
    taken: list[int] = []

    def behaviour(peer: fake.Peer) -> None:
        # The client's own buffer is bounded by asyncio; ours would take megabytes more.
        peer.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        if phase != "connecting":
            peer.log_in()
            peer.receive()
        peer.connection.sendall(first)
        while True:
            taken.append(peer.connection.send(then))

    with polling(behaviour) as (polls, server):
        words = f"127.0.0.1:{server.port} sent more than any MySQL server does while {phase}"
        assert polls.poll() == PollFailure(Reason.ERROR, words)
    assert sum(taken) < 2 << 20


def test_a_packet_within_the_budget_is_read() -> None:
    with polling(fake.greets_then(fake.auth_switch("x" * 60_000))) as (polls, _):
        assert f"plugin {'x' * 64}," in polls.failure().detail


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
