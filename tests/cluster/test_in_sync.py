"""Reads in sync on real nodes: what no status variable shows."""

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from threading import Event

import pytest

from harness.galera import ACCOUNT, DEMO, Node
from harness.stack import Stack
from harness.waiting import meanwhile, wait_for
from tests.cluster.lone import check_undisturbed, reasons_of, wait_until_shown
from tests.http.test_metrics import scrape, wait_until_in_sync
from tests.measured import (
    STALLED,
    DisturbedError,
    done_within,
    for_seconds,
    let_pass,
    within,
)

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
SHARED_SECONDS = 7.0
WRITERS = 8
"""As many wait at a time, each for two seconds."""
BESIDE_BYTES = 6 << 20
MOST_SESSIONS = 3


def writing(stack: Stack) -> AbstractContextManager[None]:
    """Have new clients write to the first node while the block runs, whoever waits."""
    return meanwhile(lambda _: stack.nodes[0].commits(), 0.1, threads=WRITERS)


@contextmanager
def much_beside(node: Node) -> Iterator[None]:
    """Have clients scan a table with temporary tables, and others fill the node's disk."""
    file = node.data.with_suffix(".beside")

    def read(_: Event) -> None:
        node.sql(f"SELECT SUM(seq) FROM {DEMO}.seq_1_to_200000 GROUP BY seq % 1000")  # noqa: S608

    def append(_: Event) -> None:
        with file.open("ab") as opened:
            opened.write(bytes(BESIDE_BYTES))

    with meanwhile(read, 0.5), meanwhile(append, 0.5):
        yield
    file.unlink()


def test_a_node_that_stands_still_alone_is_out_in_one_change_and_no_other(
    stack: Stack,
) -> None:
    node, service = stack.nodes[1], stack.services[1]
    wait_until_in_sync(service)
    before = [len(reasons_of(one)) for one in stack.services]
    with (
        node.holding(f"LOCK TABLES {DEMO}.writes WRITE"),
        writing(stack),
        much_beside(node),
    ):
        with done_within(
            "a node that stands still is stalled", STALL_SECONDS + BUSY_SECONDS
        ):
            reply = service.wait_for_verdict(503, "stalled")
        assert "the node alone has paused its group; MAX_STALL=2 s" in reply.body
        reply = wait_until_shown(service, "503 blocked", BLOCKED_SECONDS, target=STRICT)
        assert "a read in sync waits longer; MAX_SYNC_WAIT=1 s" in reply.body
        logins = scrape(service)['logins_total{outcome="accepted"}']
        # The read that waits stops no login, and no second one begins.
        wait_for(
            "more logins",
            lambda: scrape(service)['logins_total{outcome="accepted"}'] >= logins + 2,
        )
        assert (node.sessions_of(ACCOUNT) or 0) <= MOST_SESSIONS
        assert scrape(service)["sync_wait_seconds"] > 2 * LOGIN_SECONDS - BUSY_SECONDS
        assert service.get().reason == "stalled"
        assert service.get(LENIENT).reason == "synced"
    service.wait_for_verdict(200, "synced")
    service.wait_for_verdict(200, "synced", target=STRICT)
    said = [
        reasons_of(one)[count:]
        for one, count in zip(stack.services, before, strict=True)
    ]
    if STALLED & {reason for reasons in said for reason in reasons}:
        raise DisturbedError(said)
    assert said == [[], ["stalled", "synced"], []]
    assert "WARNING not in sync" in service.log.read_text()
    service.wait_for_log("INFO in sync again")


@pytest.mark.long
def test_a_successor_knows_that_the_node_stands_still(stack: Stack) -> None:
    node, service = stack.nodes[1], stack.services[1]
    wait_until_in_sync(service)
    old = service.process.pid

    def is_replaced() -> bool:
        assert service.get().status == 503
        return service.process.pid != old

    with node.holding(f"LOCK TABLES {DEMO}.writes WRITE"), writing(stack):
        service.wait_for_verdict(503, "stalled")
        service.process.send(signal.SIGHUP)
        wait_for("a successor", is_replaced)
        for _ in for_seconds(3):
            assert service.get().status == 503
    service.wait_for_verdict(200, "synced")


@contextmanager
def update_in_total_order(stack: Stack) -> Iterator[None]:
    """Have each node run an UPDATE of a MyISAM table, which it counts as no DDL."""
    node = stack.nodes[0]
    with (
        node.setting("wsrep_mode", "REPLICATE_MYISAM", "''"),
        ThreadPoolExecutor(1) as pool,
    ):
        node.sql(f"CREATE OR REPLACE TABLE {DEMO}.files (n INT) ENGINE=MyISAM")
        node.sql(f"INSERT INTO {DEMO}.files SELECT seq FROM {DEMO}.seq_1_to_80")  # noqa: S608
        update = pool.submit(node.sql, f"UPDATE {DEMO}.files SET n=n+SLEEP(0.1)")  # noqa: S608
        yield
    update.result()


SHARED: dict[str, Callable[[Stack], AbstractContextManager[None]]] = {
    "DDL": lambda stack: stack.cluster.altering(stack.nodes[0]),
    "MyISAM in total order": update_in_total_order,
}


@pytest.mark.parametrize("cause", SHARED)
def test_a_cause_that_all_share_takes_no_two_out_though_all_write_to_one(
    stack: Stack, cause: str
) -> None:
    for service in stack.services:
        wait_until_in_sync(service)
    with writing(stack):
        let_pass(BUSY_SECONDS)
        with SHARED[cause](stack):
            waited = set()
            for _ in for_seconds(SHARED_SECONDS):
                replies = [service.get() for service in stack.services]
                reasons = [reply.reason for reply in replies]
                assert reasons.count("stalled") <= 1, reasons
                waited |= {
                    service.status()["node"].get("stall") for service in stack.services
                }
            assert "group" in waited
    stack.wait_until_whole()


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
