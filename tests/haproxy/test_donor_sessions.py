"""Sessions on a donor, and clients beside a joiner, in a strict pool that answers planned reasons with 404."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pymysql
import pytest

from app.verdict import PLANNED, Reason
from harness.haproxy import EXAMPLE, READER, READER_QUESTION, Backend, HAProxy, Server, name_of
from harness.ports import LOOPBACK, Ports
from harness.stack import Stack
from harness.waiting import wait_for
from tests.conftest import Services
from tests.fake_mysql import fake_mysql, galera, greets_and_is_silent

SERVING = {"UP", "NOLB"}
# More than a node may leave unapplied and still call itself Synced.
BACKLOG = 400
ROWS = "INSERT INTO writes (node) SELECT 'backlog' FROM seq_1_to_100"
SETTINGS = {"CLUSTERCHECK_DRAIN_STATUS": "404"}
DONOR = {"wsrep_local_state": "2", "wsrep_local_state_comment": "Donor/Desynced"}
JOINED = {"wsrep_local_state": "3", "wsrep_local_state_comment": "Joined"}
# A machine that stalls for a second has the donor hang, or lost to its members. HAProxy then cuts its sessions, as it
# should. Such a transfer shows nothing and is repeated.
REPEATED = 2


class Pool:
    """The shared cluster behind checkers of its own, in a pool for reads that accepts no donor."""

    def __init__(self, stack: Stack, backends: list[Backend], haproxy: HAProxy) -> None:
        self.cluster = stack.cluster
        self.joiner = backends[2]
        self.others = backends[:2]
        self.haproxy = haproxy

    def status(self, backend: Backend) -> str:
        """Return HAProxy's word for a server."""
        return self.haproxy.server_status(READER, backend.node)

    def wait_for_status(self, backend: Backend, wanted: str) -> None:
        """Wait for HAProxy's word for a server."""
        self.haproxy.wait_for_status(READER, backend.node, wanted, seconds=60)

    def donor(self) -> Backend | None:
        """Find the donor, once there is one."""
        return next((backend for backend in self.others if backend.service.get().reason == "donor"), None)


@pytest.fixture
def pool(stack: Stack, tmp_path: Path) -> Iterator[Pool]:
    """Run checkers and HAProxy for the pool."""
    services = [stack.service(node, **SETTINGS) for node in stack.nodes]
    backends = [Backend(*pair) for pair in zip(stack.nodes, services, strict=True)]
    haproxy = stack.haproxy_for(backends, tmp_path, EXAMPLE.read_text().replace(READER_QUESTION, "/"))
    yield Pool(stack, backends, haproxy)
    haproxy.kill()
    for service in services:
        service.stop()
    stack.nodes[0].sql("DELETE FROM demo.writes WHERE node = 'backlog'")


@contextmanager
def joining(pool: Pool) -> Iterator[Backend]:
    """Have the third node ask for a full state transfer, held up for the block, and name the donor."""
    joiner = pool.joiner.node
    joiner.stop()
    joiner.forget_position()
    pool.wait_for_status(pool.joiner, "DOWN")
    pool.cluster.start_node(joiner)
    with joiner.holding_up_transfer():
        yield wait_for("one of the other nodes to be the donor", pool.donor)


class Transfer:
    """A full state transfer under sessions: what the donor's checker and HAProxy said of the donor, and what is left.

    The joiner, and that it gets no client before it may, is checked on the way.
    """

    def __init__(self, pool: Pool) -> None:
        logged_before = len(pool.haproxy.log.read_text())
        changed_before = {b.node.name: len(b.service.status()["changes"]) for b in pool.others}
        with ExitStack() as exits:
            sessions = {b.node.name: exits.enter_context(pool.haproxy.session_on(READER, b.node)) for b in pool.others}
            with joining(pool) as self.donor:
                pool.wait_for_status(self.donor, "NOLB")
                writer = next(backend.node for backend in pool.others if backend is not self.donor)
                with writer.connect_as_client() as client, client.cursor() as cursor:
                    for _ in range(BACKLOG):
                        cursor.execute(ROWS)
            self._check_joiner(pool)
            self.donor.service.wait_for_verdict(200, "synced")
            pool.wait_for_status(self.donor, "UP")
            self.cut = _is_cut(sessions[self.donor.node.name])
        self.changes = self.donor.service.status()["changes"][changed_before[self.donor.node.name] :]
        self.reasons = [change["reason"] for change in self.changes]
        log = pool.haproxy.log.read_text()[logged_before:]
        self.logged = [line for line in log.splitlines() if f"/{self.donor.node.name} " in line]

    @property
    def disturbed(self) -> bool:
        """Whether the donor was unavailable for a reason that is not planned, or its checker too slow for HAProxy."""
        unplanned = [reason for reason in self.reasons if reason not in PLANNED | {Reason.SYNCED}]
        return bool(unplanned) or any("is DOWN, reason: Layer7 timeout" in line for line in self.logged)

    def __str__(self) -> str:
        """Tell what there is to know of a failure."""
        seen = [f"{change['at']} {change['reason']}: {change['detail']}" for change in self.changes]
        return "\n".join([f"the donor {self.donor.node.name}, by its checker:", *seen, "by HAProxy:", *self.logged])

    def _check_joiner(self, pool: Pool) -> None:
        seen = set()

        def joined() -> bool:
            # In this order: the joiner, once it is available, stays so.
            status = pool.status(pool.joiner)
            seen.add((status, pool.joiner.service.get().status))
            return status == "UP"

        wait_for("the joiner to be UP", joined, seconds=60)
        # What a joiner answers is never the 404 that keeps sessions, and while it answers no 200 it has no client.
        assert not [pair for pair in seen if pair[1] == 404]
        assert not [pair for pair in seen if pair[0] in SERVING and pair[1] != 200]


def _is_cut(session: "pymysql.Connection[Any]") -> bool:
    try:
        name_of(session)
    except pymysql.MySQLError:
        return True
    return False


def test_a_session_on_a_donor_lives_until_it_is_synced_again_and_a_joiner_gets_no_client_before(pool: Pool) -> None:
    for backend in (*pool.others, pool.joiner):
        pool.wait_for_status(backend, "UP")
    transfer = Transfer(pool)
    for _ in range(REPEATED):
        if transfer.disturbed:
            transfer = Transfer(pool)
    assert not transfer.disturbed, transfer
    assert not transfer.cut, transfer
    # How long the donor is in state 3, or whether a poll meets it, depends on how fast the machine applies.
    assert [reason for reason in transfer.reasons if reason != "joined"][-2:] == ["donor", "synced"], transfer


def test_sessions_live_through_all_three_states_of_a_donor(services: Services, tmp_path: Path, ports: Ports) -> None:
    state: dict[str, str | bytes] = {}
    with ExitStack() as exits:
        node = exits.enter_context(fake_mysql(galera(state)))
        clients = exits.enter_context(fake_mysql(greets_and_is_silent))
        checker = services.start(MYSQL_HOST=LOOPBACK, MYSQL_PORT=str(node.port), MYSQL_USERNAME="x", **SETTINGS)
        servers = [Server(f"node{number}", clients.port, checker.port) for number in (1, 2, 3)]
        text = EXAMPLE.read_text().replace(READER_QUESTION, "/")
        haproxy = HAProxy(tmp_path, ports, servers, text=text)
        exits.callback(haproxy.kill)
        haproxy.wait_until_up()

        def wait_for_all(status: str, sessions: int) -> None:
            def reached() -> bool:
                rows = [
                    row for (section, name), row in haproxy.servers().items() if section == READER and "node" in name
                ]
                return {row["status"] for row in rows} == {status} and sum(int(row["scur"]) for row in rows) == sessions

            wait_for(f"all {status} with {sessions} sessions", reached, seconds=30)

        wait_for_all("UP", 0)
        for _ in range(6):
            exits.enter_context(socket.create_connection((LOOPBACK, haproxy.ports[READER]), timeout=10))
        wait_for_all("UP", 6)
        for step, reason, status in ((DONOR, "donor", "NOLB"), (JOINED, "joined", "NOLB"), ({}, "synced", "UP")):
            state.clear()
            state.update(step)
            node.drop_connections()
            checker.wait_for_verdict(404 if step else 200, reason)
            wait_for_all(status, 6)
