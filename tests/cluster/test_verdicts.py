"""What clustercheckd says of real Galera nodes in every state they can be brought into."""

import asyncio
import signal
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict

from app.database.session import Session
from app.settings.database import Database
from app.verdict.node_state import SYSTEM_VARIABLES, NodeState, PollFailure
from harness.galera import ACCOUNT, PASSWORD, Node
from harness.ports import LOOPBACK
from harness.service import Service
from harness.stack import Stack
from harness.waiting import wait_for
from tests import real_rows
from tests.http.test_metrics import wait_until_in_sync
from tests.http.test_process import run
from tests.http.test_requests import REQUESTS, check_answer
from tests.measured import done_within

# A login every 2 s reads in sync, which may wait for 1 s, and a busy machine adds another.
CUT_OFF_SECONDS = 2.0 + 1.0 + 0.25 + 1.0

# Each node has its own values for these: only whether the server sent one is compared.
OWN = """
    version wsrep_node_name wsrep_provider wsrep_cluster_conf_id wsrep_cluster_state_uuid
    wsrep_local_index wsrep_incoming_addresses wsrep_last_committed wsrep_local_recv_queue
    wsrep_flow_control_active wsrep_flow_control_sent wsrep_flow_control_recv threads_connected
    uptime
"""


def assert_node_is(service: Service, rows: Mapping[str, str]) -> None:
    """Check that what the service has read is what the unit tests decide on."""
    assert comparable(asdict(real_rows.parsed(rows))) == comparable(
        service.status()["node"]
    )


def comparable(node: Mapping[str, object]) -> dict[str, object]:
    """Return what a node answered, without the values that are its own."""
    return {
        name: value is not None if name in OWN.split() else value
        for name, value in node.items()
        # MariaDB has it from 11.1 on. The others are no variables.
        if name != "transaction_read_only" and not name.startswith(("sync_", "stall"))
    }


def assert_select_is_like_show(node: Node) -> None:
    """Check that a node answers the SELECT, which it must not refuse, as it does the SHOW."""
    check_select_is_like_show(
        Database(
            mysql_socket=str(node.socket),
            mysql_username=ACCOUNT,
            mysql_password=PASSWORD,
        )
    )


def check_select_is_like_show(database: Database) -> set[str]:
    """Check it of any server. Return the system variables that it has."""

    async def two_readings() -> list[NodeState | PollFailure]:
        session = await Session(database.target()).open()
        readings = [await session.read() for _ in range(2)]
        # A SELECT that is refused would be followed by another SHOW.
        (rows,) = await session.answers("SHOW STATUS LIKE 'Com_show_variables'")
        await session.quit()
        assert rows == ((b"Com_show_variables", b"1"),)
        return readings

    shown, selected = (
        {name: getattr(reading, name) for name in SYSTEM_VARIABLES}
        for reading in asyncio.run(two_readings())
    )
    assert shown == selected
    assert shown["version"]
    return {name for name, value in shown.items() if value is not None}


def test_a_synced_node_is_available_to_every_form_of_health_check(stack: Stack) -> None:
    service = stack.services[0]
    for request in REQUESTS.values():
        answer = service.send(request)
        check_answer(answer, b"HTTP/1.1 200 OK", b"synced")
        assert answer.endswith(b"\r\n\r\nPercona XtraDB Cluster Node is synced.\r\n")
    assert_node_is(service, real_rows.SYNCED)
    assert_select_is_like_show(stack.nodes[0])


def test_a_desynced_node_is_unavailable_unless_donors_are_allowed(stack: Stack) -> None:
    node, service = stack.nodes[1], stack.services[1]
    with node.setting("wsrep_desync", "ON", "OFF"):
        service.wait_for_verdict(503, "desynced")
        assert_node_is(service, real_rows.DESYNCED)
        service.wait_for_verdict(200, "donor", target="/?available_when_donor=1")
    service.wait_for_verdict(200, "synced")


def test_the_donor_of_a_full_state_transfer_is_unavailable_unless_donors_are_allowed(
    stack: Stack,
) -> None:
    # Galera 4 only logs this variable: a donor that has it serves its clients.
    rejecting = [
        node.setting("wsrep_sst_donor_rejects_queries", "ON", "OFF")
        for node in stack.nodes[:2]
    ]
    with rejecting[0], rejecting[1], stack.cluster.full_transfer_to(stack.nodes[2]):
        donor = wait_for(
            "one of the other nodes to be the donor",
            lambda: next(
                (b for b in stack.backends[:2] if b.service.get().reason == "donor"),
                None,
            ),
            # A busy machine starts a server slowly.
            seconds=120.0,
        )
        donor.service.wait_for_verdict(503, "donor")
        assert_node_is(donor.service, real_rows.DONOR)
        donor.service.wait_for_verdict(200, "donor", target="/?available_when_donor=1")
        with donor.node.connect_as_client() as client, client.cursor() as cursor:
            assert cursor.execute("SELECT COUNT(*) FROM writes") == 1
        assert (
            "Rejecting client queries for the duration of SST"
            in donor.node.log.read_text(errors="replace")
        )
        donor.service.wait_for_verdict(503, "donor")
        # A joiner in a physical transfer does not even listen.
        stack.services[2].wait_for_verdict(503, "unreachable")
    stack.wait_until_whole()
    # It is joined for a moment, which a poll may fall into.
    reasons = [
        change["reason"]
        for change in donor.service.status()["changes"]
        if change["reason"] != "joined"
    ]
    assert reasons[-2:] == ["donor", "synced"]


def test_an_isolated_node_is_blocked_then_non_primary_and_joining_until_it_has_caught_up(
    stack: Stack,
) -> None:
    node, service = stack.nodes[2], stack.services[2]
    with ExitStack() as holding:
        with node.setting(
            "wsrep_provider_options", "'gmcast.isolate=1'", "'gmcast.isolate=0'"
        ):
            with done_within("a node that is cut off is blocked", CUT_OFF_SECONDS):
                wait_for(
                    "a 503", lambda: service.get("/?max_sync_wait=1").status == 503
                )
            service.wait_for_verdict(503, "non-primary")
            assert_node_is(service, real_rows.NON_PRIMARY)
            assert_select_is_like_show(node)
            # What to compare before a bootstrap is shown, and only there.
            addresses = [f"{LOOPBACK}:{other.port}" for other in stack.services]
            told = [
                line
                for line in run("status", *addresses).stdout.splitlines()
                if "last_c" in line
            ]
            committed = node.status("wsrep_last_committed")
            assert told == [f"{addresses[2]}: wsrep_last_committed is {committed}"]
            # The others are the majority.
            assert [other.get().status for other in stack.services[:2]] == [200, 200]
            wait_for(
                "the others to commit what the node will miss", stack.nodes[0].commits
            )
            # This holds up the incremental transfer.
            holding.enter_context(node.stuck())
        service.wait_for_verdict(503, "joining")
    stack.wait_until_whole()


def test_a_node_that_rejects_queries_is_unavailable_though_all_else_looks_healthy(
    stack: Stack,
) -> None:
    node, service = stack.nodes[0], stack.services[0]
    with node.setting("wsrep_reject_queries", "ALL", "NONE"):
        service.wait_for_verdict(503, "rejects-queries")
        assert [node.status(name) for name in ("wsrep_local_state", "wsrep_ready")] == [
            "4",
            "ON",
        ]
        assert_node_is(service, real_rows.REJECTING)
        assert_select_is_like_show(node)
    # It kills our session with all others, which hides no reason.
    with node.setting("wsrep_reject_queries", "ALL_KILL", "NONE"):
        service.wait_for_verdict(503, "rejects-queries")
    service.wait_for_verdict(200, "synced")


def test_read_only_counts_only_where_it_is_asked_for(stack: Stack) -> None:
    node, service = stack.nodes[0], stack.services[0]
    strict = "/?available_when_readonly=0"
    service.wait_for_verdict(200, "synced", target=strict)
    for variable in ("tx_read_only", "read_only"):
        with node.setting(variable, "ON", "OFF"):
            service.wait_for_verdict(503, "read-only", target=strict)
            assert service.get().status == 200
        service.wait_for_verdict(200, "synced", target=strict)


def test_read_only_nodes_are_told_by_status_while_a_load_balancer_asks_for_a_writer(
    stack: Stack,
) -> None:
    addresses = [f"{LOOPBACK}:{service.port}" for service in stack.services]
    told = "cluster: nobody: no node that answers says yes to /?available_when_readonly=0\n"
    with stack.on_each_node(lambda node: node.setting("read_only", "ON", "OFF")):
        # HAProxy asks for the writer each second.
        wait_for("the word", lambda: told in run("status", *addresses).stdout)
        done = run("status", *addresses)
    assert done.returncode == 3
    rows = done.stdout.splitlines()[1:4]
    assert [row.split()[2:4] for row in rows] == 3 * [["available", "synced"]]
    for where in addresses:
        answered = f"{where}: NOT available for /?available_when_readonly=0"
        assert f"{answered}: read-only: read_only is ON" in done.stdout
    wait_for("one cluster", lambda: run("status", *addresses).returncode == 0)


def test_a_delete_of_a_row_that_one_node_lacks_changes_no_verdict(stack: Stack) -> None:
    first, second = stack.nodes[:2]
    first.sql("CREATE TABLE demo.lacking (id INT PRIMARY KEY)")
    first.sql("INSERT INTO demo.lacking VALUES (1), (2)")
    wait_for("both rows", lambda: len(second.sql("SELECT * FROM demo.lacking")) == 2)
    with second.connect() as session, session.cursor() as cursor:
        cursor.execute("SET SESSION wsrep_on=OFF")
        cursor.execute("DELETE FROM demo.lacking")
    assert first.sql("SELECT @@wsrep_ignore_apply_errors") == ((7,),)
    first.sql("DELETE FROM demo.lacking WHERE id = 1")
    in_sync = "SET STATEMENT wsrep_sync_wait=1 FOR SELECT * FROM demo.lacking"
    assert (len(first.sql(in_sync)), len(second.sql(in_sync))) == (1, 0)
    for service in stack.services:
        service.wait_for_verdict(200, "synced")
    first.sql("DROP TABLE demo.lacking")


def test_the_node_is_told_goodbye(stack: Stack) -> None:
    node = stack.nodes[0]
    # The server's log names the account of a client that left without a word; its counter would
    # count everybody's.
    for account, number in (("polite", signal.SIGTERM), ("rude", signal.SIGKILL)):
        node.sql(f"CREATE OR REPLACE USER '{account}'@'localhost'")
        settings = {
            "MYSQL_USERNAME": account,
            "MYSQL_PASSWORD": "",
            "CLUSTERCHECK_DEADLINE": "5",
        }
        service = stack.service(node, **settings)
        service.wait_for_verdict(200, "synced")
        # A session that waits for an answer at the stop is cut.
        wait_until_in_sync(service)
        service.process.stop(number)
    wait_for(
        "the end of the killed one in the log",
        lambda: "user: 'rude'" in node.log.read_text(),
    )
    assert "user: 'polite'" not in node.log.read_text()
