"""The runbook of docs/haproxy.md on real nodes, under clients."""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from threading import Event

import pymysql
import pytest

from harness.galera import WRITE, Installation
from harness.haproxy import READER, WRITER, Backend, HAProxy, name_of
from harness.stack import Stack
from harness.waiting import meanwhile, wait_for
from tests.haproxy.front import PAGE
from tests.measured import STALLED, DisturbedError
from tests.unit.pages import blocks_under, commands_of

pytestmark = pytest.mark.long

WRITERS = 3
"""How many clients write while nodes are restarted."""
TRANSACTIONS_A_SESSION = 20
"""After so many, a pool renews a client's session."""
PAUSE_SECONDS = 0.05


@dataclass
class Application:
    """A client with one session at a time, which counts what fails."""

    haproxy: HAProxy
    section: str
    statement: str
    done: list[tuple[float, str]] = field(default_factory=list)
    """When the statement was committed, and on which node."""
    lost: list[str] = field(default_factory=list)
    """The faults of sessions that were cut, and of connection attempts."""

    def work(self, ended: Event) -> None:
        """Repeat the statement in one session, until a pool renews it."""
        try:
            with (
                self.haproxy.connect(self.section) as session,
                session.cursor() as cursor,
            ):
                node = name_of(session)
                for _ in range(TRANSACTIONS_A_SESSION):
                    cursor.execute(self.statement)
                    self.done.append((time.monotonic(), node))
                    ended.wait(PAUSE_SECONDS)
        except pymysql.MySQLError as fault:
            self.lost.append(repr(fault))


@contextmanager
def working(clients: Sequence[Application]) -> Iterator[None]:
    """Have clients work while the block runs.

    Each has to work on after it.
    """

    def wait_for_everybody() -> None:
        since = time.monotonic()
        wait_for(
            "every client to work",
            lambda: all(
                client.done and client.done[-1][0] > since for client in clients
            ),
        )

    with ExitStack() as running:
        for client in clients:
            running.enter_context(meanwhile(client.work, PAUSE_SECONDS))
        wait_for_everybody()
        yield
        wait_for_everybody()


def restart_by_the_runbook(stack: Stack, backend: Backend) -> None:
    """Do what the page says, with this node in place of its node2."""
    node = backend.node
    (runbook,) = blocks_under(PAGE, "Planned work on one node", "console")
    assert set(re.findall("^(.*)# echo ", runbook.text, re.MULTILINE)) == {"lb1"}
    for typed in commands_of(runbook):
        command = typed.line.replace("node2", node.name)
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
            pytest.fail(f"a step that nobody does here: {command}")
    stack.haproxy.wait_for_status(node, writer="UP", readers="UP")


def test_a_rolling_restart_cuts_each_writing_client_once(
    installation: Installation,
) -> None:
    settings = {"CLUSTERCHECK_DRAIN_STATUS": "404"}
    with Stack(settings=settings, installation=installation) as stack:
        # The writer is the last.
        last, *others = stack.backends
        writers = [Application(stack.haproxy, WRITER, WRITE) for _ in range(WRITERS)]
        reader = Application(stack.haproxy, READER, "SELECT MAX(id) FROM writes")
        with working([*writers, reader]):
            for backend in (*others, last):
                restart_by_the_runbook(stack, backend)
    committed = sorted(done for client in writers for done in client.done)
    runs = [name for name, _ in groupby(node for _, node in committed)]
    lost = [fault for client in writers for fault in client.lost]
    log = stack.haproxy.log.read_text()
    downs = re.findall(r"^<1>.* is DOWN.*", log, re.MULTILINE)
    # A node in use was DOWN for want of time.
    want = re.compile(rf'Layer7 timeout|info: "({"|".join(STALLED)})"')
    in_use = [line for line in downs if " 0 sessions active" not in line]
    if stalls := [line for line in in_use if want.search(line)]:
        raise DisturbedError(f"nodes with sessions stalled: {stalls}")
    # The writer is switched when it is drained, and when it becomes the donor of the node that
    # joins.
    down = [line for line in downs if f"erver {WRITER}/" in line]
    assert all(re.search(r'info: "(disabled|donor)"', line) for line in down), down
    assert runs[0] == last.node.name
    assert 2 <= len(runs) <= 1 + len(down), (runs, down)
    # Each switch costs each client one session at the most, or one login.
    assert len(lost) <= WRITERS * (len(runs) - 1), (lost, runs, down)
    assert reader.lost == []
