"""`make demo`: a real Galera cluster behind HAProxy, as a live view to play with or as a scripted tour."""

import argparse
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pymysql

from harness.galera import DEMO, Node
from harness.haproxy import READER, READER_QUESTION, WRITER, Backend
from harness.ports import LOOPBACK
from harness.process import ProcessEndedError, interrupt_once, let_nothing_interrupt
from harness.prometheus import Prometheus
from harness.stack import Stack
from harness.waiting import NotInTimeError, wait_for

_REFRESH_SECONDS = 0.5
_RESTART_SECONDS = 10.0
_STEP_SECONDS = 60.0
_READER_SAMPLES = 6
_CROWD = 100
_STALLED_WRITES = 150  # more than the reader's max_recv_queue


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo. Return 0 if every step of the tour succeeded, or if the user stopped the live view."""
    parser = argparse.ArgumentParser(
        prog="make demo", description="Three real Galera nodes, clustercheckd and HAProxy."
    )
    parser.add_argument("--once", action="store_true", help="run a scripted tour instead of the live view, then stop")
    parser.add_argument("--prometheus", action="store_true", help="also run a Prometheus for the live view")
    given = parser.parse_args(arguments)
    once = given.once
    if once and given.prometheus:
        parser.error("--prometheus works only with the live view: leave out --once")
    if given.prometheus and not shutil.which("prometheus"):
        parser.error("--prometheus: prometheus is not installed: install the package prometheus")
    interrupt_once()
    begun = time.monotonic()
    try:
        # For a planned reason, clustercheckd answers 404, so that HAProxy's readers keep their sessions on the node.
        settings = {f"node{number}": {"CLUSTERCHECK_DRAIN_STATUS": "404"} for number in (1, 2, 3)}
        with Stack(
            settings=settings, tell=lambda what: print(f"[{time.monotonic() - begun:5.1f} s] {what}", flush=True)
        ) as stack:
            Tour(stack).run() if once else LiveView(stack, with_prometheus=given.prometheus).run()
            let_nothing_interrupt()
    except KeyboardInterrupt:
        return 130 if once else 0
    except (NotInTimeError, ProcessEndedError) as fault:
        print(f"FAILED: {fault}", file=sys.stderr)
        return 1
    return 0


class Tour:
    """A tour of several steps. Each step waits until its effect shows, and prints how long that took."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._number = 0

    def run(self) -> None:
        """Run all steps. Raises `NotInTimeError` if the effect of one does not show in time."""
        first, second, _ = self._stack.backends
        self._all_up(first)
        self._desynced_and_back(second)
        self._stalled_donor_and_back(first, second)
        self._drained_and_back(first)
        self._killed_and_back(second)
        print(f"\nall {self._number} steps seen")

    def _all_up(self, writer: Backend) -> None:
        with self._step("all up: every node answers 200 synced and is UP in HAProxy, writes go to node1"):
            for backend in self._stack.backends:
                self._see(backend, 200, "synced")
                self._see_haproxy(backend.node, "UP", WRITER, READER)
            self._see_writes_on([writer.node])

    def _desynced_and_back(self, backend: Backend) -> None:
        with self._step("node2 desynced (SET GLOBAL wsrep_desync=ON): writers leave it, readers stay"):
            backend.node.sql("SET GLOBAL wsrep_desync=ON")
            self._see(backend, 404, "desynced")
            self._see_haproxy(backend.node, "DOWN", WRITER)
            self._see_haproxy(backend.node, "UP", READER)
        with self._step("node2 back (SET GLOBAL wsrep_desync=OFF)"):
            backend.node.sql("SET GLOBAL wsrep_desync=OFF")
            self._see(backend, 200, "synced")
            self._see_haproxy(backend.node, "UP", WRITER, READER)

    def _stalled_donor_and_back(self, writer: Backend, backend: Backend) -> None:
        with self._step("node2 stalls (FLUSH TABLES WITH READ LOCK) while clients write to node1: readers leave it"):
            with backend.node.connect() as locking, locking.cursor() as cursor:
                cursor.execute("FLUSH TABLES WITH READ LOCK")
                self._see(backend, 404, "donor")
                with writer.node.connect_as_client() as client, client.cursor() as writing:
                    for _ in range(_STALLED_WRITES):
                        writing.execute("INSERT INTO writes (node) VALUES (@@wsrep_node_name)")
                self._see(backend, 503, "lagging", target=READER_QUESTION)
                self._see_haproxy(backend.node, "DOWN", READER)
                self._see_readers_elsewhere(backend.node)
            self._see(backend, 200, "synced")
            self._see_haproxy(backend.node, "UP", WRITER, READER)

    def _drained_and_back(self, backend: Backend) -> None:
        haproxy = self._stack.haproxy
        with (
            self._step("node1, the writer, drained (clustercheckd drain): a clean switchover; its readers stay"),
            haproxy.connect(WRITER) as writing,
            haproxy.session_on(READER, backend.node) as reading,
        ):
            backend.service.command("drain")
            self._see(backend, 404, "disabled")
            self._see_haproxy(backend.node, "DOWN", WRITER)
            wait_for("HAProxy to cut the writer's session", lambda: _is_cut(writing), seconds=_STEP_SECONDS)
            self._seen("HAProxy closed the session of a client that writes, so that it connects again")
            writer = self._see_writes_on(self._others(backend.node))
            self._see_haproxy(backend.node, "NOLB", READER)
            self._see_readers_elsewhere(backend.node)
            if _is_cut(reading):
                message = "HAProxy closed the session of a client that reads"
                raise NotInTimeError(message)
            self._seen("the session of a client that reads on node1 stays open")
        with self._step(f"node1 back (clustercheckd undrain): all writes stay on {writer.name}"):
            backend.service.command("undrain")
            self._see(backend, 200, "synced")
            self._see_haproxy(backend.node, "UP", WRITER, READER)
            self._see_a_crowd_on(writer)

    def _killed_and_back(self, backend: Backend) -> None:
        with self._step("node2, the writer now, killed (kill -9)"):
            backend.node.kill()
            self._see(backend, 503, "unreachable")
            self._see_haproxy(backend.node, "DOWN", WRITER, READER)
            writer = self._see_writes_on(self._others(backend.node))
        with self._step(f"node2 started again: writes stay on {writer.name}, no fail-back"):
            self._stack.restart_node(backend.node)
            self._see(backend, 200, "synced")
            self._see_haproxy(backend.node, "UP", WRITER, READER)
            self._see_a_crowd_on(writer)

    def _others(self, node: Node) -> list[Node]:
        return [other for other in self._stack.nodes if other is not node]

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

    def _see_a_crowd_on(self, node: Node) -> None:
        with ThreadPoolExecutor(_CROWD) as clients:
            landed = Counter(clients.map(lambda _: self._stack.haproxy.lands_on(WRITER), range(_CROWD)))
        if landed != {node.name: _CROWD}:
            message = f"of {_CROWD} clients at once, these landed on each node: {dict(landed)}"
            raise NotInTimeError(message)
        self._seen(f"{_CROWD} clients at once, through HAProxy's writer port: all on {node.name}")

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


def _is_cut(session: "pymysql.Connection[Any]") -> bool:
    try:
        session.ping(reconnect=False)
    except pymysql.MySQLError:
        return True
    return False


class LiveView:
    """A table of all nodes, updated until Ctrl-C."""

    def __init__(self, stack: Stack, *, with_prometheus: bool = False) -> None:
        self._stack = stack
        self._prometheus: Prometheus | None = None
        if with_prometheus:
            self._prometheus = stack.prometheus_for(stack.services, stack.installation.directory)
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
            # Move home, overwrite, clear the rest: to clear the screen first would flicker.
            text = (f"{table}\n\n{hints}\n").replace("\n", "\x1b[K\n")
            print(f"\x1b[H{text}\x1b[J", end="", flush=True)
        elif table != self._last:
            print(f"\n{table}" if self._last else f"\n{hints}\n\n{table}", flush=True)
        self._last = table

    def _table(self) -> str:
        servers = self._stack.haproxy.servers()
        rows: list[tuple[str, ...]] = [
            ("node", "wsrep_local_state", "verdict", "reason", "HAProxy writer", "HAProxy readers", "ask it yourself")
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
                *self._prometheus_hints(),
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

    def _prometheus_hints(self) -> list[str]:
        if self._prometheus is None:
            return []
        address = f"http://{LOOPBACK}:{self._prometheus.port}"
        return [
            "In Prometheus:",
            f"  reasons     {address}/graph?g0.expr=clustercheckd_reason%3D%3D1&g0.tab=0&g0.range_input=5m",
            f"  alerts      {address}/alerts",
            "",
        ]

    def _fate(self, node: Node) -> str:
        ended_at = self._ended_at.get(node.name)
        if ended_at is None:
            return f"    (starts again after {_RESTART_SECONDS:.0f} s)"
        return f"    (stopped; starts again in {max(0.0, ended_at + _RESTART_SECONDS - time.monotonic()):.0f} s)"

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
