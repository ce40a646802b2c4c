"""Reads in sync on real nodes: what no status variable shows."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from harness.galera import ACCOUNT, Node
from harness.service import Service
from harness.stack import Stack
from harness.waiting import NotInTimeError, wait_for
from tests.cluster.lone import check_undisturbed, reasons_of, wait_until_shown
from tests.http.test_metrics import scrape, wait_until_in_sync
from tests.measured import DisturbedError, done_within, let_pass, within

STRICT, LENIENT = "/?max_sync_wait=1&max_stall=0", "/?max_stall=0"
LOGIN_SECONDS, WAIT_SECONDS, POLL_SECONDS = 2.0, 1.0, 0.25
BUSY_SECONDS = 1.0
BLOCKED_SECONDS = LOGIN_SECONDS + WAIT_SECONDS + POLL_SECONDS + BUSY_SECONDS
# The poll interval and the deadline, and what a busy machine adds.
FRESH_SECONDS = 0.25 + 0.5
TIMEOUT_SECONDS = 0.25 + 0.8 + 0.6
HANG_SECONDS = 5.0
EXCLUDED_SECONDS = 8.0
"""After so long, the group goes on without a node."""
STALL_SECONDS = 3.0
COMPARED = timedelta(seconds=7)
MOST_SESSIONS = 3


@contextmanager
def stuck_applier(stack: Stack, node: Node) -> Iterator[None]:
    """Have a node apply nothing, and say Synced, while another one writes."""
    with node.stuck():
        # Its applier has taken the first one: only the others are in the queue.
        for _ in range(3):
            assert stack.nodes[0].commits()
        yield


def wait_until_compared(service: Service) -> None:
    """Wait until a service has run for so long that it could tell DDL from a lock."""
    started = datetime.fromisoformat(service.status()["changes"][0]["at"])
    wait_for(
        "the service to run for a while",
        lambda: datetime.now(UTC) - started > COMPARED,
    )


def test_a_node_that_stands_still_alone_is_out_in_time_and_no_other(
    stack: Stack,
) -> None:
    node = stack.nodes[1]
    service = stack.services[1]
    wait_until_in_sync(service)
    wait_until_compared(service)
    with stuck_applier(stack, node):
        with done_within(
            "a node that stands still is stalled", STALL_SECONDS + BUSY_SECONDS
        ):
            reply = wait_until_shown(
                service, "503 blocked", BLOCKED_SECONDS, target=STRICT
            )
            assert "a read in sync waits longer; MAX_SYNC_WAIT=1 s" in reply.body
            try:
                reply = service.wait_for_verdict(503, "stalled")
            except NotInTimeError as fault:
                # DDL of a test right before excuses a node for the whole wait.
                raise DisturbedError(fault) from None
        assert (
            "neither applies them nor does anything else; MAX_STALL=2 s" in reply.body
        )
        logins = scrape(service)['logins_total{outcome="accepted"}']
        # The read that waits stops no login, and no second one begins.
        wait_for(
            "more logins",
            lambda: scrape(service)['logins_total{outcome="accepted"}'] >= logins + 2,
        )
        assert (node.sessions_of(ACCOUNT) or 0) <= MOST_SESSIONS
        assert scrape(service)["sync_wait_seconds"] > 2 * LOGIN_SECONDS - BUSY_SECONDS
        # What others write to the same file system may hide it for a moment.
        service.wait_for_verdict(503, "stalled")
        assert service.get(LENIENT).reason == "synced"
        for other in (stack.services[0], stack.services[2]):
            check_undisturbed(other, "synced")
    service.wait_for_verdict(200, "synced")
    service.wait_for_verdict(200, "synced", target=STRICT)
    assert "WARNING not in sync" in service.log.read_text()
    service.wait_for_log("INFO in sync again")


def test_a_node_that_was_paused_with_the_service_returns_with_a_read_in_sync(
    stack: Stack,
) -> None:
    node, service = stack.nodes[1], stack.services[1]
    wait_until_in_sync(service)
    with node.process.paused(), service.process.paused():
        let_pass(EXCLUDED_SECONDS)
    if service.get().status == 200:
        # Then it is one on which a client commits.
        assert node.commits()
    stack.wait_until_whole()


def test_an_alter_that_holds_up_all_commits_blocks_where_a_health_check_asks_for_that(
    stack: Stack,
) -> None:
    service = stack.services[1]
    for one in stack.services:
        wait_until_compared(one)
    with stack.cluster.altering(stack.nodes[0]):
        began_at = time.monotonic()
        wait_for("the commits to wait", lambda: not stack.nodes[1].commits())
        service.wait_for_verdict(503, "blocked", target=STRICT)
        while time.monotonic() < began_at + 2 * STALL_SECONDS:
            for one in stack.services:
                check_undisturbed(one, "synced")
        stalls = [one.status()["node"]["stall"] for one in stack.services]
        assert set(stalls) <= {"group", None}
        assert "group" in stalls
        assert "the whole group waits" in service.log.read_text()
    stack.wait_until_whole()


def test_a_hung_node_is_a_timeout_and_available_again_when_it_has_answered_a_read_in_sync(
    stack: Stack,
) -> None:
    node, service = stack.nodes[1], stack.services[1]
    before = reasons_of(service)
    with node.process.paused():
        hung_at = last_200_at = time.monotonic()
        while (reply := service.get()).status == 200:
            last_200_at = time.monotonic()
        within("a hung server is no longer 200", last_200_at - hung_at, FRESH_SECONDS)
        within(
            "a hung server is a timeout", time.monotonic() - hung_at, TIMEOUT_SECONDS
        )
        assert reply.reason == "timeout"
        assert service.get("/livez").status == 200
        wait_for("a long hang", lambda: time.monotonic() - hung_at > HANG_SECONDS)
    stack.wait_until_whole()
    reasons = reasons_of(service)[len(before) :]
    assert reasons[:2] == ["timeout", "blocked"]
    assert "synced" not in reasons[:-1]
