"""A 200 means that a client can log in: faults that an open session does not see."""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pymysql
import pytest

from app.database.session import Session
from app.settings.database import Database
from harness.galera import ACCOUNT, PASSWORD, Installation, Node
from harness.ports import Ports
from harness.service import Service, service_beside
from harness.waiting import wait_for
from tests.cluster.lone import lone_node, reasons_of, wait_until_shown, watching
from tests.conftest import Services
from tests.http.test_metrics import scrape, wait_until_in_sync
from tests.measured import for_seconds

BUSY_SECONDS = 1.0
REJECTED_SECONDS = BACK_SECONDS = 3.0 + BUSY_SECONDS
MOST_SESSIONS = 6


@pytest.fixture(scope="module")
def node(installation: Installation) -> Iterator[Node]:
    """Run a cluster of one for this file."""
    with lone_node(installation, "logins") as node:
        yield node


@pytest.fixture
def service(node: Node, ports: Ports, tmp_path: Path) -> Iterator[Service]:
    """Run the service beside it."""
    with watching(node, tmp_path, ports) as service:
        yield service


def client_error(node: Node) -> int:
    """Log in and ask as a client does; give the number of the error, 0 for none."""
    try:
        with (
            node.connect_as_client(seconds=2) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SELECT 1")
    except pymysql.MySQLError as fault:
        return int(fault.args[0]) or -1
    return 0


@pytest.mark.parametrize(
    ("fault", "number"),
    [
        (Node.without_threads, 1135),
        (lambda node: node.setting("init_connect", "'no statement'", "''"), 1184),
    ],
    ids=["no thread can start", "init_connect fails"],
)
def test_a_server_that_rejects_logins_is_unavailable_in_time(
    node: Node,
    service: Service,
    fault: Callable[[Node], AbstractContextManager[None]],
    number: int,
) -> None:
    with fault(node):
        wait_for("clients to fail", lambda: client_error(node), seconds=5)
        reply = wait_until_shown(service, "503 rejects-logins", REJECTED_SECONDS)
        assert f"(error {number})" in reply.body
        # The node itself is still read.
        assert service.status()["node"]["wsrep_local_state"] == 4
    wait_until_shown(service, "200 synced", BACK_SECONDS)


def test_a_password_that_expires_or_is_rotated_takes_no_node_out_is_told_and_needs_no_restart(
    node: Node, services: Services, tmp_path: Path
) -> None:
    account = "'expires'@'localhost'"
    node.sql(f"CREATE OR REPLACE USER {account} IDENTIFIED BY 'first'")
    file = tmp_path / "password"
    file.write_text("first\n")
    service = services.start(
        MYSQL_SOCKET=str(node.socket),
        MYSQL_USERNAME="expires",
        MYSQL_PASSWORD_FILE=str(file),
        MAX_SYNC_WAIT="1",
    )
    service.wait_for_verdict(200, "synced")
    wait_until_in_sync(service)
    before = reasons_of(service)
    # The session that is open goes on. The second statement does not mend the first.
    node.sql(f"ALTER USER {account} PASSWORD EXPIRE")
    node.sql(f"ALTER USER {account} PASSWORD EXPIRE NEVER")
    assert "error 1820" in wait_for_login(service, "access-denied")
    assert scrape(service)["login_refused"] == 1
    node.sql(f"ALTER USER {account} IDENTIFIED BY 'second'")
    file.write_text("second\n")
    wait_for_login(service, None)
    assert reasons_of(service) == before


def wait_for_login(service: Service, reason: str | None) -> str:
    """Wait until the latest login ended so for the second time; return the detail."""
    outcome = reason or "accepted"
    name = f'logins_total{{outcome="{outcome}"}}'
    before = scrape(service).get(name, 0)
    wait_for(
        f"a login that ends in {outcome}",
        lambda: scrape(service).get(name, 0) > before + 1,
        seconds=15,
    )
    failure: dict[str, str] | None = service.status()["login_failure"]
    assert (failure and failure["reason"]) == reason
    return failure["detail"] if failure else ""


@pytest.mark.long
def test_a_server_that_hangs_keeps_few_sessions_whatever_reloads_and_is_back_at_once(
    node: Node, service: Service
) -> None:
    with node.with_hanging_status():
        service.wait_for_verdict(503, "timeout")
        for _ in for_seconds(120.0):
            service.process.send(signal.SIGHUP)
            time.sleep(5.0)
            assert 1 <= (node.sessions_of(ACCOUNT) or 0) <= MOST_SESSIONS
            assert service.get().reason == "timeout"
    wait_until_shown(service, "200 synced", 1.0 + BUSY_SECONDS)


def test_init_connect_cannot_hide_what_a_node_says(
    node: Node, ports: Ports, tmp_path: Path
) -> None:
    hides = "SET character_set_results=utf16, sql_big_selects=0, max_join_size=1"
    with (
        node.setting("init_connect", f"'{hides}'", "''"),
        service_beside(node, tmp_path, ports) as service,
    ):
        service.wait_for_verdict(200, "synced")


def test_a_server_without_connections_left_takes_no_node_out(
    node: Node, service: Service
) -> None:
    before = reasons_of(service)
    with node.full():
        assert client_error(node) == 1040
        wait_for_login(service, "too-many-connections")
        service.wait_for_verdict(503, "full", target="/?available_when_full=0")
    wait_for_login(service, None)
    assert reasons_of(service) == before


def test_an_account_with_usage_may_set_what_a_session_needs(node: Node) -> None:
    async def settings() -> object:
        session = await Session(
            Database(
                mysql_socket=str(node.socket),
                mysql_username=ACCOUNT,
                mysql_password=PASSWORD,
            ).target()
        ).open()
        await session.prepare(32, tries_read=True)
        (row,) = await session.answers(
            "SELECT @@wait_timeout, @@sql_select_limit, @@wsrep_sync_wait, @@wsrep_dirty_reads"
        )
        await session.quit()
        return row

    with (
        node.setting("wsrep_sync_wait", "15", "0"),
        node.setting("sql_select_limit", "0", "DEFAULT"),
        node.setting("wsrep_dirty_reads", "ON", "OFF"),
    ):
        assert asyncio.run(settings()) == (
            (b"32", b"18446744073709551615", b"0", b"0"),
        )


def test_a_server_that_keeps_ordinary_accounts_out_drains(
    installation: Installation, ports: Ports, tmp_path: Path
) -> None:
    # A server that started with 0 takes no other value.
    with (
        lone_node(installation, "kept-out", "--max-user-connections=100") as node,
        watching(node, tmp_path, ports, CLUSTERCHECK_DRAIN_STATUS="404") as service,
    ):
        with node.setting("max_user_connections", "-1", "100"):
            reply = service.wait_for_verdict(404, "maintenance")
            assert "max_user_connections is -1" in reply.body
            assert not node.commits()
        service.wait_for_verdict(200, "synced")
        assert node.commits()
