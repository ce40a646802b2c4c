"""Sessions on a donor, and clients beside a joiner, in a strict pool that answers planned reasons with 404."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from harness.haproxy import EXAMPLE, READER, READER_QUESTION, Backend, HAProxy, Server, name_of
from harness.ports import LOOPBACK, Ports
from harness.stack import Stack
from harness.waiting import wait_for
from tests.conftest import Services
from tests.fake_mysql import fake_mysql, galera, greets_and_is_silent
from tests.measured import DisturbedError, undisturbed

SERVING = {"UP", "NOLB"}
# More than a node may leave unapplied and still call itself Synced.
BACKLOG = 400
ROWS = "INSERT INTO writes (node) SELECT 'backlog' FROM seq_1_to_100"
SETTINGS = {"CLUSTERCHECK_DRAIN_STATUS": "404"}
DONOR = {"wsrep_local_state": "2", "wsrep_local_state_comment": "Donor/Desynced"}
JOINED = {"wsrep_local_state": "3", "wsrep_local_state_comment": "Joined"}


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


def reasons_after_a_transfer(pool: Pool) -> list[str]:
    """Go through one, and return what the donor's checker said; the sessions and the joiner are checked on the way."""
    with ExitStack() as exits:
        sessions = {b.node.name: exits.enter_context(pool.haproxy.session_on(READER, b.node)) for b in pool.others}
        with joining(pool) as donor:
            assert donor.service.get().status == 404
            pool.wait_for_status(donor, "NOLB")
            writer = next(backend.node for backend in pool.others if backend is not donor)
            with writer.connect_as_client() as client, client.cursor() as cursor:
                for _ in range(BACKLOG):
                    cursor.execute(ROWS)
        seen = set()

        def joined() -> bool:
            # In this order: once the joiner is available it stays so.
            status = pool.status(pool.joiner)
            seen.add((status, pool.joiner.service.get().status))
            return status == "UP"

        wait_for("the joiner to be UP", joined, seconds=60)
        # What a joiner answers is never the 404 that keeps sessions, and while it answers no 200 it has no client.
        assert not [answer for _, answer in seen if answer == 404]
        assert not [pair for pair in seen if pair[0] in SERVING and pair[1] != 200]
        donor.service.wait_for_verdict(200, "synced")
        pool.wait_for_status(donor, "UP")
        assert name_of(sessions[donor.node.name]) == donor.node.name
        return [change["reason"] for change in donor.service.status()["changes"]]


@contextmanager
def undisturbed_pool(pool: Pool) -> Iterator[None]:
    """Have a failure tell what HAProxy logged, and be no failure where the donor or its checker stalled.

    HAProxy cuts the sessions of a donor that hangs for a second, or is lost to its members, as it should.
    """
    try:
        with undisturbed(*(backend.service for backend in pool.others)):
            yield
    except Exception as fault:
        logged = [line for line in pool.haproxy.log.read_text().splitlines() if f" {READER}/" in line]
        for line in logged:
            fault.add_note(line)
        if any("is DOWN, reason: Layer7 timeout" in line for line in logged):
            message = f"{fault!r} after a health check that timed out"
            raise DisturbedError(message) from fault
        raise


def test_a_session_on_a_donor_lives_until_it_is_synced_again_and_a_joiner_gets_no_client_before(pool: Pool) -> None:
    with undisturbed_pool(pool):
        for backend in (*pool.others, pool.joiner):
            pool.wait_for_status(backend, "UP")
        reasons = reasons_after_a_transfer(pool)
        # How long the donor is in state 3, or whether a poll meets it, depends on how fast the machine applies.
        assert [reason for reason in reasons if reason != "joined"][-2:] == ["donor", "synced"]


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
