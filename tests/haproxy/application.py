"""Applications that work through HAProxy on real nodes, and count what fails."""

import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import pymysql

from harness.haproxy import WRITER, HAProxy, name_of

_PAUSE_SECONDS = 0.05
_TRANSACTIONS_A_SESSION = 20


@dataclass
class Counts:
    """What an application has seen. Times are those of time.monotonic."""

    done: list[tuple[float, str]] = field(default_factory=list)
    """When a transaction was committed, and on which node."""
    cut: list[str] = field(default_factory=list)
    """The faults of sessions that ended in the middle of a transaction, which is lost then."""
    refused: list[str] = field(default_factory=list)
    """The faults of connection attempts."""


class Application:
    """One client with one session at a time, from a pool that renews it after some transactions."""

    def __init__(self, haproxy: HAProxy, section: str) -> None:
        self.counts = Counts()
        self._haproxy = haproxy
        self._section = section
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End."""
        self._done.set()
        self._thread.join()

    def committed_since(self, moment: float) -> int:
        """Count the transactions committed since then."""
        return sum(at > moment for at, _ in self.counts.done)

    def _run(self) -> None:
        while not self._done.is_set():
            try:
                session = self._haproxy.connect(self._section)
            except pymysql.MySQLError as fault:
                self.counts.refused.append(repr(fault))
                self._done.wait(_PAUSE_SECONDS)
                continue
            try:
                self._use(session)
            except pymysql.MySQLError as fault:
                self.counts.cut.append(repr(fault))
            finally:
                session.close()

    def _use(self, session: "pymysql.Connection[Any]") -> None:
        done = 0
        node = name_of(session)
        while not self._done.wait(_PAUSE_SECONDS) and done < _TRANSACTIONS_A_SESSION:
            with session.cursor() as cursor:
                if self._section == WRITER:
                    cursor.execute("INSERT INTO writes (node) VALUES (@@wsrep_node_name)")
                else:
                    cursor.execute("SELECT MAX(id) FROM writes")
            self.counts.done.append((time.monotonic(), node))
            done += 1
