"""The threads that sample, each at its own pace, the checkers' answers about a node and its true state."""

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
    """Calls ask repeatedly and keeps the answers. ask: returns the kind of the answer and a description."""

    def __init__(self, name: str, ask: Callable[[], Answer], pace_seconds: float = PACE_SECONDS) -> None:
        super().__init__(name=name, daemon=True)
        self.samples: list[Sample] = []
        self.fault: Exception | None = None
        self._ask = ask
        self._pace_seconds = pace_seconds
        self._ending = threading.Event()

    def run(self) -> None:
        """Ask until `end` is called."""
        try:
            while not self._ending.is_set():
                began_at = time.monotonic()
                kind, seen = self._ask()
                ended_at = time.monotonic()
                self.samples.append(Sample(began_at, ended_at, kind, seen))
                self._ending.wait(max(0.0, began_at + self._pace_seconds - ended_at))
        except Exception as fault:  # noqa: BLE001 (`finish` raises it)
            self.fault = fault

    def end(self) -> None:
        """Stop after the current question."""
        self._ending.set()

    def finish(self) -> None:
        """Stop, and wait for the thread. Raises RuntimeError if it failed or does not stop."""
        self.end()
        self.join(_JOIN_SECONDS)
        if self.fault is not None or self.is_alive():
            message = f"the sampler {self.name} failed: {self.fault or 'it does not stop'}"
            raise RuntimeError(message) from self.fault


def our_verdict(service: Service, target: str = "/") -> Callable[[], Answer]:
    """Return a question that asks clustercheckd."""

    def ask() -> Answer:
        try:
            reply = service.get(target)
        except OSError as fault:
            return SAYS_503, f"no answer: {fault}"
        return (SAYS_200 if reply.status == int(SAYS_200) else SAYS_503), f"{reply.status} {reply.reason}"

    return ask


def classic_verdict(node: Node) -> Callable[[], Answer]:
    """Return a question that runs the shell check. If it hangs, stop it after HAProxy's timeout and count a 503."""
    environ = {**os.environ, "MYSQL_PWD": PASSWORD}
    command = [str(_CLASSIC_CHECK), str(node.socket), ACCOUNT]

    def ask() -> Answer:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environ, start_new_session=True, text=True
        )
        try:
            answer, _ = process.communicate(timeout=_CLASSIC_SECONDS)
        except subprocess.TimeoutExpired:
            # The mysql client that it started holds the pipe open too.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return SAYS_503, f"no answer within {_CLASSIC_SECONDS:g} s"
        kind = SAYS_200 if answer.startswith("HTTP/1.1 200 ") else SAYS_503
        return kind, f"{kind} {answer.rstrip().rpartition(chr(10))[2]}"

    return ask


def truth(node: Node) -> Callable[[], Answer]:
    """Return a question that acts as a new client of the node: log in over TCP, read a row, commit one."""

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
    """Reads the variables that show a node's health, over one connection, independently of clustercheckd."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._connection: pymysql.Connection[Any] | None = None

    def ask(self) -> Answer:
        """Read the variables and judge them."""
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
    """Judge these variables as an administrator would. The description names the unusual ones."""
    odd = [f"{name} {values.get(name)}" for name, well in _WELL.items() if values.get(name) != well]
    if int(values["Threads_connected"]) >= int(values["max_connections"]):
        odd.append("full")
    state = values.get("wsrep_local_state")
    kind = UNHEALTHY if odd else {"4": HEALTHY, "2": DESYNCED, "3": DESYNCED}.get(str(state), UNHEALTHY)
    if values.get("wsrep_evs_state") != EVS_AT_REST:
        odd.append(f"wsrep_evs_state {values.get('wsrep_evs_state')}")
    return kind, ", ".join([f"wsrep_local_state {state}", *odd])


class WritingClient(threading.Thread):
    """An application: commits row after row in a session through HAProxy's writer port; reconnects after a fault."""

    def __init__(self, haproxy: HAProxy) -> None:
        super().__init__(name="writing client", daemon=True)
        self.committed = 0
        self.failed = 0
        self._haproxy = haproxy
        self._ending = threading.Event()

    def run(self) -> None:
        """Write until `end` is called."""
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
        """Stop after the current row."""
        self._ending.set()
