"""Logins beside the polls, against mock peers; tests/cluster/test_logins.py has what a real server
shows.
"""

import logging
import threading
import time
from pathlib import Path

import pytest

from app.database.login import Database
from app.database.sync import HANG_SECONDS
from app.verdict.node_state import NodeState, PollFailure
from app.verdict.reason import Reason
from harness.waiting import wait_for
from tests.fake_mysql import (
    Behaviour,
    FakeMySQL,
    Peer,
    error,
    fake_mysql,
    galera,
    packet,
    says,
)
from tests.measured import within
from tests.unit.polling import polling, polls_of

LOGIN_SECONDS = 5.0
INTERVAL_SECONDS = 0.05


def rejects(node: NodeState) -> bool:
    """Return whether the server takes no logins."""
    return node.rejects_logins is not None


def test_a_new_session_takes_the_place_of_the_old_one_which_logs_out() -> None:
    ended: list[bytes] = []

    def behaviour(peer: Peer) -> None:
        galera()(peer)
        ended.append(b"quit")

    with polling(behaviour, login_interval=INTERVAL_SECONDS) as (polls, server):
        polls.poll_until(lambda _: server.connections >= 5)
        assert polls.poller.login_counts[None] >= 4
        assert polls.poller.login_failure is None
        # The session in use, and a login that is under way.
        wait_for("the sessions to be logged out", lambda: len(ended) >= server.connections - 2)
        assert server.most_open_connections <= 3


@pytest.mark.parametrize(
    ("then", "reason"),
    [
        (says(packet(0, error(1135))), Reason.REJECTS_LOGINS),
        (lambda _: None, Reason.CONNECTION_LOST),
    ],
    ids=["no thread left", "closed in the handshake"],
)
def test_two_logins_that_the_server_rejects_in_a_row_are_in_the_state_until_one_succeeds(
    then: Behaviour, reason: Reason
) -> None:
    # The interval is so long that a third login would come late.
    with polling(galera(), login_interval=0.5) as (polls, server):
        polls.state()
        server.behaviour = then
        polls.poll_until(rejects)
        assert polls.poller.login_failure is not None
        assert polls.poller.login_failure.reason is reason
        assert polls.poller.login_counts == {None: 1, reason: 2}
        assert not polls.poller.account_refused
        server.behaviour = galera()
        polls.poll_until(lambda node: not rejects(node))
        assert polls.poller.login_failure is None


@pytest.mark.parametrize("number", [1045, 1040])
def test_a_refused_account_costs_no_session_that_works(
    number: int, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        polling(galera(), login_interval=INTERVAL_SECONDS) as (polls, server),
        caplog.at_level(logging.INFO),
    ):
        polls.state()
        server.behaviour = says(packet(0, error(number)))
        polls.poll_until(lambda _: polls.poller.account_refused)
        assert polls.poller.login_failure is not None
        assert f"(error {number})" in polls.poller.login_failure.detail
        for _ in range(10):
            assert not rejects(polls.state())
        server.behaviour = galera()
        polls.poll_until(lambda _: not polls.poller.account_refused)
    assert [record.getMessage() for record in caplog.records] == [
        "login failed",
        "login works again",
    ]


def test_a_socket_file_that_is_gone_costs_no_session_that_works(tmp_path: Path) -> None:
    path = tmp_path / "mysqld.sock"
    database = Database(socket=str(path), username="someone")
    with (
        fake_mysql(galera(), str(path)),
        polls_of(database, login_interval=INTERVAL_SECONDS) as polls,
    ):
        polls.state()
        path.unlink()
        polls.poll_until(lambda _: polls.poller.account_refused)
        assert not rejects(polls.state())


def test_the_session_is_told_how_long_it_may_be_idle() -> None:
    with polling(galera()) as (polls, server):
        polls.state()
        assert server.statements[:2] == [
            "SET SESSION wait_timeout=32, sql_select_limit=18446744073709551615",
            "SET SESSION wsrep_sync_wait=0",
        ]


def reads_in_sync(server: FakeMySQL) -> int:
    """Count the reads in sync that a server was asked for."""
    return server.statements.count("SHOW STATUS LIKE 'wsrep_local_state'")


def test_the_session_that_was_replaced_reads_in_sync() -> None:
    with polling(galera(), login_interval=INTERVAL_SECONDS) as (polls, server):
        assert polls.state().sync_wait_seconds is None
        polls.poll_until(lambda node: node.sync_wait_seconds == 0)
        assert (
            server.statements.count("SET SESSION wsrep_sync_wait=15") == reads_in_sync(server) > 0
        )


def without_sync_wait(peer: Peer) -> None:
    """Behave like a server without Galera's variables."""
    peer.log_in()
    peer.answer_queries(answers={"SET SESSION wsrep_sync_wait=0": packet(1, error(1193))})


@pytest.mark.parametrize(
    ("behaviour", "login_interval"),
    [(galera(), 0), (without_sync_wait, INTERVAL_SECONDS)],
    ids=["interval", "server"],
)
def test_without_an_interval_or_the_variable_nothing_reads_in_sync(
    behaviour: Behaviour, login_interval: float
) -> None:
    with polling(behaviour, login_interval=login_interval) as (polls, server):
        for _ in range(10):
            polls.poll()
            polls.wait(INTERVAL_SECONDS)
        assert "SET SESSION wsrep_sync_wait=0" in server.statements
        assert reads_in_sync(server) == 0


@pytest.mark.parametrize(
    ("number", "refused"), [(1205, True), (1047, True), (1317, False), (1064, False)], ids=str
)
def test_a_read_in_sync_that_the_server_does_not_wait_for_is_refused_and_any_other_error_says_nothing(
    number: int, *, refused: bool
) -> None:
    def refuses(peer: Peer) -> None:
        peer.log_in()
        peer.answer_queries(
            answers={"SHOW STATUS LIKE 'wsrep_local_state'": packet(1, error(number))}
        )

    with polling(refuses, login_interval=INTERVAL_SECONDS) as (polls, server):
        polls.state()
        polls.poll_until(lambda _: reads_in_sync(server) >= 3)
        polls.wait(INTERVAL_SECONDS)
        state = polls.state()
        assert state.sync_refused is refused
        assert (state.sync_wait_seconds is not None) is refused


def test_after_a_read_in_sync_that_was_refused_the_next_one_does_not_wait_for_the_interval() -> (
    None
):
    def refuses(peer: Peer) -> None:
        peer.log_in()
        peer.answer_queries(
            answers={"SHOW STATUS LIKE 'wsrep_local_state'": packet(1, error(1205))}
        )

    with polling(refuses, login_interval=2.0) as (polls, server):
        polls.poll_until(lambda node: node.sync_refused)
        seconds = polls.poll_until(lambda _: reads_in_sync(server) >= 2)
        within("the next read in sync", seconds, 1.5)


def test_a_session_that_dies_at_its_first_poll_is_no_good_login_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def dies(peer: Peer) -> None:
        peer.log_in()
        peer.answer_queries(statements=2)

    with polling(galera(), login_interval=0.5) as (polls, server):
        polls.state()
        server.behaviour = dies
        polls.poll_until(rejects)
        assert polls.poller.login_counts == {None: 1, Reason.CONNECTION_LOST: 2}
        server.behaviour = galera()
        polls.poll_until(lambda node: not rejects(node))
    failed = vars(caplog.records[0])
    assert (failed["message"], failed["reason"]) == ("login failed", "connection-lost")


@pytest.mark.parametrize(
    "seconds",
    [HANG_SECONDS + 0.2, pytest.param(LOGIN_SECONDS + 1.5, marks=pytest.mark.long)],
    ids=["short", "long"],
)
@pytest.mark.parametrize("keeps_sessions", [True, False])
def test_after_a_hang_the_node_is_returning_until_a_read_in_sync_is_answered(
    seconds: float, *, keeps_sessions: bool
) -> None:
    works = threading.Event()
    works.set()

    class Gate(dict[str, bytes]):
        """No answers of its own, but those of the server come only while it works."""

        def __contains__(self, _statement: object) -> bool:
            works.wait(20)
            return False

    def hangs_at_times(peer: Peer) -> None:
        works.wait(20)
        peer.log_in()
        peer.answer_queries(answers=Gate())

    with polling(hangs_at_times, login_interval=60) as (polls, server):
        polls.state()
        works.clear()
        if not keeps_sessions:
            server.drop_connections()
        began_at = time.monotonic()
        while time.monotonic() - began_at < seconds:
            polls.failure()
        works.set()
        while isinstance(result := polls.poll(), PollFailure):
            assert result.reason is Reason.TIMEOUT
        assert result.returning
        within("the return", polls.poll_until(lambda node: not node.returning), 2.0)
