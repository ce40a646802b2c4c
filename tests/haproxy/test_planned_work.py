"""The runbook of docs/haproxy.md on real nodes, under clients, and what a full node keeps."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby

import pymysql
import pytest

from harness.galera import WRITE, Installation
from harness.haproxy import READER, WRITER, Backend, HAProxy, name_of
from harness.stack import Stack
from harness.waiting import wait_for
from tests.haproxy.front import PAGE
from tests.measured import STALLED, DisturbedError
from tests.unit.pages import blocks_under

pytestmark = pytest.mark.long

DRAINS = {"CLUSTERCHECK_DRAIN_STATUS": "404"}
WRITERS = 3
"""How many clients write while nodes are restarted."""
TRANSACTIONS_A_SESSION = 20
"""After so many, a pool renews a client's session."""
PAUSE_SECONDS = 0.05


class Application(threading.Thread):
    """A client with one session at a time, which works until `ended` and counts what fails."""

    def __init__(self, haproxy: HAProxy, section: str) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.done: list[tuple[float, str]] = []
        """When a transaction was committed, and on which node."""
        self.lost: list[str] = []
        """The faults of sessions that were cut, and of connection attempts."""
        self._haproxy = haproxy
        self._section = section
        self._work = WRITE if section == WRITER else "SELECT MAX(id) FROM writes"

    def run(self) -> None:
        """Open one session after the other."""
        while not self.ended.is_set():
            try:
                with (
                    self._haproxy.connect(self._section) as session,
                    session.cursor() as cursor,
                ):
                    node = name_of(session)
                    for _ in range(TRANSACTIONS_A_SESSION):
                        cursor.execute(self._work)
                        self.done.append((time.monotonic(), node))
                        self.ended.wait(PAUSE_SECONDS)
            except pymysql.MySQLError as fault:
                self.lost.append(repr(fault))
                self.ended.wait(PAUSE_SECONDS)


@contextmanager
def working(haproxy: HAProxy) -> Iterator[tuple[list[Application], Application]]:
    """Have some clients write and one read while the block runs.

    Each has to work on after it.
    """
    writers = [Application(haproxy, WRITER) for _ in range(WRITERS)]
    reader = Application(haproxy, READER)
    everybody = [*writers, reader]
    try:
        for client in everybody:
            client.start()
        wait_for(
            "every client to work", lambda: all(client.done for client in everybody)
        )
        yield writers, reader
        after = time.monotonic()
        wait_for(
            "every client to work on",
            lambda: all(client.done[-1][0] > after for client in everybody),
        )
    finally:
        for client in everybody:
            client.ended.set()
            client.join()


def restart_by_the_runbook(stack: Stack, backend: Backend) -> None:
    """Do what the page says, with this node in place of its node2."""
    node = backend.node
    (runbook,) = blocks_under(PAGE, "Planned work on one node", "console")
    for line in runbook.text.splitlines():
        host, _, command = line.partition("# ")
        command = command.partition("  #")[0].strip().replace("node2", node.name)
        asked = re.fullmatch(
            r'echo "(.*?)" \| socat - /var/lib/haproxy/admin.sock( \| .*)?', command
        )
        if asked and asked[1] == "show stat":
            stack.haproxy.wait_for_status(node, writer="DOWN")
            wait_for(
                "the readers to leave",
                lambda: stack.haproxy.servers()[READER, node.name]["scur"] == "0",
            )
        elif asked:
            assert host == "lb1"
            stack.haproxy.ask(asked[1])
        elif command in {"clustercheckd drain", "clustercheckd undrain"}:
            backend.service.command(command.split()[1])
        elif command == "systemctl stop mariadb":
            node.stop()
        elif command == "systemctl start mariadb":
            stack.cluster.start_node(node)
        elif command == "clustercheckd status --watch":
            wait_for(
                "it to be synced",
                lambda: backend.service.status()["otherwise"]["reason"] == "synced",
                seconds=60,
            )
        elif command == "clustercheckd status db1 db2 db3":
            assert {service.get().status for service in stack.services} == {200}
        else:
            pytest.fail(f"a step that nobody does here: {line}")
    stack.haproxy.wait_for_status(node, writer="UP", readers="UP")


def _shows_a_stall(down: str) -> bool:
    """Whether a line of HAProxy's log says that a node in use was DOWN for want of time."""
    why = re.search(r'Layer7 (timeout)|info: "(.*?)"', down)
    return (
        why is not None
        and not STALLED.isdisjoint(why.groups())
        and " 0 sessions active" not in down
    )


def test_a_rolling_restart_cuts_each_writing_client_once(
    installation: Installation,
) -> None:
    with Stack(settings=DRAINS, installation=installation) as stack:
        # The writer last.
        order = [*stack.backends[1:], stack.backends[0]]
        with working(stack.haproxy) as (writers, reader):
            for backend in order:
                restart_by_the_runbook(stack, backend)
    committed = sorted(done for client in writers for done in client.done)
    runs = [name for name, _ in groupby(committed, key=lambda done: done[1])]
    lost = [fault for client in writers for fault in client.lost]
    log = stack.haproxy.log.read_text()
    downs = re.findall(r"^<1>.* is DOWN.*", log, re.MULTILINE)
    if stalls := [line for line in downs if _shows_a_stall(line)]:
        raise DisturbedError(f"nodes with sessions stalled: {stalls}")
    # The writer is switched when it is drained, and when it becomes the donor of the node that
    # joins.
    down = re.findall(rf"^<1>.*erver {WRITER}/\w+ is DOWN.*", log, re.MULTILINE)
    assert [
        line for line in down if not re.search(r'info: "(disabled|donor)"', line)
    ] == []
    assert runs[0] == order[-1].node.name
    assert 2 <= len(runs) <= 1 + len(down), (runs, down)
    # Each switch costs each client one session at the most, or one login.
    assert len(lost) <= WRITERS * (len(runs) - 1), (lost, runs, down)
    assert reader.lost == []
