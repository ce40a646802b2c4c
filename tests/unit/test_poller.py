"""Every way a node can fail to be read, against hand-written peers; the good ways are tested on real servers."""

import asyncio
import gc
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import uvloop

from app.database.connection import Connection
from app.database.login import Database, Login
from app.database.poller import Poller
from app.node_state import NodeState, PollFailure
from app.reason import Reason
from harness.waiting import wait_for
from tests.fake_mysql import (
    EOF,
    OK,
    SYNCED_STATUS,
    SYNCED_VARIABLES,
    Behaviour,
    Peer,
    auth_switch,
    error,
    fake_mysql,
    galera,
    greets_and_is_silent,
    greets_then,
    logs_in_and_is_silent,
    packet,
    says,
    sends_bytes,
)

DEADLINE_SECONDS = 0.3
ADDRESS_SECONDS = 10.0
"""Much longer than the wait for one address, and much shorter than the kernel's patience with it."""


def cuts_after_login(peer: Peer) -> None:
    """Let the client in, then hang up on its first statement."""
    peer.log_in()
    peer.receive()


def cuts_mid_packet(peer: Peer) -> None:
    """Hang up in the middle of a result."""
    peer.begin_session()
    peer.receive()
    peer.connection.sendall(b"\xff\x00\x00\x01\x02")


def fails_statements(peer: Peer) -> None:
    """Let the client in, then refuse its statements with an error that has no cause of its own."""
    peer.begin_session()
    while peer.receive():
        peer.send(error(1205, "Lock wait timeout exceeded"))


def begins_and_is_silent(peer: Peer) -> None:
    """Begin a session, then never answer."""
    peer.begin_session()
    peer.hang()


def resets(peer: Peer) -> None:
    """Reset the connection instead of a greeting."""
    peer.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def begins_then(payload: bytes) -> Behaviour:
    """Log the client in, and answer its first statement with this."""

    def behaviour(peer: Peer) -> None:
        peer.log_in()
        peer.receive()
        peer.send(payload)

    return behaviour


BROKEN: list[tuple[str, Behaviour, Reason, str]] = [
    ("never greets", Peer.hang, Reason.TIMEOUT, "within 0.3 s while connecting"),
    ("greets and never answers", greets_and_is_silent, Reason.TIMEOUT, "within 0.3 s while connecting"),
    ("logs in and never answers", logs_in_and_is_silent, Reason.TIMEOUT, "while logging in"),
    ("never answers a poll", begins_and_is_silent, Reason.TIMEOUT, "while reading the node's state"),
    ("closes at once", sends_bytes(b""), Reason.CONNECTION_LOST, "closed the connection while connecting"),
    ("resets", resets, Reason.CONNECTION_LOST, "closed the connection while connecting"),
    ("cuts after login", cuts_after_login, Reason.CONNECTION_LOST, "while logging in"),
    ("cuts mid-packet", cuts_mid_packet, Reason.CONNECTION_LOST, "while reading the node's state"),
    (
        "a web server",
        sends_bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9),
        Reason.ERROR,
        "sent an answer that is not MySQL",
    ),
    ("zeros", sends_bytes(bytes(400)), Reason.ERROR, "sent an answer that is not MySQL"),
    ("a packet of no sense", says(b"\x0a\x00\x01"), Reason.ERROR, "sent an answer that is not MySQL"),
    ("an empty packet", says(b""), Reason.ERROR, "sent an answer that is not MySQL"),
    ("half a greeting", sends_bytes(b"\x4a\x00\x00\x00\x0a8.0"), Reason.CONNECTION_LOST, "while connecting"),
    ("half a greeting, then silence", sends_bytes(b"\x4a\x00\x00", then_hangs=True), Reason.TIMEOUT, "within 0.3 s"),
    ("a statement refused", fails_statements, Reason.ERROR, "answered with an error while reading"),
    ("too many connections", says(error(1040)), Reason.TOO_MANY_CONNECTIONS, "no connection left for user someone"),
    ("user at its limit", greets_then(error(1203)), Reason.TOO_MANY_CONNECTIONS, "(error 1203)"),
    ("user over its resources", greets_then(error(1226)), Reason.TOO_MANY_CONNECTIONS, "(error 1226)"),
    ("host blocked", says(error(1129)), Reason.HOST_BLOCKED, "does not accept connections from this host"),
    ("host not allowed", says(error(1130)), Reason.HOST_BLOCKED, "does not accept connections from this host"),
    ("access denied", greets_then(error(1045)), Reason.ACCESS_DENIED, "refused user someone (error 1045)"),
    ("no password", greets_then(error(1698)), Reason.ACCESS_DENIED, "refused user someone"),
    ("old client", greets_then(error(1251)), Reason.ACCESS_DENIED, "refused user someone"),
    ("ed25519", greets_then(auth_switch("client_ed25519")), Reason.ACCESS_DENIED, "plugin client_ed25519"),
    ("pam", greets_then(auth_switch("dialog")), Reason.ACCESS_DENIED, "plugin dialog"),
    ("parsec", greets_then(auth_switch("parsec")), Reason.ACCESS_DENIED, "plugin parsec"),
    ("offline mode", greets_then(error(3032)), Reason.OFFLINE, "offline mode"),
    ("no thread left", says(error(1135)), Reason.REJECTS_LOGINS, "the server takes no logins (error 1135)"),
    ("out of memory", greets_then(error(1041)), Reason.REJECTS_LOGINS, "(error 1041)"),
    ("init_connect fails", begins_then(error(1184)), Reason.REJECTS_LOGINS, "(error 1184)"),
    ("shutting down", greets_then(error(1053)), Reason.CONNECTION_LOST, "(error 1053)"),
    ("an error with no cause of its own", greets_then(error(1999)), Reason.ERROR, "(error 1999)"),
]


def database(port: int) -> Database:
    """Give a database on this port, with a password that must never be seen."""
    return Database(host="127.0.0.1", port=port, username="someone", password="geheim")


def polling(scenario: Callable[[Poller], Awaitable[None]], where: Database) -> None:
    """Run a scenario with an poller, and close that at the end."""

    async def running() -> None:
        poller = Poller(where, DEADLINE_SECONDS)
        try:
            await scenario(poller)
        finally:
            await poller.close()

    asyncio.run(running())


@pytest.mark.parametrize(("behaviour", "cause", "words"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_a_failure_is_a_value_with_its_cause(behaviour: Behaviour, cause: Reason, words: str) -> None:
    async def scenario(poller: Poller) -> None:
        seen = await poller.poll()
        assert isinstance(seen, PollFailure)
        assert (cause, True) == (seen.reason, words in seen.detail), seen
        assert "geheim" not in seen.detail
        assert "message of the server" not in seen.detail

    with fake_mysql(behaviour) as server:
        polling(scenario, database(server.port))
        assert server.connections == 1


def test_a_server_that_asks_for_a_local_file_gets_nothing() -> None:
    # The request of LOAD DATA LOCAL INFILE, which a hostile server may send in answer to any statement.
    received: list[bytes] = []

    def asks_for_a_file(peer: Peer) -> None:
        peer.log_in()
        peer.receive()
        peer.send(b"\xfb/etc/passwd")
        try:
            received.append(peer.receive())
        except ConnectionError:
            received.append(b"")

    async def scenario(poller: Poller) -> None:
        assert isinstance(await poller.poll(), PollFailure)

    with fake_mysql(asks_for_a_file) as server:
        polling(scenario, database(server.port))
        wait_for("the server to see the end of the connection", lambda: received)
    assert received == [b""]


@pytest.mark.long
def test_no_failure_leaks_a_descriptor() -> None:
    def descriptors() -> int:
        gc.collect()
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    async def scenario(poller: Poller) -> None:
        await poller.poll()
        before = descriptors()
        for _ in range(3):
            await poller.poll()
        # The peer's own end, in this same process, may take a moment longer.
        async with asyncio.timeout(5):
            while descriptors() > before:  # noqa: ASYNC110 (nothing tells when a descriptor is gone)
                await asyncio.sleep(0.01)

    for _, behaviour, cause, _ in BROKEN:
        # After a refusal the poller asks less often: nothing to leak.
        if cause not in (Reason.ACCESS_DENIED, Reason.HOST_BLOCKED):
            with fake_mysql(behaviour) as server:
                polling(scenario, database(server.port))


def test_nobody_listening_is_unreachable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]

        async def scenario(poller: Poller) -> None:
            expected = PollFailure(Reason.UNREACHABLE, f"cannot connect to 127.0.0.1:{port}: Connection refused")
            assert expected == await poller.poll()

        polling(scenario, database(port))


def test_no_socket_is_unreachable(tmp_path: Path) -> None:
    async def scenario(poller: Poller) -> None:
        expected = PollFailure(Reason.UNREACHABLE, f"cannot connect to {tmp_path}/no.sock: No such file or directory")
        assert expected == await poller.poll()

    polling(scenario, Database(socket=f"{tmp_path}/no.sock"))


def test_a_server_that_has_long_accepted_nobody_is_still_a_timeout(tmp_path: Path) -> None:
    path = str(tmp_path / "hung.sock")
    with ExitStack() as exits:
        hung = exits.enter_context(socket.socket(socket.AF_UNIX))
        hung.bind(path)
        hung.listen(0)
        # One waits in the queue, which is then full.
        exits.enter_context(socket.socket(socket.AF_UNIX)).connect(path)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            seen = runner.run(Poller(Database(socket=path, username="someone"), DEADLINE_SECONDS).poll())
    assert isinstance(seen, PollFailure)
    assert seen.reason is Reason.TIMEOUT


def test_an_address_that_drops_packets_does_not_use_up_the_time_of_the_next() -> None:
    async def connect(port: int) -> None:
        login = Login(host="two-addresses.invalid", port=port, username="someone", password="")
        async with asyncio.timeout(ADDRESS_SECONDS):
            connection = await Connection.to(login, ["127.0.0.2", "127.0.0.1"])
        await connection.quit()

    with fake_mysql(galera()) as server, ExitStack() as exits:
        deaf = exits.enter_context(socket.socket())
        deaf.bind(("127.0.0.2", server.port))
        deaf.listen(0)
        # Once the queue is full, the kernel drops the packets of further clients.
        for _ in range(4):
            waiting = exits.enter_context(socket.socket())
            waiting.setblocking(False)  # noqa: FBT003 (socket's own signature)
            waiting.connect_ex(deaf.getsockname())
        for factory in (asyncio.new_event_loop, uvloop.new_event_loop):
            with asyncio.Runner(loop_factory=factory) as runner:
                runner.run(connect(server.port))
        assert server.connections == 2


def test_an_unknown_host_name_is_unreachable() -> None:
    async def scenario(poller: Poller) -> None:
        seen = await poller.poll()
        # Without a resolver the deadline may come first.
        assert isinstance(seen, PollFailure)
        assert seen.reason in (Reason.UNREACHABLE, Reason.TIMEOUT)
        assert "no-such-host.invalid" in seen.detail

    polling(scenario, Database(host="no-such-host.invalid"))


def test_one_connection_serves_all_polls() -> None:
    async def scenario(poller: Poller) -> None:
        for _ in range(5):
            seen = await poller.poll()
            assert isinstance(seen, NodeState)
            assert seen.wsrep_local_state == 4

    with fake_mysql(galera()) as server:
        polling(scenario, database(server.port))
        assert server.connections == 1


def worked_once_then(*packets: bytes) -> Behaviour:
    """Give one poll, then answer every statement with these packets and close."""

    def behaviour(peer: Peer) -> None:
        peer.begin_session()
        peer.answer_queries(SYNCED_STATUS, SYNCED_VARIABLES, statements=2)
        peer.receive()
        for payload in packets:
            peer.send(payload)

    return behaviour


HELD_CONNECTION_FAULTS = {
    "closed": (),
    "error 1927, killed by an administrator": (error(1927),),
    "error 1317, statement killed": (error(1317),),
    "error 1969, over max_statement_time": (error(1969),),
    "error 4031, idle for too long": (error(4031),),
    "error 1205, lock wait timeout": (error(1205),),
    "no MySQL packet": (b"",),
    "a result of no columns": (b"\x01", b"\x00"),
}


@pytest.mark.parametrize("packets", HELD_CONNECTION_FAULTS.values(), ids=HELD_CONNECTION_FAULTS)
def test_any_fault_of_a_held_connection_is_retried_once_on_a_new_one(packets: tuple[bytes, ...]) -> None:
    async def scenario(poller: Poller) -> None:
        first = await poller.poll()
        assert isinstance(first, NodeState)
        server.behaviour = galera()
        assert first == await poller.poll()

    with fake_mysql(worked_once_then(*packets)) as server:
        polling(scenario, database(server.port))
        assert server.connections == 2


def test_a_new_connection_that_fails_as_well_is_not_replaced_again() -> None:
    async def scenario(poller: Poller) -> None:
        assert isinstance(await poller.poll(), NodeState)
        server.behaviour = fails_statements
        seen = await poller.poll()
        assert isinstance(seen, PollFailure)
        assert "(error 1205)" in seen.detail

    with fake_mysql(worked_once_then(error(1927))) as server:
        polling(scenario, database(server.port))
        assert server.connections == 2


def test_a_timeout_on_a_held_connection_is_not_retried() -> None:
    def hangs_after_one_poll(peer: Peer) -> None:
        peer.begin_session()
        peer.answer_queries(SYNCED_STATUS, SYNCED_VARIABLES, statements=2)
        peer.hang()

    async def scenario(poller: Poller) -> None:
        assert isinstance(await poller.poll(), NodeState)
        seen = await poller.poll()
        assert isinstance(seen, PollFailure)
        assert seen.reason is Reason.TIMEOUT

    with fake_mysql(hangs_after_one_poll) as server:
        polling(scenario, database(server.port))
        assert server.connections == 1


def test_a_refusal_is_repeated_without_asking_again_each_time() -> None:
    async def scenario(poller: Poller) -> None:
        first = await poller.poll()
        for _ in range(20):
            assert first == await poller.poll()

    with fake_mysql(greets_then(error(1045))) as server:
        polling(scenario, database(server.port))
        assert server.connections == 1


def test_a_server_that_is_full_sees_one_attempt_an_poll() -> None:
    async def scenario(poller: Poller) -> None:
        for _ in range(5):
            await poller.poll()

    with fake_mysql(says(error(1040))) as server:
        polling(scenario, database(server.port))
        assert server.connections == 5


def test_a_cancellation_from_outside_comes_through() -> None:
    async def scenario(poller: Poller) -> None:
        task = asyncio.create_task(poller.poll())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with fake_mysql(greets_and_is_silent) as server:
        polling(scenario, database(server.port))


def test_values_that_are_no_text_are_read() -> None:
    async def scenario(poller: Poller) -> None:
        seen = await poller.poll()
        assert isinstance(seen, NodeState)
        assert seen.wsrep_node_name == "n????"

    with fake_mysql(galera(variables={"wsrep_node_name": b"n\xff\xfe\xc3\x28"[:4] + b"\x00"})) as server:
        polling(scenario, database(server.port))


def endless(first: bytes, then: bytes, *, after_login: bool) -> tuple[Behaviour, list[int]]:
    """Send then again and again after first, for as long as it is taken; and count the bytes taken."""
    taken = [0]

    def behaviour(peer: Peer) -> None:
        # The client's own buffer is bounded by asyncio; ours would take megabytes more.
        peer.connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        if after_login:
            peer.log_in()
            peer.receive()
        peer.connection.sendall(first)
        while True:
            taken[0] += peer.connection.send(then)

    return behaviour, taken


ENDLESS = {
    "a packet of 16 MiB instead of a greeting": (b"\xff\xff\xff\x00\x0a", b"x" * 65536, False),
    "a plugin of 8 MiB": (
        b"".join([(8 << 20).to_bytes(3, "little"), b"\0\x0a8.0\0", bytes(4), b"saltsalt\0\xff\xff", bytes(18)]),
        b"p" * 65536,
        False,
    ),
    "rows without end": (
        packet(1, OK) + packet(1, b"\x01") + packet(2, b"\x03def\0\0\0\x01n\0\x0c" + bytes(12)) + packet(3, EOF),
        b"".join(packet((4 + number) % 256, b"\xc8" + b"x" * 200) for number in range(256)),
        True,
    ),
    "an error of 8 MiB": ((8 << 20).to_bytes(3, "little") + b"\x01\xff", b"e" * 65536, True),
}


@pytest.mark.parametrize(("first", "then", "after_login"), ENDLESS.values(), ids=ENDLESS)
def test_nothing_a_server_sends_is_taken_without_bound(first: bytes, then: bytes, *, after_login: bool) -> None:
    behaviour, taken = endless(first, then, after_login=after_login)

    async def scenario(poller: Poller) -> None:
        seen = await poller.poll()
        assert isinstance(seen, PollFailure)
        assert seen.reason is Reason.ERROR
        assert len(seen.detail) <= 300

    with fake_mysql(behaviour) as server:
        polling(scenario, database(server.port))
    assert taken[0] < 2 << 20


def test_a_packet_over_the_budget_is_named_and_one_within_it_is_read() -> None:
    async def scenario(poller: Poller) -> None:
        seen = await poller.poll()
        assert isinstance(seen, PollFailure)
        assert (seen.reason, seen.detail) == (
            Reason.ERROR,
            f"127.0.0.1:{server.port} sent more than any MySQL server does while connecting",
        )
        server.behaviour = greets_then(auth_switch("x" * 60_000))
        seen = await poller.poll()
        assert isinstance(seen, PollFailure)
        assert seen.reason is Reason.ACCESS_DENIED
        assert f"plugin {'x' * 64}," in seen.detail

    with fake_mysql(greets_then(auth_switch("x" * (8 << 20)))) as server:
        polling(scenario, database(server.port))
