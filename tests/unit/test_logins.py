"""Logins beside the polls, on mock peers.

tests/cluster/test_logins.py has what a real server shows, and tests/simulation what faults do.
"""

import logging

import pytest

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


@pytest.mark.parametrize(
    ("number", "reason"), [(1045, "access-denied"), (1040, "too-many-connections")]
)
def test_a_refused_account_costs_no_session_that_works_and_is_logged(
    caplog: pytest.LogCaptureFixture, number: int, reason: str
) -> None:
    with (
        polling(galera(), login_interval=INTERVAL_SECONDS) as (polls, server),
        caplog.at_level(logging.INFO),
    ):
        polls.poll_until(lambda node: node.sync_wait_seconds == 0)
        server.behaviour = says(packet(0, error(number)))
        polls.poll_until(lambda _: polls.poller.logins.account_refused)
        for _ in range(10):
            assert polls.state().rejects_logins is None
        # Nothing reads in sync any more.
        assert polls.state().sync_wait_seconds is None
        server.behaviour = galera()
        polls.poll_until(lambda _: not polls.poller.logins.account_refused)
    failed, works = caplog.records
    assert (failed.getMessage(), vars(failed)["reason"]) == ("login failed", reason)
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
        seconds = polls.poll_until(lambda node: node.sync_refused)
        within("the first read in sync", seconds, 1.0)
        seconds = polls.poll_until(lambda _: reads_in_sync(server) >= 2)
        within("the next read in sync", seconds, 1.5)
        assert polls.state().sync_wait_seconds is not None
