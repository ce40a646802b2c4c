"""The runbook of docs/haproxy.md on real nodes: a rolling restart under clients, and what a drain keeps."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path

import pytest

from harness.galera import Cluster, Installation
from harness.haproxy import EXAMPLE, READER, READER_QUESTION, WRITER, Backend, HAProxy, name_of
from harness.service import Service
from harness.stack import Stack
from harness.waiting import wait_for
from tests.haproxy.application import Application
from tests.haproxy.variations import PAGE, varied
from tests.measured import STALLED, DisturbedError
from tests.unit.pages import PAGES, blocks_under

pytestmark = pytest.mark.long

DRAINS = {"CLUSTERCHECK_DRAIN_STATUS": "404"}
WRITERS = 3
"""How many clients write while nodes are restarted."""


class Planned:
    """Real nodes whose planned absences are a 404, behind an HAProxy of their own."""

    def __init__(self, cluster: Cluster, backends: Sequence[Backend], haproxy: HAProxy) -> None:
        self.cluster = cluster
        self.backends = backends
        self.haproxy = haproxy
        for backend in backends:
            for section in (WRITER, READER):
                haproxy.wait_for_status(section, backend.node, "UP")

    def restart_by_the_runbook(self, backend: Backend) -> None:
        """Do what the page says, with this node in place of its node2."""
        node = backend.node
        (runbook,) = blocks_under(PAGE, "Planned work on one node", "console")
        for line in runbook.text.splitlines():
            host, _, command = line.partition("# ")
            command = command.partition("  #")[0].strip().replace("node2", node.name)
            asked = re.fullmatch(r'echo "(.*?)" \| socat - /var/lib/haproxy/admin.sock( \| .*)?', command)
            if asked and asked[1] == "show stat":
                self.haproxy.wait_for_status(WRITER, node, "DOWN")
                wait_for("the readers to leave", lambda: self.haproxy.sessions(READER, node) == 0)
            elif asked:
                assert host == "lb1"
                self.haproxy.ask(asked[1])
            elif command in {"clustercheckd drain", "clustercheckd undrain"}:
                backend.service.command(command.split()[1])
            elif command == "systemctl stop mariadb":
                node.stop()
            elif command == "systemctl start mariadb":
                self.cluster.start_node(node)
            elif command == "clustercheckd status --watch":
                self.cluster.wait_until_synced(node)
            elif command == "clustercheckd status db1 db2 db3":
                assert {backend.service.get().status for backend in self.backends} == {200}
            else:
                pytest.fail(f"a step that nobody does here: {line}")
        for section in (WRITER, READER):
            self.haproxy.wait_for_status(section, node, "UP")


def restart_all(planned: Planned, order: Sequence[Backend]) -> None:
    """Restart one node after the other, the writer last, under clients that write and one that reads."""
    logged_before = len(planned.haproxy.log.read_text())
    with ExitStack() as clients:
        reader = clients.enter_context(Application(planned.haproxy, READER))
        writers = [clients.enter_context(Application(planned.haproxy, WRITER)) for _ in range(WRITERS)]
        everybody = [reader, *writers]
        wait_for("every client to work", lambda: all(client.counts.done for client in everybody))
        for backend in order:
            planned.restart_by_the_runbook(backend)
        after = time.monotonic()
        wait_for("every client to work on", lambda: all(client.committed_since(after) for client in everybody))
    committed = sorted(done for client in writers for done in client.counts.done)
    runs = [name for name, _ in groupby(committed, key=lambda done: done[1])]
    cut = [fault for client in writers for fault in client.counts.cut]
    refused = [fault for client in writers for fault in client.counts.refused]
    log = planned.haproxy.log.read_text()[logged_before:]
    if stalls := [line for line in re.findall(r"^<1>.* is DOWN.*", log, re.MULTILINE) if _shows_a_stall(line)]:
        message = f"nodes with sessions stalled: {stalls}"
        raise DisturbedError(message)
    # The writer is switched when it is drained, and when it becomes the donor of the node that joins.
    down = re.findall(rf"^<1>.*erver {WRITER}/\w+ is DOWN.*", log, re.MULTILINE)
    assert [line for line in down if not re.search(r'info: "(disabled|donor)"', line)] == []
    # Each time costs each client one session at the most, or one login.
    switches = sum(" 0 sessions active" not in line for line in down)
    assert len(cut) + len(refused) <= WRITERS * switches, (cut, refused, down)
    assert runs[0] == order[-1].node.name
    assert 2 <= len(runs) <= 1 + len(down), (runs, down)
    assert (reader.counts.cut, reader.counts.refused) == ([], [])


def _shows_a_stall(down: str) -> bool:
    """Whether a line of HAProxy's log says that a node with sessions was DOWN because it got no time."""
    why = re.search(r'Layer7 (timeout)|info: "(.*?)"', down)
    return why is not None and not STALLED.isdisjoint(why.groups()) and " 0 sessions active" not in down


@contextmanager
def planned_nodes(stack: Stack, directory: Path, text: str | None = None) -> Iterator[Planned]:
    """Put checkers and an HAProxy of their own in front of the shared cluster."""
    with ExitStack() as exits:
        backends = []
        for node in stack.nodes:
            service = stack.service(node, **DRAINS)
            exits.callback(service.stop)
            backends.append(Backend(node, service))
        haproxy = stack.haproxy_for(backends, directory, text=text)
        exits.callback(haproxy.kill)
        yield Planned(stack.cluster, backends, haproxy)


def test_a_rolling_restart_of_three_nodes_cuts_each_writing_client_once(stack: Stack, tmp_path: Path) -> None:
    with planned_nodes(stack, tmp_path) as planned:
        first, second, third = planned.backends
        restart_all(planned, [third, second, first])


def test_a_rolling_restart_of_two_nodes_and_a_full_transfer_between_them(
    installation: Installation, tmp_path: Path
) -> None:
    cluster = Cluster(installation, 2)
    with ExitStack() as exits:
        for node in cluster.nodes:
            exits.callback(node.kill)
        cluster.start()
        backends = []
        for node in cluster.nodes:
            service = Service.of(node, tmp_path, installation.ports.free(), **DRAINS)
            exits.callback(service.stop)
            service.wait_until_up()
            backends.append(Backend(node, service))
        servers = [backend.server for backend in backends]
        haproxy = HAProxy(tmp_path, installation.ports, servers, text=varied("Two nodes"))
        exits.callback(haproxy.kill)
        haproxy.wait_until_up()
        planned = Planned(cluster, backends, haproxy)
        first, second = backends
        restart_all(planned, [second, first])

        # The one that is left serves on while it is the donor of the other.
        joiner, donor = first.node, second.node
        held = exits.enter_context(haproxy.connect(WRITER))
        joiner.stop()
        joiner.forget_position()
        cluster.start_node(joiner)
        with joiner.holding_up_transfer():
            second.service.wait_for_verdict(404, "donor")
            assert [haproxy.lands_on(section) for section in (WRITER, READER)] == [donor.name, donor.name]
            assert haproxy.server_status(WRITER, donor) == "UP"
        cluster.wait_until_synced(joiner)
        haproxy.wait_for_status(WRITER, joiner, "UP")
        assert name_of(held) == haproxy.lands_on(WRITER) == donor.name


def test_readers_of_a_node_that_drains_or_is_full_keep_their_sessions_and_new_ones_go_elsewhere(
    stack: Stack, tmp_path: Path
) -> None:
    node = stack.nodes[0]
    question = "/?available_when_full=0"
    text = EXAMPLE.read_text().replace(READER_QUESTION, question)
    assert "`&available_when_full=0`" in PAGES[PAGE].read_text()
    with planned_nodes(stack, tmp_path, text) as planned, ExitStack() as held:
        haproxy = planned.haproxy
        reading = held.enter_context(haproxy.session_on(READER, node))
        node.sql("SET GLOBAL wsrep_desync=ON")
        held.callback(node.sql, "SET GLOBAL wsrep_desync=OFF")
        haproxy.wait_for_status(READER, node, "NOLB")
        assert {haproxy.lands_on(READER) for _ in range(6)} == {"node2", "node3"}
        node.sql("SET GLOBAL wsrep_desync=OFF")
        for section in (WRITER, READER):
            haproxy.wait_for_status(section, node, "UP")

        writing = held.enter_context(haproxy.session_on(WRITER, node))
        node.sql("SET GLOBAL max_connections=12")
        held.callback(node.sql, "SET GLOBAL max_connections=151")
        while not node.refuses_clients():
            held.enter_context(node.connect_as_client())
        haproxy.wait_for_status(READER, node, "NOLB")
        assert {haproxy.lands_on(READER) for _ in range(6)} == {"node2", "node3"}
        assert haproxy.server_status(WRITER, node) == "UP"
        assert [name_of(session) for session in (writing, reading)] == [node.name] * 2
