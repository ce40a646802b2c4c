"""The threads that ask, at their own pace, what is said of a node and what is true of it."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql

from bench.truth.stretches import (
    DESYNCED,
    HEALTHY,
    SAYS_200,
    SAYS_503,
    TRUTH_SECONDS,
    UNHEALTHY,
    UNUSABLE,
    USABLE,
    Sample,
)
from harness.galera import ACCOUNT, PASSWORD, Node
from harness.haproxy import WRITER, HAProxy
from harness.service import Service

PACE_SECONDS = 0.1
LENIENT_PACE_SECONDS = 0.2
CLASSIC_PACE_SECONDS = 0.5
_CLASSIC_SECONDS = 2.0  # HAProxy's default for a whole check
_WITNESS_SECONDS = 1.0
_WRITE_PACE_SECONDS = 0.02
_JOIN_SECONDS = 15.0
_CONFLICT = 1213

_CLASSIC_CHECK = Path(__file__).parent / "classic_check.sh"
_STATUS = (
    "wsrep_local_state",
    "wsrep_cluster_status",
    "wsrep_connected",
    "wsrep_ready",
    "wsrep_evs_state",
    "Threads_connected",
)
_VARIABLES = ("wsrep_reject_queries", "read_only", "max_connections")
_WELL = {
    "wsrep_cluster_status": "Primary",
    "wsrep_connected": "ON",
    "wsrep_ready": "ON",
    "wsrep_reject_queries": "NONE",
    "read_only": "OFF",
}
EVS_AT_REST = "OPERATIONAL"

Answer = tuple[str, str]


class Sampler(threading.Thread):
    """Asks one question again and again; ask gives the kind of the answer and its words."""

    def __init__(self, name: str, ask: Callable[[], Answer], pace_seconds: float = PACE_SECONDS) -> None:
        super().__init__(name=name, daemon=True)
        self.samples: list[Sample] = []
        self.fault: Exception | None = None
        self._ask = ask
        self._pace_seconds = pace_seconds
        self._ending = threading.Event()

    def run(self) -> None:
        """Ask until told to end."""
        try:
            while not self._ending.is_set():
                began_at = time.monotonic()
                kind, seen = self._ask()
                ended_at = time.monotonic()
                self.samples.append(Sample(began_at, ended_at, kind, seen))
                self._ending.wait(max(0.0, began_at + self._pace_seconds - ended_at))
        except Exception as fault:  # noqa: BLE001 (a sampler that died must not look like one that saw nothing)
            self.fault = fault

    def end(self) -> None:
        """Have it end, once the question under way is answered."""
        self._ending.set()

    def finish(self) -> None:
        """Wait for its end. Raises RuntimeError if it did not get there by itself."""
        self.end()
        self.join(_JOIN_SECONDS)
        if self.fault is not None or self.is_alive():
            message = f"the sampler {self.name} failed: {self.fault or 'it does not end'}"
            raise RuntimeError(message) from self.fault


def our_verdict(service: Service, target: str = "/") -> Callable[[], Answer]:
    """Ask clustercheckd."""

    def ask() -> Answer:
        try:
            reply = service.get(target)
        except OSError as fault:
            return SAYS_503, f"no answer: {fault}"
        return (SAYS_200 if reply.status == int(SAYS_200) else SAYS_503), f"{reply.status} {reply.reason}"

    return ask


def classic_verdict(node: Node) -> Callable[[], Answer]:
    """Run the shell check; one that hangs is ended after HAProxy's patience, and counts as a 503 then."""
    environ = {**os.environ, "MYSQL_PWD": PASSWORD}
    command = [str(_CLASSIC_CHECK), str(node.socket), ACCOUNT]

    def ask() -> Answer:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environ, start_new_session=True, text=True
        )
        try:
            answer, _ = process.communicate(timeout=_CLASSIC_SECONDS)
        except subprocess.TimeoutExpired:
            # The client it started holds the pipe as well.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return SAYS_503, f"no answer within {_CLASSIC_SECONDS:g} s"
        kind = SAYS_200 if answer.startswith("HTTP/1.1 200 ") else SAYS_503
        return kind, f"{kind} {answer.rstrip().rpartition(chr(10))[2]}"

    return ask


def truth(node: Node) -> Callable[[], Answer]:
    """Be a fresh client of the node: log in over TCP, read a row, commit one."""

    def ask() -> Answer:
        began_at = time.monotonic()
        try:
            with node.connect_as_client(seconds=TRUTH_SECONDS) as connection, connection.cursor() as cursor:
                cursor.execute("SELECT id FROM writes ORDER BY id DESC LIMIT 1")
                cursor.execute("INSERT INTO writes (node) VALUES ('truth')")
        except (pymysql.MySQLError, OSError) as fault:
            if fault.args and fault.args[0] == _CONFLICT:
                return USABLE, "conflict"
            return UNUSABLE, str(fault)
        took = time.monotonic() - began_at
        return (USABLE, "committed") if took <= TRUTH_SECONDS else (UNUSABLE, f"committed, after {took:.2f} s")

    return ask


class Witness:
    """Reads the variables that tell a healthy node, over one connection, independently of clustercheckd."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._connection: pymysql.Connection[Any] | None = None

    def ask(self) -> Answer:
        """Read them."""
        try:
            if self._connection is None:
                self._connection = self._node.connect(seconds=_WITNESS_SECONDS)
            with self._connection.cursor() as cursor:
                cursor.execute(f"SHOW STATUS WHERE Variable_name IN {_STATUS}")
                values = {str(name): str(value) for name, value in cursor.fetchall()}
                cursor.execute(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN {_VARIABLES}")
                values.update({str(name): str(value) for name, value in cursor.fetchall()})
        except (pymysql.MySQLError, OSError) as fault:
            if self._connection is not None:
                with contextlib.suppress(pymysql.MySQLError, OSError):
                    self._connection.close()
                self._connection = None
            return UNHEALTHY, f"cannot be read: {fault}"
        return read_by_eye(values)


def read_by_eye(values: dict[str, str]) -> Answer:
    """Say whether these variables look healthy, as an administrator would; the words name what is not as usual."""
    odd = [f"{name} {values.get(name)}" for name, well in _WELL.items() if values.get(name) != well]
    if int(values["Threads_connected"]) >= int(values["max_connections"]):
        odd.append("full")
    state = values.get("wsrep_local_state")
    kind = UNHEALTHY if odd else {"4": HEALTHY, "2": DESYNCED, "3": DESYNCED}.get(str(state), UNHEALTHY)
    if values.get("wsrep_evs_state") != EVS_AT_REST:
        odd.append(f"wsrep_evs_state {values.get('wsrep_evs_state')}")
    return kind, ", ".join([f"wsrep_local_state {state}", *odd])


class WritingClient(threading.Thread):
    """An application: one session through HAProxy's writer port that commits row after row, and reconnects."""

    def __init__(self, haproxy: HAProxy) -> None:
        super().__init__(name="writing client", daemon=True)
        self.committed = 0
        self.failed = 0
        self._haproxy = haproxy
        self._ending = threading.Event()

    def run(self) -> None:
        """Write until told to end."""
        while not self._ending.is_set():
            try:
                with self._haproxy.connect(WRITER) as connection, connection.cursor() as cursor:
                    while not self._ending.wait(_WRITE_PACE_SECONDS):
                        cursor.execute("INSERT INTO writes (node) VALUES (@@wsrep_node_name)")
                        self.committed += 1
            except (pymysql.MySQLError, OSError):
                self.failed += 1
                self._ending.wait(PACE_SECONDS)

    def end(self) -> None:
        """Have it end."""
        self._ending.set()
