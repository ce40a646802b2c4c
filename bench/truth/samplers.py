"""The threads that sample the checkers' answers about a node, and its true state.

Each samples at its own pace.
"""

import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pymysql

from bench.script import script_command
from bench.truth.stretches import (
    DESYNCED,
    NOT_DESYNCED,
    SAYS_200,
    SAYS_503,
    TRUTH_SECONDS,
    UNREADABLE,
    UNUSABLE,
    USABLE,
    Sample,
)
from harness.galera import Node
from harness.service import Service

DEFAULT = "/"
"""The health check of the policy that nobody has changed."""

STRICT_IN_SYNC = (
    "/?available_when_donor=0&available_when_readonly=0&available_when_full=0"
    "&max_sync_wait=1"
)
"""Nothing is available that is not fully usable, or for which a read in sync has waited for a
second."""

_SCRIPT_SECONDS = 2.0  # HAProxy's default for a whole check
_JOIN_SECONDS = 15.0
_CONFLICT = 1213
_DESYNCED = ("2", "3")  # donor or desynced, joined: see wsrep_local_state

Answer = tuple[str, str]


class Sampler(threading.Thread):
    """Calls ask repeatedly and keeps the answers.

    ask: returns the kind of the answer and a description.
    """

    def __init__(
        self, name: str, ask: Callable[[], Answer], pace_seconds: float
    ) -> None:
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
            raise RuntimeError(
                f"the sampler {self.name} failed: {self.fault or 'it does not stop'}"
            ) from self.fault


def our_verdict(service: Service, target: str) -> Callable[[], Answer]:
    """Return a question that asks clustercheckd for this path and query."""

    def ask() -> Answer:
        try:
            reply = service.get(target)
        except OSError as fault:
            return SAYS_503, f"no answer: {fault}"
        return (
            SAYS_200 if reply.status == int(SAYS_200) else SAYS_503
        ), f"{reply.status} {reply.reason}"

    return ask


def script_verdict(node: Node, directory: Path) -> Callable[[], Answer]:
    """Return a question that runs the shell check.

    If it hangs, stop it after HAProxy's timeout and count a 503.
    """
    # timeout(1) stops the client that the script started, too.
    command = [
        "timeout",
        "-s",
        "KILL",
        f"{_SCRIPT_SECONDS}",
        *script_command(node, directory),
    ]

    def ask() -> Answer:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if not done.stdout:
            return SAYS_503, f"no answer within {_SCRIPT_SECONDS:g} s"
        kind = SAYS_200 if done.stdout.startswith("HTTP/1.1 200 ") else SAYS_503
        return kind, kind

    return ask


def truth(node: Node) -> Callable[[], Answer]:
    """Return a question that acts as a new client of the node.

    It logs in over TCP, reads a row and commits one.
    """

    def ask() -> Answer:
        began_at = time.monotonic()
        try:
            with node.connect_as_client(seconds=TRUTH_SECONDS) as client:
                client.query("SELECT id FROM writes ORDER BY id DESC LIMIT 1")
                client.query("INSERT INTO writes (node) VALUES ('truth')")
        except (pymysql.MySQLError, OSError) as fault:
            if fault.args and fault.args[0] == _CONFLICT:
                return USABLE, "conflict"
            return UNUSABLE, str(fault)
        took = time.monotonic() - began_at
        return (
            (USABLE, "committed")
            if took <= TRUTH_SECONDS
            else (UNUSABLE, f"committed, after {took:.2f} s")
        )

    return ask


def witness(node: Node) -> Callable[[], Answer]:
    """Return a question that logs in as a client and reads the node's state."""

    def ask() -> Answer:
        kind = NOT_DESYNCED
        try:
            with (
                node.connect_as_client(seconds=TRUTH_SECONDS) as connection,
                connection.cursor() as cursor,
            ):
                kind = UNREADABLE
                cursor.execute("SHOW STATUS LIKE 'wsrep_local_state'")
                row = cursor.fetchone()
        except (pymysql.MySQLError, OSError) as fault:
            return kind, f"cannot be read: {fault}"
        return (DESYNCED if row and row[1] in _DESYNCED else NOT_DESYNCED), f"{row}"

    return ask
