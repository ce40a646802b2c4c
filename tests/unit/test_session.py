"""The statements of a poll: a SELECT in place of a SHOW wherever the server answers it, and each
its own answer.
"""

import asyncio

import pytest

from app.database.connection import MOST_BYTES, Connection
from app.database.faults import TooManyBytesError
from tests import fake_mysql as fake
from tests.unit.polling import database_of, polling

# All of them, as Percona XtraDB Cluster answers.
VARIABLES = {
    "wsrep_desync": "ON",
    "wsrep_node_name": "pxc1",
    "read_only": "ON",
    "super_read_only": "OFF",
    "offline_mode": "OFF",
    "pxc_maint_mode": "DISABLED",
    "version": "8.0.36-28.1",
}


def verbs(server: fake.FakeMySQL) -> list[str]:
    """Give how the system variables were asked for, in order; forget what has been asked so far."""
    asked, server.statements[:] = list(server.statements), []
    return [
        statement.split()[0]
        for statement in asked
        if statement.startswith(("SHOW GLOBAL", "SELECT"))
    ]


def test_after_one_show_a_connection_is_asked_by_select_for_what_the_server_has() -> None:
    with polling(fake.galera(variables={"evil, SLEEP(9)": "1"})) as (polls, server):
        first = polls.state()
        assert [first, first] == [polls.poll(), polls.poll()]
        # Names from a server are never sent back.
        assert not {"offline_mode", "evil"} & set(
            server.statements[-1].replace("@@global.", "").split(", ")
        )
        assert verbs(server) == ["SHOW", "SELECT", "SELECT"]
        # A new connection may lead to another server.
        server.drop_connections()
        assert first == polls.poll()
        assert verbs(server)[-1] == "SHOW"


def test_select_and_show_give_the_same_node_state_for_all_that_any_server_has() -> None:
    with polling(fake.galera(variables=VARIABLES)) as (polls, server):
        state = polls.state()
        assert state == polls.poll()
        assert verbs(server) == ["SHOW", "SELECT"]
        assert (state.wsrep_on, state.wsrep_desync, state.super_read_only) == ("ON", "ON", "OFF")


def test_a_select_refused_falls_back_to_the_show_in_the_same_poll() -> None:
    status = dict(fake.SYNCED_STATUS)

    def behaviour(peer: fake.Peer) -> None:
        peer.log_in()
        peer.answer_queries(status, VARIABLES, lambda: status["wsrep_ready"] == "OFF")

    with polling(behaviour) as (polls, server):
        polls.state()
        status["wsrep_ready"] = "OFF"
        seen = polls.state()
        assert (seen.wsrep_ready, seen.pxc_maint_mode) == ("OFF", "DISABLED")
        assert verbs(server) == ["SHOW", "SELECT", "SHOW"]
        # It tries the SELECT again at each poll: the node may be ready.
        status["wsrep_ready"] = "ON"
        polls.state()
        assert verbs(server) == ["SELECT"]
        assert server.connections == 1


def test_a_variable_that_is_gone_is_noticed_by_the_show() -> None:
    variables = dict(VARIABLES)

    def behaviour(peer: fake.Peer) -> None:
        peer.log_in()
        peer.answer_queries(variables=variables)

    with polling(behaviour) as (polls, server):
        polls.state()
        del variables["pxc_maint_mode"]
        seen = polls.state()
        assert seen.pxc_maint_mode is None
        verbs(server)
        assert seen == polls.state()
        assert verbs(server) == ["SELECT"]


@pytest.mark.parametrize("rows", [[], [["1"]], [["1"], ["1"]]], ids=["none", "half", "two"])
def test_a_select_that_answers_nothing_or_half_is_passed_over(rows: list[list[str]]) -> None:
    def behaviour(peer: fake.Peer) -> None:
        peer.poll_once()
        peer.receive()
        peer.receive()
        peer.connection.sendall(
            fake.shown(fake.SYNCED_STATUS) + fake.table(["@@global.read_only"], rows)
        )
        peer.answer_queries()

    with polling(behaviour) as (polls, server):
        assert polls.state() == polls.state()
        assert server.connections == 1


def test_an_answer_sent_twice_is_not_taken_for_the_next_poll() -> None:
    def answers_twice(peer: fake.Peer) -> None:
        peer.poll_once()
        peer.receive()
        answer = fake.shown(fake.SYNCED_STATUS) + fake.selected(
            peer.receive().decode(), fake.SYNCED_VARIABLES
        )
        peer.connection.sendall(answer + answer)
        peer.hang()

    with polling(answers_twice) as (polls, server):
        assert polls.state().read_only == polls.state().read_only == "OFF"
        server.behaviour = fake.galera(variables={"read_only": "ON"})
        assert polls.state().read_only == "ON"
        assert server.connections == 2


def test_a_further_result_is_refused_before_it_arrives() -> None:
    # The flag SERVER_MORE_RESULTS_EXISTS.
    with polling(fake.greets_then(fake.OK, fake.OK[:3] + b"\x08\x00\x00\x00")) as (polls, server):
        assert (
            polls.failure().detail
            == f"127.0.0.1:{server.port} sent an answer to no statement while logging in"
        )


def test_rows_that_make_no_sense_end_the_connection() -> None:
    def behaviour(peer: fake.Peer) -> None:
        peer.log_in()
        peer.answer_queries(statements=3)
        peer.receive()
        peer.connection.sendall(fake.table(["one"], [["1"]]))
        peer.hang()

    with polling(behaviour) as (polls, server):
        polls.failure()
        server.behaviour = fake.galera()
        polls.state()
        assert server.connections == 2


def test_answers_together_are_bounded_and_the_next_ones_have_the_same_bound() -> None:
    long = {f"wsrep_{number}": "x" * 200 for number in range(MOST_BYTES * 2 // 3 // 200)}

    async def asked_twice(server: fake.FakeMySQL) -> None:
        connection = await Connection.to(database_of(server).login(), ["127.0.0.1"])
        for _ in range(3):
            await connection.answers("SHOW STATUS")
        with pytest.raises(TooManyBytesError):
            await connection.answers("SHOW STATUS", "SHOW STATUS")
        connection.close()

    with fake.fake_mysql(fake.galera(long)) as server:
        asyncio.run(asked_twice(server))
