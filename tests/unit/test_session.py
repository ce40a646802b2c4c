"""The statements of a poll.

A SELECT in place of a SHOW wherever the server answers it, and each its own answer.
"""

import asyncio
from collections.abc import Mapping

import pytest

from app.database.session import Session
from app.settings.database import Database
from harness.ports import LOOPBACK
from tests import fake_mysql as fake
from tests import pxc
from tests.unit.polling import JumpingLoop, database_of, polling


def showing(
    variables: Mapping[str, str], status: Mapping[str, str] = fake.SYNCED_STATUS
) -> fake.Behaviour:
    """Show what these have at that moment."""

    def behaviour(peer: fake.Peer) -> None:
        peer.log_in()
        peer.answer_queries(status, variables)

    return behaviour


def test_names_from_a_server_are_never_sent_back() -> None:
    with polling(fake.galera(variables={"evil, SLEEP(9)": "1"})) as (polls, server):
        first = polls.state()
        assert first.wsrep_on == "ON"
        assert [first, first] == [polls.poll(), polls.poll()]
        assert "evil" not in "".join(server.statements)


def test_a_node_that_refuses_a_select_or_loses_a_variable_is_read_all_the_same() -> (
    None
):
    status, variables = dict(pxc.STATUS), dict(pxc.VARIABLES)
    with polling(showing(variables, status)) as (polls, server):
        polls.state()
        status["wsrep_ready"] = "OFF"
        state = polls.state()
        assert (state.wsrep_ready, state.pxc_maint_mode) == ("OFF", "DISABLED")
        status["wsrep_ready"] = "ON"
        del variables["pxc_maint_mode"]
        assert polls.state().pxc_maint_mode is None
        assert server.connections == 1


def test_a_variable_that_the_server_did_not_have_is_seen_within_a_minute() -> None:
    variables = dict(fake.SYNCED_VARIABLES)
    loop = JumpingLoop()
    with polling(showing(variables), new_loop=lambda: loop) as (polls, _):
        assert polls.state().pxc_maint_mode is None
        variables["pxc_maint_mode"] = "MAINTENANCE"
        loop.ahead_seconds = 61.0
        assert polls.state().pxc_maint_mode == "MAINTENANCE"


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


@pytest.mark.parametrize(
    ("period", "seconds"),
    [
        ("PT0.5S", 0.5),
        ("PT1M30S", 90),
        ("PT2H", 7200),
        ("P1DT1S", 86401),
        ("none", 5),
        ("PT1M; evs.inactive_timeout = PT15S", 15),
        ("PT5S; evs.inactive_timeout = PT15S", 5),
    ],
)
def test_the_shorter_timeout_is_read_as_galera_prints_it(
    period: str, seconds: float
) -> None:
    options = f"evs.suspect_timeout = {period}; x = PT7S;"
    behaviour = fake.galera(variables={"wsrep_provider_options": options})

    async def suspect_seconds(database: Database) -> float:
        session = await Session(database.target(), [LOOPBACK]).open()
        await session.read()
        await session.quit()
        return session.suspect_seconds

    with fake.fake_mysql(behaviour) as server:
        assert asyncio.run(suspect_seconds(database_of(server))) == seconds
