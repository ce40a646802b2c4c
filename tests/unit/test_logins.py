"""Logins beside the polls, on mock peers.

tests/cluster/test_logins.py has what a real server shows, and tests/simulation what faults do.
"""

import logging
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from app.database.sessions import IN_USE, MOST_SESSIONS
from app.verdict.node_state import NodeState
from app.verdict.reason import Reason
from harness.waiting import wait_for
from tests.fake_mysql import (
    READ_IN_SYNC,
    SYNCED_VARIABLES,
    Behaviour,
    FakeMySQL,
    Peer,
    error,
    fake_mysql,
    galera,
    packet,
    says,
)
from tests.unit.polling import JumpingLoop, database_of, polling, polls_of

INTERVAL_SECONDS, SECONDS = 0.05, 10.0
SETTINGS = (
    "SET SESSION wait_timeout=32, sql_select_limit=18446744073709551615,"
    " sql_big_selects=1, character_set_results=NULL"
)
SYNC_WAIT_OFF, DIRTY_READS_OFF = ", wsrep_sync_wait=0", ", wsrep_dirty_reads=OFF"
UNKNOWN_VARIABLE = packet(1, error(1193))


def reads_in_sync(server: FakeMySQL) -> int:
    """Count the reads in sync that a server was asked for."""
    return server.statements.count(READ_IN_SYNC)


def is_in_sync(node: NodeState) -> bool:
    """Whether a read in sync has been answered, and none waits."""
    return node.sync_wait_seconds == 0


def test_a_refused_password_is_tried_again_at_once_when_its_file_changes(
    tmp_path: Path,
) -> None:
    file = tmp_path / "password"
    file.write_text("old")
    with fake_mysql(says(packet(0, error(1045)))) as server:
        database = replace(
            database_of(server), mysql_password=None, mysql_password_file=str(file)
        )
        with polls_of(database, login_interval=INTERVAL_SECONDS) as polls:
            polls.failure()
            # The pause after a first refusal. After the second, it is longer.
            polls.ahead_seconds = 1.0
            polls.failure()
            server.behaviour = galera()
            assert polls.failure().reason is Reason.ACCESS_DENIED
            file.write_text("new password")
            polls.state()


def failing(statement: str, number: int) -> Behaviour:
    """Behave like a Synced node, but answer what begins so with an error."""
    return galera(answers={statement: packet(1, error(number))})


@pytest.mark.parametrize(
    ("number", "statement", "reason"),
    [
        (1226, READ_IN_SYNC, "too-many-connections"),
        (1290, "SET SESSION wsrep_sync_wait=1", "error"),
        (1820, "SHOW STATUS", "access-denied"),
    ],
)
def test_what_a_new_session_cannot_do_is_its_account_s_fault_and_told_once(
    caplog: pytest.LogCaptureFixture, number: int, statement: str, reason: str
) -> None:
    with (
        polling(galera(), login_interval=INTERVAL_SECONDS) as (polls, server),
        caplog.at_level(logging.INFO),
    ):
        polls.poll_until(is_in_sync)
        server.behaviour = failing(statement, number)
        polls.poll_until(lambda _: polls.poller.logins.account_refused)
        for _ in range(8):
            state = polls.state()
            assert (state.rejects_logins, state.sync_refused) == (None, False)
            polls.wait(INTERVAL_SECONDS / 2)
        server.behaviour = galera()
        polls.poll_until(lambda _: polls.poller.logins.failure is None)
    failed, works = caplog.records
    assert (failed.getMessage(), vars(failed)["reason"]) == ("login failed", reason)
    assert f"(error {number})" in vars(failed)["detail"]
    assert works.getMessage() == "login works again"


def test_a_server_that_closes_each_session_that_reads_in_sync_is_told_and_visited_in_time() -> (
    None
):
    closes = galera(answers={READ_IN_SYNC: b""})
    with polling(closes, login_interval=0.5) as (polls, server):
        polls.poll_until(lambda _: polls.poller.logins.account_refused)
        before = server.connections
        for _ in range(7):
            assert polls.state().sync_wait_seconds is None
            polls.wait(0.1)
        assert 1 <= server.connections - before <= 2


def lacking(*variables: str) -> Behaviour:
    """Behave like a server without these variables of Galera's."""
    refused = {
        SETTINGS + rest: UNKNOWN_VARIABLE
        for rest in (SYNC_WAIT_OFF + DIRTY_READS_OFF, SYNC_WAIT_OFF)
        if any(name in rest for name in variables)
    }
    return galera(answers=refused)


def test_a_server_without_dirty_reads_reads_in_sync_all_the_same() -> None:
    with polling(lacking("wsrep_dirty_reads"), login_interval=INTERVAL_SECONDS) as (
        polls,
        server,
    ):
        polls.poll_until(is_in_sync)
        assert server.statements[:2] == [
            SETTINGS + SYNC_WAIT_OFF + DIRTY_READS_OFF,
            SETTINGS + SYNC_WAIT_OFF,
        ]


@pytest.mark.parametrize(
    ("behaviour", "login_interval"),
    [(galera(), 0), (lacking("wsrep_sync_wait"), INTERVAL_SECONDS)],
    ids=["interval", "server"],
)
def test_without_an_interval_or_the_variable_nothing_reads_in_sync_and_no_gap_is_looked_for(
    behaviour: Behaviour, login_interval: float
) -> None:
    with polling(behaviour, login_interval=login_interval) as (polls, server):
        for _ in range(3):
            assert not polls.state().returning
            polls.wait(INTERVAL_SECONDS)
            polls.ahead_seconds += 9
        assert any(SETTINGS in statement for statement in server.statements)
        assert reads_in_sync(server) == 0


@pytest.mark.parametrize("number", [1205, 1047])
def test_a_read_in_sync_that_the_server_does_not_wait_for_is_repeated_before_the_interval(
    number: int,
) -> None:
    with polling(failing(READ_IN_SYNC, number), login_interval=60) as (polls, server):
        polls.poll_until(lambda node: node.sync_refused)
        polls.ahead_seconds += 1.0
        polls.poll_until(lambda _: reads_in_sync(server) >= 2)
        assert polls.state().sync_wait_seconds is not None


def test_the_longest_gap_follows_from_the_provider_s_own_timeout() -> None:
    options = "base_dir = /x/; evs.suspect_timeout = PT1S; evs.use_aggregate = true;"
    variables = {**SYNCED_VARIABLES, "wsrep_provider_options": options}
    with polling(galera(variables=variables), login_interval=60) as (polls, server):
        polls.poll_until(is_in_sync)
        before = reads_in_sync(server)
        polls.ahead_seconds += 1.2
        polls.state()
        assert reads_in_sync(server) == before + 1


def test_a_server_that_returns_is_back_with_its_first_answer() -> None:
    with polling(galera(), login_interval=60) as (polls, server):
        polls.state()
        server.behaviour = says(packet(0, error(1053)))
        server.drop_connections()
        polls.failure()
        polls.ahead_seconds += 9
        server.behaviour = galera()
        assert not polls.state().returning


def hanging_at(statement: str) -> Behaviour:
    """Behave like a Synced node, but never answer one statement."""
    return galera(hangs_at=statement.__eq__)


@pytest.mark.parametrize(("number", "goes_on"), [(1040, True), (1045, False)])
def test_a_wait_ends_with_its_session_if_our_account_is_refused_but_not_if_the_server_is_full(
    number: int, *, goes_on: bool
) -> None:
    with polling(hanging_at(READ_IN_SYNC), login_interval=60) as (polls, server):
        polls.poll_until(lambda node: node.sync_wait_seconds)
        polls.ahead_seconds += 1.5
        server.behaviour = says(packet(0, error(number)))
        server.drop_connections()
        for _ in range(5):
            polls.failure()
        assert (polls.poller.sync_wait_seconds is not None) is goes_on


def test_a_login_that_falls_silent_is_given_up_soon() -> None:
    statement = SETTINGS + SYNC_WAIT_OFF + DIRTY_READS_OFF
    with polling(hanging_at(statement)) as (polls, server):
        assert polls.failure().reason is Reason.TIMEOUT
        server.behaviour = galera()
        wait_for("a session", lambda: isinstance(polls.poll(), NodeState))


def test_a_server_is_not_to_blame_for_the_sessions_of_another_process() -> None:
    with polling(galera(), login_interval=INTERVAL_SECONDS) as (polls, server):
        polls.poll_until(is_in_sync)
        sessions = polls.poller.sessions
        # One of them was left, and waits in sync.
        sessions.others, sessions.is_shared = IN_USE + 1, True
        polls.poll_until(lambda _: polls.poller.logins.failure)
        for _ in range(8):
            assert polls.state().rejects_logins is None
            polls.wait(INTERVAL_SECONDS)
        assert server.open == MOST_SESSIONS - sessions.others


@pytest.mark.parametrize("beside_successor", [False, True])
def test_a_server_that_does_not_notice_that_clients_leave_has_six_sessions_at_most(
    *, beside_successor: bool
) -> None:
    loop, over = JumpingLoop(), threading.Event()

    def greets_and_hangs(peer: Peer) -> None:
        peer.greet()
        over.wait(20)

    with polling(galera(), login_interval=2, new_loop=lambda: loop) as (polls, server):
        wait_for("a read in sync", lambda: is_in_sync(polls.state()))
        server.behaviour = greets_and_hangs
        sessions = polls.poller.sessions
        if beside_successor:
            sessions.others, sessions.is_shared = IN_USE, True
        for _ in range(900):
            loop.ahead_seconds += 1.0
            polls.ahead_seconds += 1.0
            assert polls.state().wsrep_local_state == 4
        sessions.is_shared = False
        assert polls.state().rejects_logins
        # A successor has the others.
        assert server.open == (3 if beside_successor else 6)
        over.set()
        server.behaviour = galera()

        def has_room() -> bool:
            loop.ahead_seconds += 1.0
            polls.ahead_seconds += 1.0
            polls.state()
            return not sessions.others

        wait_for("a login", has_room)
