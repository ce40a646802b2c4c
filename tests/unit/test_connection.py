"""One connection to a server: answers that are remembered, and answers that nobody asked for."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from app.database.connection import MOST_BYTES, Connection
from app.database.faults import TooManyBytesError, UnaskedBytesError
from app.database.login import Database
from tests.fake_mysql import OK, Behaviour, Peer, fake_mysql

FIRST, SECOND = "SHOW STATUS", "SHOW GLOBAL VARIABLES"
ANSWERS = {FIRST: {"wsrep_ready": "ON"}, SECOND: {"read_only": "OFF"}}
DEADLINE_SECONDS = 10.0


def answering(answers: Mapping[str, Mapping[str, str]]) -> Behaviour:
    """Answer statements for ever."""

    def behaviour(peer: Peer) -> None:
        peer.log_in()
        peer.answer_queries(answers[FIRST], answers[SECOND])

    return behaviour


def connected(behaviour: Behaviour, scenario: Callable[[Connection], Awaitable[None]]) -> None:
    """Run a scenario with a connection."""

    async def running(port: int) -> None:
        login = Database(host="127.0.0.1", port=port, username="someone").login()
        async with asyncio.timeout(DEADLINE_SECONDS):
            connection = await Connection.to(login, ["127.0.0.1"])
            try:
                await scenario(connection)
            finally:
                connection.close()

    with fake_mysql(behaviour) as server:
        asyncio.run(running(server.port))


def test_an_answer_that_equals_the_last_one_is_not_parsed_again() -> None:
    async def scenario(connection: Connection) -> None:
        first, second = await connection.rows(FIRST), await connection.rows(SECOND)
        assert first == ((b"wsrep_ready", b"ON"),)
        await connection.send(FIRST, SECOND)
        assert await connection.next_rows() is first
        assert await connection.next_rows() is second
        # Whatever the order.
        assert await connection.rows(SECOND) is second
        assert await connection.rows(FIRST) is first

    connected(answering(ANSWERS), scenario)


def test_an_answer_that_equals_the_last_one_counts_towards_the_most_bytes_of_a_poll() -> None:
    long = {f"wsrep_{number}": "x" * 200 for number in range(MOST_BYTES * 2 // 3 // 200)}

    async def scenario(connection: Connection) -> None:
        for statement in (FIRST, SECOND, FIRST, SECOND):
            connection.begin_poll()
            await connection.rows(statement)
        connection.begin_poll()
        await connection.send(FIRST, SECOND)
        await connection.next_rows()
        with pytest.raises(TooManyBytesError):
            await connection.next_rows()

    connected(answering({FIRST: long, SECOND: long}), scenario)


def test_a_cancelled_wait_for_an_answer_ends_the_connection() -> None:
    def answers_once(peer: Peer) -> None:
        peer.log_in()
        peer.answer_queries(ANSWERS[FIRST], ANSWERS[SECOND], statements=1)
        peer.hang()

    async def scenario(connection: Connection) -> None:
        await connection.rows(FIRST)
        await connection.send(FIRST)
        waiting = asyncio.ensure_future(connection.next_rows())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(Exception, match="Not connected"):
            await connection.send(FIRST)

    connected(answers_once, scenario)


def test_nothing_is_sent_while_an_answer_is_awaited() -> None:
    async def scenario(connection: Connection) -> None:
        await connection.send(FIRST)
        with pytest.raises(UnaskedBytesError):
            await connection.send(SECOND)

    connected(answering(ANSWERS), scenario)


def test_a_further_result_is_refused_before_it_arrives() -> None:
    def announces_another(peer: Peer) -> None:
        peer.log_in()
        peer.receive()
        # The flag SERVER_MORE_RESULTS_EXISTS.
        peer.send(OK[:3] + b"\x08\x00\x00\x00")
        peer.hang()

    async def scenario(connection: Connection) -> None:
        with pytest.raises(UnaskedBytesError):
            await connection.rows(FIRST)

    connected(announces_another, scenario)
