"""Logins beside the polls, on mock peers.

tests/cluster/test_logins.py has what a real server shows, and tests/simulation what faults do.
"""

import logging
import threading
import time

import pytest

from app.database.sync import HANG_SECONDS
from app.verdict.node_state import NodeState, PollFailure
from app.verdict.reason import Reason
from harness.waiting import wait_for
from tests.fake_mysql import (
    Behaviour,
    FakeMySQL,
    Peer,
    error,
    galera,
    packet,
    says,
)
from tests.measured import within
from tests.unit.polling import polling

INTERVAL_SECONDS = 0.05
READ_IN_SYNC = "SHOW STATUS LIKE 'wsrep_local_state'"


def rejects(node: NodeState) -> bool:
    """Return whether the server takes no logins."""
    return node.rejects_logins is not None


def test_a_new_session_takes_the_place_of_the_old_one_which_logs_out() -> None:
    ended: list[Peer] = []

    def behaviour(peer: Peer) -> None:
        galera()(peer)
        ended.append(peer)

    with polling(behaviour, login_interval=INTERVAL_SECONDS) as (polls, server):
        polls.poll_until(lambda _: server.connections >= 5)
        assert polls.poller.login_counts[None] >= 4
        # The session in use, and a login that is under way.
        wait_for("the sessions to be logged out", lambda: len(ended) >= server.connections - 2)
        assert server.most_open_connections <= 3


def test_two_logins_rejected_in_a_row_are_in_the_state_until_one_succeeds() -> None:
    # The interval is so long that a third login would come late.
    with polling(galera(), login_interval=0.5) as (polls, server):
        polls.state()
        server.behaviour = lambda _: None
        polls.poll_until(rejects)
        assert polls.poller.logins.failure is not None
        assert polls.poller.logins.failure.reason is Reason.CONNECTION_LOST
        assert polls.poller.login_counts == {None: 1, Reason.CONNECTION_LOST: 2}
        server.behaviour = galera()
        polls.poll_until(lambda node: not rejects(node))
        assert polls.poller.logins.failure is None


def test_a_refused_account_costs_no_session_that_works_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        polling(galera(), login_interval=INTERVAL_SECONDS) as (polls, server),
        caplog.at_level(logging.INFO),
    ):
        polls.state()
        server.behaviour = says(packet(0, error(1045)))
        polls.poll_until(lambda _: polls.poller.logins.account_refused)
        for _ in range(10):
            assert not rejects(polls.state())
        server.behaviour = galera()
        polls.poll_until(lambda _: not polls.poller.logins.account_refused)
    failed, works = caplog.records
    assert (failed.getMessage(), vars(failed)["reason"]) == ("login failed", "access-denied")
    assert works.getMessage() == "login works again"


def test_the_session_is_told_how_long_it_may_be_idle() -> None:
    with polling(galera()) as (polls, server):
        polls.state()
        assert server.statements[:2] == [
            "SET SESSION wait_timeout=32, sql_select_limit=18446744073709551615",
            "SET SESSION wsrep_sync_wait=0",
        ]


def reads_in_sync(server: FakeMySQL) -> int:
    """Count the reads in sync that a server was asked for."""
    return server.statements.count(READ_IN_SYNC)


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


def answering_reads_in_sync_with(number: int) -> Behaviour:
    """Behave like a Synced node, but answer each read in sync with an error."""

    def behaviour(peer: Peer) -> None:
        peer.log_in()
        peer.answer_queries(answers={READ_IN_SYNC: packet(1, error(number))})

    return behaviour


@pytest.mark.parametrize("number", [1205, 1047])
def test_a_read_in_sync_that_the_server_does_not_wait_for_is_repeated_before_the_interval(
    number: int,
) -> None:
    with polling(answering_reads_in_sync_with(number), login_interval=2.0) as (polls, server):
        polls.poll_until(lambda node: node.sync_refused)
        seconds = polls.poll_until(lambda _: reads_in_sync(server) >= 2)
        within("the next read in sync", seconds, 1.5)
        assert polls.state().sync_wait_seconds is not None


def test_any_other_error_of_a_read_in_sync_says_nothing() -> None:
    behaviour = answering_reads_in_sync_with(1317)
    with polling(behaviour, login_interval=INTERVAL_SECONDS) as (polls, server):
        polls.poll_until(lambda _: reads_in_sync(server) >= 3)
        polls.wait(INTERVAL_SECONDS)
        state = polls.state()
        assert not state.sync_refused
        assert state.sync_wait_seconds is None


def test_after_a_hang_the_node_is_returning_until_a_read_in_sync_is_answered() -> None:
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

    with polling(hangs_at_times, login_interval=60) as (polls, _):
        polls.state()
        works.clear()
        began_at = time.monotonic()
        while time.monotonic() - began_at < HANG_SECONDS + 0.2:
            polls.failure()
        works.set()
        while isinstance(result := polls.poll(), PollFailure):
            assert result.reason is Reason.TIMEOUT
        assert result.returning
        within("the return", polls.poll_until(lambda node: not node.returning), 2.0)
