"""`make demo`: HAProxy following a real Galera cluster, to look at and to play with, or as a scripted tour."""

import argparse
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pymysql

from harness.galera import DEMO, Node
from harness.haproxy import READER, READER_QUESTION, WRITER, Backend
from harness.ports import LOOPBACK
from harness.process import ProcessEndedError, interrupt_once, let_nothing_interrupt
from harness.stack import Stack
from harness.waiting import NotInTimeError, wait_for

_REFRESH_SECONDS = 0.5
_RESTART_SECONDS = 10.0
_STEP_SECONDS = 60.0
_READER_SAMPLES = 6
_STALLED_WRITES = 150  # more than the reader's max_recv_queue


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; the exit code is 0 if every step of the tour was seen, or if the live view was ended."""
    parser = argparse.ArgumentParser(
        prog="make demo", description="Three real Galera nodes, clustercheckd and HAProxy."
    )
    parser.add_argument("--once", action="store_true", help="run a scripted tour and end, instead of the live view")
    once = parser.parse_args(arguments).once
    interrupt_once()
    begun = time.monotonic()
    try:
        # The tour's drain: node3 answers 404 while it drains, which HAProxy takes for "no new sessions".
        settings = {"node3": {"CLUSTERCHECK_DRAIN_STATUS": "404"}} if once else {}
        with Stack(
            settings=settings, tell=lambda what: print(f"[{time.monotonic() - begun:5.1f} s] {what}", flush=True)
        ) as stack:
            Tour(stack).run() if once else LiveView(stack).run()
            let_nothing_interrupt()
    except KeyboardInterrupt:
        return 130 if once else 0
    except (NotInTimeError, ProcessEndedError) as fault:
        print(f"FAILED: {fault}", file=sys.stderr)
        return 1
    return 0


class Tour:
    """Steps that are each observed for real, with the time they took."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._number = 0

    def run(self) -> None:
        """Go through all steps. Raises `NotInTimeError` where one is not seen."""
        first, second, third = self._stack.backends
        self._all_up(first)
        self._desynced_and_back(second)
        self._stalled_donor_and_back(first, second)
        self._drained_and_back(third)
        self._killed_and_back(first)
        print(f"\nall {self._number} steps seen")

    def _all_up(self, writer: Backend) -> None:
        with self._step("all up: every node answers 200 synced and is UP in HAProxy, writes go to node1"):
            for backend in self._stack.backends:
                self._see(backend, 200, "synced")
                self._see_haproxy(backend.node, "UP", WRITER, READER)
            self._see_writes_on([writer.node])

    def _desynced_and_back(self, backend: Backend) -> None:
        with self._step("node2 desynced (SET GLOBAL wsrep_desync=ON): no node for writes, but one that keeps up"):
            backend.node.sql("SET GLOBAL wsrep_desync=ON")
            self._see(backend, 503, "desynced")
            self._see_haproxy(backend.node, "DOWN", WRITER)
            self._see_haproxy(backend.node, "UP", READER)
        with self._step("node2 back (SET GLOBAL wsrep_desync=OFF)"):
            backend.node.sql("SET GLOBAL wsrep_desync=OFF")
            self._see(backend, 200, "synced")
            self._see_haproxy(backend.node, "UP", WRITER, READER)

    def _stalled_donor_and_back(self, writer: Backend, backend: Backend) -> None:
        with self._step("node2 stalls (FLUSH TABLES WITH READ LOCK) while node1 is written to: readers leave it"):
            with backend.node.connect() as locking, locking.cursor() as cursor:
                cursor.execute("FLUSH TABLES WITH READ LOCK")
                self._see(backend, 503, "donor")
                with writer.node.connect_as_client() as client, client.cursor() as writing:
                    for _ in range(_STALLED_WRITES):
                        writing.execute("INSERT INTO writes (node) VALUES (@@wsrep_node_name)")
                self._see(backend, 503, "lagging", target=READER_QUESTION)
                self._see_haproxy(backend.node, "DOWN", READER)
                self._see_readers_elsewhere(backend.node)
            self._see(backend, 200, "synced")
            self._see_haproxy(backend.node, "UP", WRITER, READER)

    def _drained_and_back(self, backend: Backend) -> None:
        with self._step("node3 drained (clustercheckd drain): its open session goes on, new ones land elsewhere"):
            with self._stack.haproxy.session_on(READER, backend.node) as session, session.cursor() as cursor:
                cursor.execute("BEGIN")
                cursor.execute("INSERT INTO writes (node) VALUES (@@wsrep_node_name)")
                backend.service.command("drain")
                self._see(backend, 404, "disabled")
                self._see_haproxy(backend.node, "NOLB", WRITER, READER)
                self._see_readers_elsewhere(backend.node)
                cursor.execute("COMMIT")
                self._seen("the open transaction on node3 was committed")
            backend.service.command("undrain")
            self._see(backend, 200, "synced")
            self._see_haproxy(backend.node, "UP", WRITER, READER)

    def _killed_and_back(self, backend: Backend) -> None:
        others = [node for node in self._stack.nodes if node is not backend.node]
        with self._step("node1, the writer, killed (kill -9)"):
            backend.node.kill()
            self._see(backend, 503, "unreachable")
            self._see_haproxy(backend.node, "DOWN", WRITER, READER)
            writer = self._see_writes_on(others)
        with self._step(f"node1 started again: writes stay on {writer.name}, no fail-back"):
            self._stack.restart_node(backend.node)
            self._see(backend, 200, "synced")
            self._see_haproxy(backend.node, "UP", WRITER, READER)
            self._see_writes_on([writer])

    @contextmanager
    def _step(self, title: str) -> Iterator[None]:
        self._number += 1
        self._began = time.monotonic()
        print(f"\n{self._number}. {title}", flush=True)
        yield

    def _seen(self, what: str) -> None:
        print(f"   {time.monotonic() - self._began:6.2f} s  {what}", flush=True)

    def _see(self, backend: Backend, status: int, reason: str, target: str = "/") -> None:
        backend.service.wait_for_verdict(status, reason, target=target, seconds=_STEP_SECONDS)
        question = f" to {target}" if target != "/" else ""
        self._seen(f"{backend.node.name}: clustercheckd answers {status} {reason}{question}")

    def _see_haproxy(self, node: Node, wanted: str, *sections: str) -> None:
        for section in sections:
            self._stack.haproxy.wait_for_status(section, node, wanted, seconds=_STEP_SECONDS)
        self._seen(f"{node.name}: {wanted} in HAProxy ({' and '.join(sections)})")

    def _see_readers_elsewhere(self, node: Node) -> None:
        landed = {self._stack.haproxy.lands_on(READER) for _ in range(_READER_SAMPLES)}
        if node.name in landed or None in landed:
            message = f"new readers landed on {landed}"
            raise NotInTimeError(message)
        self._seen(f"{_READER_SAMPLES} new readers landed on {' and '.join(sorted(map(str, landed)))}")

    def _see_writes_on(self, nodes: Sequence[Node]) -> Node:
        def written() -> Node | None:
            try:
                with self._stack.haproxy.connect(WRITER) as connection, connection.cursor() as cursor:
                    cursor.execute("INSERT INTO writes (node) VALUES (@@wsrep_node_name)")
                    cursor.execute("SELECT node FROM writes WHERE id = LAST_INSERT_ID()")
                    row = cursor.fetchone()
            except (pymysql.MySQLError, OSError):
                return None
            return next((node for node in nodes if row and node.name == row[0]), None)

        names = " or ".join(node.name for node in nodes)
        node = wait_for(f"a write through HAProxy to land on {names}", written, seconds=_STEP_SECONDS)
        self._seen(f"a write through HAProxy's writer port landed on {node.name}")
        return node


class LiveView:
    """A table of all nodes that follows what happens to them, until Ctrl-C."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._ended_at: dict[str, float] = {}
        self._last = ""

    def run(self) -> None:
        """Show the table until interrupted."""
        while True:
            self._restart_ended()
            self._show(self._table(), self._hints())
            time.sleep(_REFRESH_SECONDS)

    def _show(self, table: str, hints: str) -> None:
        if sys.stdout.isatty():
            # Home, print over what is there, clear the rest: no flicker.
            text = (f"{table}\n\n{hints}\n").replace("\n", "\x1b[K\n")
            print(f"\x1b[H{text}\x1b[J", end="", flush=True)
        elif table != self._last:
            print(f"\n{table}" if self._last else f"\n{hints}\n\n{table}", flush=True)
        self._last = table

    def _table(self) -> str:
        servers = self._stack.haproxy.servers()
        rows: list[tuple[str, ...]] = [
            ("node", "wsrep_local_state", "verdict", "reason", "HAProxy writer", "HAProxy reader", "ask it yourself")
        ]
        for backend in self._stack.backends:
            state, status, reason = self._answer(backend)
            rows.append(
                (
                    backend.node.name,
                    state,
                    status,
                    reason,
                    *(servers.get((section, backend.node.name), {}).get("status", "?") for section in (WRITER, READER)),
                    f"curl -i http://{LOOPBACK}:{backend.service.port}/",
                ),
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)

    def _answer(self, backend: Backend) -> tuple[str, str, str]:
        try:
            reply, known = backend.service.get(), backend.service.status()
        except OSError:
            return "?", "none", "clustercheckd does not answer"
        node = known["node"] or {}
        return node.get("wsrep_local_state_comment") or "not read", str(reply.status), reply.reason

    def _hints(self) -> str:
        ports = self._stack.haproxy.ports
        client = "mariadb" if shutil.which("mariadb") else "mysql"
        second = self._stack.nodes[1]
        as_admin = f"{client} -S {second.socket}"
        account = f"-h {LOOPBACK} -u {DEMO} -p{DEMO} {DEMO}"
        return "\n".join(
            [
                "Through HAProxy:",
                f"  write       {client} -P {ports[WRITER]} {account}",
                f"  read        {client} -P {ports[READER]} {account}",
                f"  stats page  http://{LOOPBACK}:{ports['stats']}/",
                "",
                "Try, in another terminal:",
                f'  desync node2     {as_admin} -e "SET GLOBAL wsrep_desync=ON"    (and OFF)',
                f'  refuse queries   {as_admin} -e "SET GLOBAL wsrep_reject_queries=ALL"    (and NONE)',
                *(
                    f"  kill {node.name}       kill -9 {node.process.pid}{self._fate(node)}"
                    for node in self._stack.nodes
                ),
                f"  drain node2      touch {self._stack.services[1].disabled_file}    (and rm)",
                f"  hang node2       kill -STOP {second.process.pid}    (and -CONT)",
                "",
                "Ctrl-C stops and removes everything.",
            ],
        )

    def _fate(self, node: Node) -> str:
        ended_at = self._ended_at.get(node.name)
        if ended_at is None:
            return f"    (it is started again after {_RESTART_SECONDS:.0f} s)"
        return f"    (ended; starts again in {max(0.0, ended_at + _RESTART_SECONDS - time.monotonic()):.0f} s)"

    def _runs(self, node: Node) -> bool:
        return node.process.exit_code is None

    def _restart_ended(self) -> None:
        for node in self._stack.nodes:
            if self._runs(node):
                continue
            ended_at = self._ended_at.setdefault(node.name, time.monotonic())
            if time.monotonic() > ended_at + _RESTART_SECONDS:
                del self._ended_at[node.name]
                self._stack.cluster.start_node(node)


if __name__ == "__main__":
    sys.exit(main())
