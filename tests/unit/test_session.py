"""The statements of a poll.

A SELECT in place of a SHOW wherever the server answers it, and each its own answer.
"""

import asyncio

import pytest

from app.database.session import Session
from app.settings.database import Database
from harness.ports import LOOPBACK
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
    """Return how the system variables were asked for, in order, and forget it."""
    statements = list(server.statements)
    server.statements.clear()
    return [
        statement.split()[0]
        for statement in statements
        if statement.startswith(("SHOW GLOBAL", "SELECT"))
    ]


def test_after_one_show_a_connection_is_asked_by_select_for_what_the_server_has() -> (
    None
):
    with polling(fake.galera(variables=VARIABLES | {"evil, SLEEP(9)": "1"})) as (
        polls,
        server,
    ):
        first = polls.state()
        assert (first.wsrep_on, first.wsrep_desync, first.super_read_only) == (
            "ON",
            "ON",
            "OFF",
        )
        assert [first, first] == [polls.poll(), polls.poll()]
        # Names from a server are never sent back.
        assert "evil" not in server.statements[-1]
        assert verbs(server) == ["SHOW", "SELECT", "SELECT"]
        # A new connection may lead to another server.
        server.drop_connections()
        assert first == polls.poll()
        assert verbs(server)[-1] == "SHOW"


def test_a_select_refused_falls_back_to_the_show_in_the_same_poll() -> None:
    status = dict(fake.SYNCED_STATUS)
    variables = dict(VARIABLES)

    def behaviour(peer: fake.Peer) -> None:
        peer.log_in()
        peer.answer_queries(status, variables)

    with polling(behaviour) as (polls, server):
        polls.state()
        status["wsrep_ready"] = "OFF"
        state = polls.state()
        assert (state.wsrep_ready, state.pxc_maint_mode) == ("OFF", "DISABLED")
        assert verbs(server) == ["SHOW", "SELECT", "SHOW"]
        # It tries the SELECT again at each poll: the node may be ready. A variable may have gone.
        status["wsrep_ready"] = "ON"
        del variables["pxc_maint_mode"]
        assert polls.state().pxc_maint_mode is None
        polls.state()
        assert verbs(server) == ["SELECT", "SHOW", "SELECT"]
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


@pytest.mark.parametrize(
    ("period", "seconds"),
    [
        ("PT0.5S", 0.5),
        ("PT5S", 5),
        ("PT1M", 60),
        ("PT1M30S", 90),
        ("PT2H", 7200),
        ("P1D", 86400),
        ("P1DT1S", 86401),
        ("none", 5),
    ],
)
def test_the_suspect_timeout_is_read_as_galera_prints_it(
    period: str, seconds: float
) -> None:
    options = f"evs.send_window = 4; evs.suspect_timeout = {period}; x = PT7S;"
    behaviour = fake.galera(variables={"wsrep_provider_options": options})

    async def suspect_seconds(database: Database) -> float:
        session = await Session.to(database.target(), [LOOPBACK])
        await session.read()
        await session.quit()
        return session.suspect_seconds

    with fake.fake_mysql(behaviour) as server:
        assert asyncio.run(suspect_seconds(database_of(server))) == seconds


def test_a_further_result_is_refused_before_it_arrives() -> None:
    more_results_exist = fake.OK[:3] + b"\x08\x00\x00\x00"
    with polling(fake.greets_then(fake.OK, more_results_exist)) as (polls, _):
        assert (
            "sent more than it was asked for while logging in" in polls.failure().detail
        )


def test_rows_that_make_no_sense_end_the_connection() -> None:
    def behaviour(peer: fake.Peer) -> None:
        peer.log_in()
        peer.answer_queries(statements=2)
        peer.receive()
        peer.connection.sendall(fake.table(["one"], [["1"]]))
        peer.hang()

    with polling(behaviour) as (polls, server):
        polls.failure()
        server.behaviour = fake.galera()
        polls.state()
        assert server.connections == 2


@pytest.mark.parametrize(
    "rows", [[], [["1"]], [["1"], ["1"]]], ids=["none", "half", "two"]
)
def test_a_select_that_answers_nothing_or_half_ends_the_connection(
    rows: list[list[str]],
) -> None:
    def behaviour(peer: fake.Peer) -> None:
        peer.poll_once()
        peer.receive()
        peer.receive()
        peer.connection.sendall(
            fake.shown(fake.SYNCED_STATUS) + fake.table(["@@global.read_only"], rows)
        )
        peer.hang()

    with polling(behaviour) as (polls, server):
        assert polls.state() == polls.state()
        assert server.connections == 2
