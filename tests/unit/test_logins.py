"""Logins beside the polls, against hand-written peers; tests/cluster/test_logins.py has what a real server shows."""

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections import UserDict
from collections.abc import Awaitable, Callable, ItemsView, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import uvloop

from app.database.login import Database
from app.database.poller import Poller
from app.node_state import NodeState, PollFailure
from app.reason import Reason
from harness.waiting import wait_for
from tests.fake_mysql import (
    SYNCED_STATUS,
    SYNCED_VARIABLES,
    Behaviour,
    FakeMySQL,
    Peer,
    error,
    fake_mysql,
    galera,
    says,
)
from tests.measured import within

DEADLINE_SECONDS = 0.3
LOGIN_SECONDS = 5.0
INTERVAL_SECONDS = 0.05


def polling(
    server: FakeMySQL, scenario: Callable[[Poller], Awaitable[None]], interval: float = INTERVAL_SECONDS
) -> None:
    """Run a scenario with a poller of this server."""

    async def running() -> None:
        database = Database(host="127.0.0.1", port=server.port, username="someone")
        poller = Poller(database, DEADLINE_SECONDS, login_interval_seconds=interval)
        try:
            await scenario(poller)
        finally:
            await poller.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(running())


async def polls_until(poller: Poller, condition: Callable[[NodeState | PollFailure], bool]) -> float:
    """Poll until a result fulfils a condition; give how long that took."""
    began = time.monotonic()
    async with asyncio.timeout(20):
        while not condition(await poller.poll()):  # noqa: ASYNC110 (the poller has no event)
            await asyncio.sleep(0.01)
    return time.monotonic() - began


def after(sessions: int, then: Behaviour, server: Callable[[], FakeMySQL]) -> Behaviour:
    """Behave like a Synced node for so many sessions, and in another way from then on."""

    def behaviour(peer: Peer) -> None:
        (galera() if server().connections <= sessions else then)(peer)

    return behaviour


@contextmanager
def server_with(sessions: int, then: Behaviour) -> Iterator[FakeMySQL]:
    """Serve so many sessions, and behave in another way from then on."""
    with fake_mysql(galera()) as server:
        server.behaviour = after(sessions, then, lambda: server)
        yield server


@contextmanager
def accepting(listening: socket.socket) -> Iterator[None]:
    """Behave like a Synced node on a listening socket."""

    def serve() -> None:
        # Ends when the socket is shut down.
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=answer, args=[listening.accept()[0]], daemon=True).start()

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            galera()(Peer(connection))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def test_a_new_session_takes_the_place_of_the_old_one_which_logs_out() -> None:
    ended: list[bytes] = []

    def behaviour(peer: Peer) -> None:
        peer.begin_session()
        peer.answer_queries(SYNCED_STATUS, SYNCED_VARIABLES)
        ended.append(b"quit")

    async def scenario(poller: Poller) -> None:
        await polls_until(poller, lambda _: server.connections >= 5)
        assert poller.logins[None] >= 4
        assert poller.login_failure is None

    with fake_mysql(behaviour) as server:
        polling(server, scenario)
        # A login that was under way at the end may have been cut off.
        wait_for("the sessions to be logged out", lambda: len(ended) >= server.connections - 1)
        assert server.most_open_connections <= 3


def test_an_interval_of_0_keeps_one_session() -> None:
    async def scenario(poller: Poller) -> None:
        for _ in range(20):
            assert isinstance(await poller.poll(), NodeState)
            await asyncio.sleep(0.01)

    with fake_mysql(galera()) as server:
        polling(server, scenario, interval=0)
        assert server.connections == 1


@pytest.mark.parametrize(
    ("then", "reason"),
    [
        (says(error(1135)), Reason.REJECTS_LOGINS),
        (says(error(1041)), Reason.REJECTS_LOGINS),
        (lambda _: None, Reason.CONNECTION_LOST),
    ],
    ids=["no thread left", "out of memory", "closed in the handshake"],
)
def test_two_logins_that_the_server_rejects_in_a_row_are_in_the_state_until_one_succeeds(
    then: Behaviour, reason: Reason
) -> None:
    async def scenario(poller: Poller) -> None:
        await polls_until(poller, lambda seen: isinstance(seen, NodeState) and seen.rejects_logins is not None)
        assert poller.login_failure is not None
        assert poller.login_failure.reason is reason
        assert (poller.logins[None], poller.account_refused) == (1, False)
        server.behaviour = galera()
        await polls_until(poller, lambda seen: isinstance(seen, NodeState) and seen.rejects_logins is None)
        assert poller.login_failure is None

    with server_with(1, then) as server:
        polling(server, scenario)


class Slow(UserDict[str, str]):
    """Rows that the server takes a moment to read."""

    def items(self) -> ItemsView[str, str]:
        """Return them after 0.1 s."""
        time.sleep(0.1)
        return super().items()


def test_a_login_that_is_rejected_while_a_poll_is_under_way_counts() -> None:
    def answers_slowly(peer: Peer) -> None:
        if server.connections > 1:
            peer.send(error(1135))
            return
        peer.begin_session()
        peer.answer_queries(Slow(SYNCED_STATUS), SYNCED_VARIABLES)

    async def scenario(poller: Poller) -> None:
        seconds = await polls_until(
            poller, lambda seen: isinstance(seen, NodeState) and seen.rejects_logins is not None
        )
        within("a server that rejects logins", seconds, 2.0)

    with fake_mysql(answers_slowly) as server:
        polling(server, scenario)


def test_one_rejected_login_is_no_reason_and_the_next_one_is_made_at_once() -> None:
    rejections = iter([True])

    def behaviour(peer: Peer) -> None:
        if server.connections == 2 and next(rejections, False):
            peer.send(error(1135))
        else:
            galera()(peer)

    async def scenario(poller: Poller) -> None:
        seen = [await poller.poll()]
        await asyncio.sleep(0.6)
        async with asyncio.timeout(10):
            while server.connections < 3:
                seen.append(await poller.poll())
                await asyncio.sleep(0.01)
        assert all(isinstance(one, NodeState) and one.rejects_logins is None for one in seen)
        assert poller.logins[Reason.REJECTS_LOGINS] == 1

    with fake_mysql(behaviour) as server:
        # The interval is longer than the test: only the second login in a row is not waited for.
        polling(server, scenario, interval=0.5)


@pytest.mark.long
def test_a_login_that_gets_no_answer_counts_after_its_own_time() -> None:
    async def scenario(poller: Poller) -> None:
        assert isinstance(await poller.poll(), NodeState)
        seconds = await polls_until(
            poller, lambda seen: isinstance(seen, NodeState) and seen.rejects_logins is not None
        )
        assert seconds > LOGIN_SECONDS
        within("a server that answers no login", seconds, LOGIN_SECONDS + DEADLINE_SECONDS + 1)

    with server_with(1, Peer.hang) as server:
        polling(server, scenario)
        assert server.most_open_connections == 2


@pytest.mark.parametrize("number", [1045, 1698, 1129, 1130, 1040, 1203, 1226])
def test_a_refused_account_costs_no_session_that_works(number: int, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(poller: Poller) -> None:
        await polls_until(poller, lambda _: poller.account_refused)
        for _ in range(10):
            seen = await poller.poll()
            assert isinstance(seen, NodeState)
            assert seen.rejects_logins is None
        assert poller.login_failure is not None
        assert f"(error {number})" in poller.login_failure.detail
        server.behaviour = galera()
        await polls_until(poller, lambda _: not poller.account_refused)

    with server_with(1, says(error(number))) as server, caplog.at_level(logging.INFO):
        polling(server, scenario)
    assert [record.getMessage() for record in caplog.records] == ["login failed", "login works again"]


def test_a_socket_file_that_is_gone_costs_no_session_that_works(tmp_path: Path) -> None:
    path = tmp_path / "mysqld.sock"

    async def scenario() -> None:
        poller = Poller(Database(socket=str(path), username="someone"), DEADLINE_SECONDS, login_interval_seconds=0.05)
        assert isinstance(await poller.poll(), NodeState)
        path.unlink()
        await polls_until(poller, lambda _: poller.account_refused)
        assert isinstance(await poller.poll(), NodeState)
        await poller.close()

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        with accepting(listening):
            asyncio.run(scenario())


def test_a_server_that_hangs_is_never_given_more_than_two_sessions_and_recovers_on_them() -> None:
    frozen = threading.Event()

    def behaviour(peer: Peer) -> None:
        # Logins work while SHOW STATUS hangs.
        peer.begin_session()
        while peer.receive()[:5] != b"\x01":
            if frozen.is_set():
                wait_for("the lock to be released", lambda: not frozen.is_set(), seconds=20)
            peer.number_from(1)
            peer.rows(SYNCED_STATUS)
            peer.receive()
            peer.number_from(1)
            peer.rows(SYNCED_VARIABLES)

    async def scenario(poller: Poller) -> None:
        assert isinstance(await poller.poll(), NodeState)
        frozen.set()
        for _ in range(8):
            seen = await poller.poll()
            assert isinstance(seen, PollFailure)
            assert seen.reason is Reason.TIMEOUT
        assert server.connections <= 3
        frozen.clear()
        assert isinstance(await poller.poll(), NodeState)

    with fake_mysql(behaviour) as server:
        polling(server, scenario)
        assert server.most_open_connections <= 3


def test_an_answer_that_comes_after_its_poll_is_not_used() -> None:
    held = threading.Event()
    status = dict(SYNCED_STATUS)

    def behaviour(peer: Peer) -> None:
        peer.begin_session()
        peer.answer_queries(SYNCED_STATUS, SYNCED_VARIABLES, statements=2)
        # This answer says Synced, and arrives when the node no longer is.
        peer.receive()
        select = peer.receive()
        held.wait(20)
        with peer.in_one_piece():
            peer.number_from(1)
            peer.rows(SYNCED_STATUS)
            peer.number_from(1)
            peer.selected(select, SYNCED_VARIABLES)
        peer.answer_queries(status, SYNCED_VARIABLES)

    async def scenario(poller: Poller) -> None:
        await poller.poll()
        assert isinstance(await poller.poll(), PollFailure)
        status["wsrep_local_state"] = "2"
        asyncio.get_running_loop().call_later(DEADLINE_SECONDS / 3, held.set)
        seen = await poller.poll()
        assert isinstance(seen, NodeState)
        assert seen.wsrep_local_state == 2

    with fake_mysql(behaviour) as server:
        polling(server, scenario, interval=0)
        assert server.connections == 1


def test_a_full_accept_queue_is_asked_again_within_the_poll(tmp_path: Path) -> None:
    path = str(tmp_path / "mysqld.sock")

    async def scenario(listening: socket.socket) -> None:
        poller = Poller(Database(socket=path, username="someone"), DEADLINE_SECONDS)

        def make_room() -> None:
            listening.accept()[0].close()
            exits.enter_context(accepting(listening))

        asyncio.get_running_loop().call_later(DEADLINE_SECONDS / 3, make_room)
        assert isinstance(await poller.poll(), NodeState)
        await poller.close()

    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as waiting, ExitStack() as exits:
        listening.bind(path)
        listening.listen(0)
        waiting.connect(path)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(scenario(listening))


def test_the_session_is_told_how_long_it_may_be_idle() -> None:
    async def scenario(poller: Poller) -> None:
        await poller.poll()

    with fake_mysql(galera()) as server:
        polling(server, scenario)
        assert server.statements[:2] == [
            "SET SESSION wait_timeout=32, sql_select_limit=18446744073709551615",
            "SET SESSION wsrep_sync_wait=0",
        ]
