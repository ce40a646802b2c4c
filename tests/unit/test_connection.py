"""One connection to a server, and what it makes of answers that nobody asked for."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from pymysql.err import MySQLError

from app.database.connection import MOST_BYTES, Connection
from app.database.faults import TooManyBytesError, UnaskedBytesError, error_number
from app.database.login import Database
from tests.fake_mysql import OK, Behaviour, Peer, error, fake_mysql

FIRST, SECOND = "SHOW STATUS", "SHOW GLOBAL VARIABLES"
DEADLINE_SECONDS = 10.0


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


def test_each_statement_has_its_own_answer_and_its_own_error() -> None:
    def behaviour(peer: Peer) -> None:
        peer.log_in()
        peer.answer_queries({"wsrep_ready": "ON"}, {"read_only": "OFF"}, lambda: True)

    async def scenario(connection: Connection) -> None:
        first, refused, second = await connection.answers(FIRST, "SELECT 1", SECOND)
        assert (first, second) == (((b"wsrep_ready", b"ON"),), ((b"read_only", b"OFF"),))
        assert isinstance(refused, MySQLError)
        assert error_number(refused) == 1047

    connected(behaviour, scenario)


def test_answers_together_are_bounded_and_the_next_ones_have_the_same_bound() -> None:
    long = {f"wsrep_{number}": "x" * 200 for number in range(MOST_BYTES * 2 // 3 // 200)}

    def behaviour(peer: Peer) -> None:
        peer.log_in()
        peer.answer_queries(long, long)

    async def scenario(connection: Connection) -> None:
        for statement in (FIRST, SECOND, FIRST):
            await connection.answers(statement)
        with pytest.raises(TooManyBytesError):
            await connection.answers(FIRST, SECOND)

    connected(behaviour, scenario)


def test_a_cancelled_wait_for_an_answer_ends_the_connection() -> None:
    def is_silent(peer: Peer) -> None:
        peer.log_in()
        peer.hang()

    async def scenario(connection: Connection) -> None:
        waiting = asyncio.ensure_future(connection.answers(FIRST))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(Exception, match="Cancelled during execution"):
            await connection.answers(FIRST)

    connected(is_silent, scenario)


def test_a_further_result_is_refused_before_it_arrives() -> None:
    def announces_another(peer: Peer) -> None:
        peer.log_in()
        peer.receive()
        # The flag SERVER_MORE_RESULTS_EXISTS.
        peer.send(OK[:3] + b"\x08\x00\x00\x00")
        peer.hang()

    async def scenario(connection: Connection) -> None:
        with pytest.raises(UnaskedBytesError):
            await connection.answers(FIRST)

    connected(announces_another, scenario)


def test_bytes_that_nobody_asked_for_end_the_connection() -> None:
    def speaks_unasked(peer: Peer) -> None:
        peer.log_in()
        peer.receive()
        with peer.in_one_piece():
            peer.send(error(1999))
            peer.send(OK)
        peer.hang()

    async def scenario(connection: Connection) -> None:
        await connection.answers(FIRST)
        with pytest.raises(UnaskedBytesError):
            await connection.answers(FIRST)

    connected(speaks_unasked, scenario)
