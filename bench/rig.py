"""The processes under test: a Galera node, clustercheckd with default settings, and the floor."""

import os
import platform
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from bench import load
from harness.block import Block
from harness.galera import Cluster, Installation
from harness.ports import listens
from harness.process import Process
from harness.service import PROGRAM, Service, service_beside
from harness.waiting import wait_for

INTERVAL_SECONDS = 0.25
"""The default poll interval, which every row uses."""


class Rig(Block):
    """Everything that takes part.

    It is started when a row first needs it, and removed when the `with` block ends.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell
        self._exits = ExitStack()

    def _start(self) -> None:
        """Start the node and clustercheckd, which takes about 10 s."""
        self.tell("starting a Galera node and clustercheckd")
        self.installation = self._exits.enter_context(Installation())
        cluster = Cluster(self.installation, size=1)
        cluster.start()
        self.node = cluster.nodes[0]
        self.service = self._exits.enter_context(self.beside())
        self.service.wait_for_verdict(200, "synced")

    def close(self) -> None:
        """Stop and remove everything."""
        self._exits.close()

    def beside(
        self, held: socket.socket | None = None, command: Sequence[str] = PROGRAM
    ) -> AbstractContextManager[Service]:
        """Run a clustercheckd for the node. The arguments are those of `service_beside`."""
        installation = self.installation
        return service_beside(
            self.node, installation.directory, installation.ports, held, command
        )

    @cached_property
    def floor(self) -> "Floor":
        """The floor, whose answer equals clustercheckd's to the last byte."""
        floor = Floor(
            self.installation.directory,
            self.installation.ports.free(),
            self.service.get().body,
        )
        self._exits.callback(floor.process.kill)
        if (ours := load.ask(self.service.port)) != (constant := load.ask(floor.port)):
            raise load.WrongAnswerError(
                f"the floor answers {constant!r}, clustercheckd {ours!r}"
            )
        return floor

    @contextmanager
    def service_paused(self) -> Iterator[None]:
        """Stop clustercheckd with SIGSTOP, so that its polls do not count for the other side."""
        with self.service.process.paused():
            yield
        self.service.wait_for_verdict(200, "synced")

    def description(self) -> str:
        """Return the machine and the versions, as one line."""
        server = self.node.sql("SELECT VERSION()")[0][0].partition("-")[0]
        provider = (self.node.status("wsrep_provider_version") or "").partition("(")[0]
        return (
            f"{len(os.sched_getaffinity(0))} cores, load average {os.getloadavg()[2]:.1f},"
            f" Linux {platform.release()}, Python {platform.python_version()},"
            f" uvicorn {version('uvicorn')}, MariaDB {server}, Galera {provider}"
        )


class Floor:
    """The process of bench/floor.py."""

    def __init__(self, directory: Path, port: int, body: str) -> None:
        self.port = port
        command = [sys.executable, "-m", "bench.floor", str(port), body]
        self.process = Process("floor", command, directory / "floor.log")
        wait_for("the floor to listen", lambda: self.process.check() and listens(port))


@contextmanager
def on_cores_of_their_own(servers: Sequence[Process]) -> Iterator[None]:
    """Pin the servers to one core and this process, the load generator, to another.

    With one core, pin nothing.
    """
    allowed = sorted(os.sched_getaffinity(0))
    with ExitStack() as exits:
        if len(allowed) > 1:
            for pid, core in [
                (0, allowed[1]),
                *((server.pid, allowed[0]) for server in servers),
            ]:
                os.sched_setaffinity(pid, {core})
                exits.callback(os.sched_setaffinity, pid, set(allowed))
        yield
