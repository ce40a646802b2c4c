"""`make demo`: a real Galera cluster behind HAProxy, as a live view or as a scripted tour."""

import argparse
import sys
import time
from typing import Any

import pymysql

from harness.galera import DEMO, WRITE
from harness.haproxy import READER, READER_QUESTION, WRITER, Backend
from harness.ports import LOOPBACK
from harness.process import ProcessEndedError, interrupt_once, let_nothing_interrupt
from harness.stack import Stack
from harness.waiting import NotInTimeError, tell_with_seconds, wait_for

_REFRESH_SECONDS = 0.5
_STEP_SECONDS = 60.0
_STALLED_WRITES = 250  # more than the reader's max_recv_queue
_ROW = "{:6}  {:33}  {:7}  {:16}  {:14}  {:15}  {}"
_TITLES = (
    "node",
    "wsrep_local_state",
    "verdict",
    "reason",
    "HAProxy writer",
    "HAProxy readers",
    "ask it yourself",
)


def main() -> int:
    """Run the demo.

    Return 0 if every step of the tour succeeded, or if the user stopped the live view.
    """
    parser = argparse.ArgumentParser(
        prog="make demo",
        description="Three real Galera nodes, clustercheckd and HAProxy.",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="run a scripted tour instead of the live view, then stop",
    )
    once = parser.parse_args().once
    interrupt_once()
    try:
        # For a planned reason, clustercheckd answers 404, so that HAProxy's readers keep their
        # sessions on the node.
        with Stack(
            tell=tell_with_seconds(),
            settings={"CLUSTERCHECK_DRAIN_STATUS": "404"},
        ) as stack:
            if once:
                Tour(stack).run()
            else:
                show_live(stack)
            let_nothing_interrupt()
    except KeyboardInterrupt:
        return 130 if once else 0
    except (NotInTimeError, ProcessEndedError) as fault:
        print(f"FAILED: {fault}", file=sys.stderr)
        return 1
    return 0


class Tour:
    """A tour of several steps.

    Each step waits until its effect shows, and prints how long that took.
    """

    def __init__(self, stack: Stack) -> None:
        self._haproxy = stack.haproxy
        self._stack = stack
        self._number = 0

    def run(self) -> None:
        """Run all steps. Raises `NotInTimeError` if the effect of one does not show in time."""
        first, second, _ = self._stack.backends
        self._step(
            "all up: every node answers 200 synced and is UP in HAProxy, writes go to node1"
        )
        for backend in self._stack.backends:
            self._see_well(backend)
        self._see_writes_on("node1")
        self._desync(second)
        self._stall(second, first)
        self._drain(first)
        self._kill(second)
        print(f"\nall {self._number} steps seen")

    def _desync(self, node2: Backend) -> None:
        self._step(
            "node2 desynced (SET GLOBAL wsrep_desync=ON): writers leave it, readers stay"
        )
        with node2.node.setting("wsrep_desync", "ON", back="OFF"):
            self._see(node2, 404, "desynced", writer="DOWN", readers="UP")
            self._step("node2 back (SET GLOBAL wsrep_desync=OFF)")
        self._see_well(node2)

    def _stall(self, node2: Backend, node1: Backend) -> None:
        self._step(
            "node2 stalls (FLUSH TABLES WITH READ LOCK) while clients write to node1:"
            " readers leave it"
        )
        with node2.node.stalled():
            self._see(node2, 404, "donor")
            with node1.node.connect_as_client() as client:
                for _ in range(_STALLED_WRITES):
                    client.query(WRITE)
            self._see(node2, 503, "lagging", target=READER_QUESTION, readers="DOWN")
        self._see_well(node2)

    def _drain(self, node1: Backend) -> None:
        self._step(
            "node1, the writer, drained (clustercheckd drain): a clean switchover; its readers stay"
        )
        with (
            self._haproxy.connect(WRITER) as writing,
            self._haproxy.session_on(READER, node1.node) as reading,
        ):
            node1.service.command("drain")
            self._see(node1, 404, "disabled", writer="DOWN", readers="NOLB")
            wait_for(
                "HAProxy to cut the writer's session",
                lambda: _is_cut(writing),
                seconds=_STEP_SECONDS,
            )
            self._seen(
                "HAProxy closed the session of a client that writes, so that it connects again"
            )
            writer = self._see_writes_on("node2", "node3")
            if _is_cut(reading):
                raise NotInTimeError("the session of a client that reads was closed")
            self._seen("the session of a client that reads on node1 stays open")
        self._step(f"node1 back (clustercheckd undrain): all writes stay on {writer}")
        node1.service.command("undrain")
        self._see_well(node1)
        self._see_writes_on(writer)

    def _kill(self, node2: Backend) -> None:
        self._step("node2, the writer now, killed (kill -9)")
        node2.node.kill()
        self._see(node2, 503, "unreachable", writer="DOWN", readers="DOWN")
        others = {"node1", "node3"}
        writer = self._see_writes_on(*others)
        (donor,) = others - {writer}
        self._step(
            f"node2 started again, with {donor} as its donor: writes stay on {writer}, no fail-back"
        )
        self._stack.restart_node(node2.node, donor=donor)
        self._see_well(node2)
        self._see_writes_on(writer)

    def _step(self, title: str) -> None:
        self._number += 1
        self._began = time.monotonic()
        print(f"\n{self._number}. {title}", flush=True)

    def _seen(self, what: str) -> None:
        print(f"   {time.monotonic() - self._began:6.2f} s  {what}", flush=True)

    def _see_well(self, backend: Backend) -> None:
        self._see(backend, 200, "synced", writer="UP", readers="UP")

    def _see(
        self,
        backend: Backend,
        status: int,
        reason: str,
        target: str = "/",
        **in_haproxy: str,
    ) -> None:
        """Wait for clustercheckd's answer, then for HAProxy's status of the node, by section."""
        backend.service.wait_for_verdict(
            status, reason, target=target, seconds=_STEP_SECONDS
        )
        self._seen(
            f"{backend.node.name}: clustercheckd answers {status} {reason} to {target}"
        )
        self._haproxy.wait_for_status(backend.node, seconds=_STEP_SECONDS, **in_haproxy)
        for section, status_there in in_haproxy.items():
            self._seen(f"{backend.node.name}: {status_there} in HAProxy's {section}")

    def _see_writes_on(self, *names: str) -> str:
        def written() -> str | None:
            try:
                with (
                    self._haproxy.connect(WRITER) as connection,
                    connection.cursor() as cursor,
                ):
                    cursor.execute(WRITE)
                    (name,) = cursor.fetchall()[0]
            except (pymysql.MySQLError, OSError):
                return None
            return name if name in names else None

        name = wait_for(
            f"a write through HAProxy to land on {' or '.join(names)}",
            written,
            seconds=_STEP_SECONDS,
        )
        self._seen(f"a write through HAProxy's writer port landed on {name}")
        return name


def _is_cut(session: "pymysql.Connection[Any]") -> bool:
    try:
        session.ping(reconnect=False)
    except pymysql.MySQLError:
        return True
    return False


def show_live(stack: Stack) -> None:
    """Show a table of all nodes, and what to try, at each change until interrupted."""
    shown = ""
    while True:
        for node in stack.nodes:
            if node.process.exit_code is not None:
                stack.cluster.start_node(node)
        text = "\n".join([*_table(stack), "", *_hints(stack)])
        if text != shown:
            # On a terminal, from its upper left corner.
            print(
                f"\x1b[H\x1b[J{text}" if sys.stdout.isatty() else f"\n{text}",
                flush=True,
            )
        shown = text
        time.sleep(_REFRESH_SECONDS)


def _table(stack: Stack) -> list[str]:
    rows = [_TITLES]
    for backend in stack.backends:
        writer, readers = (
            stack.haproxy.server_status(section, backend.node)
            for section in (WRITER, READER)
        )
        command = f"curl -i http://{LOOPBACK}:{backend.service.port}/"
        rows.append((backend.node.name, *_answer(backend), writer, readers, command))
    return [_ROW.format(*row) for row in rows]


def _answer(backend: Backend) -> tuple[str, str, str]:
    try:
        reply, known = backend.service.get(), backend.service.status()
    except OSError:
        return "?", "none", "no answer"
    node = known["node"] or {}
    return (
        node.get("wsrep_local_state_comment") or "not read",
        str(reply.status),
        reply.reason,
    )


def _hints(stack: Stack) -> list[str]:
    ports, second = stack.haproxy.ports, stack.nodes[1]
    as_admin = f"mariadb -S {second.socket} -e"
    account = f"-h {LOOPBACK} -u {DEMO} -p{DEMO} {DEMO}"
    return [
        "Through HAProxy:",
        f"  write       mariadb -P {ports[WRITER]} {account}",
        f"  read        mariadb -P {ports[READER]} {account}",
        f"  stats page  http://{LOOPBACK}:{ports['stats']}/",
        "",
        "Try, in another terminal:",
        f'  desync node2     {as_admin} "SET GLOBAL wsrep_desync=ON"    (and OFF)',
        f'  refuse queries   {as_admin} "SET GLOBAL wsrep_reject_queries=ALL"    (and NONE)',
        *(
            f"  kill {node.name}       kill -9 {node.process.pid}    (starts again)"
            for node in stack.nodes
        ),
        f"  drain node2      touch {stack.services[1].disabled_file}    (and rm)",
        f"  hang node2       kill -STOP {second.process.pid}    (and -CONT)",
        "",
        "Ctrl-C stops and removes everything.",
    ]


if __name__ == "__main__":
    sys.exit(main())
