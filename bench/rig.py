"""The processes under test: a one-node Galera cluster, clustercheckd with default settings, floor and shell check."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from bench import load
from bench.machine import description
from bench.xinetd import ShellCheck
from harness.block import Block
from harness.galera import Cluster, Installation
from harness.process import Process
from harness.service import Service
from harness.waiting import wait_for

INTERVAL_SECONDS = 0.25
"""The default poll interval, which every row uses."""

_FLOOR_SECONDS = 20.0
_PACKAGES = ("uvicorn", "uvloop", "httptools", "fastapi", "aiomysql")


class Rig(Block):
    """Everything that takes part, started when a row first needs it and removed when the `with` block ends."""

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
        self.service = Service.of(self.node, self.installation.directory, self.installation.ports.free())
        self._exits.callback(self.service.process.kill)
        self.service.wait_until_up()
        self.service.wait_for_verdict(200, "synced")

    def close(self) -> None:
        """Stop and remove everything."""
        self._exits.close()

    @cached_property
    def floor(self) -> "Floor":
        """The floor, whose answer equals clustercheckd's to the last byte."""
        floor = Floor(self.installation.directory, self.installation.ports.free(), self.service.get().body)
        self._exits.callback(floor.process.kill)
        floor.wait_until_up()
        if (ours := load.ask(self.service.port)) != (constant := load.ask(floor.port)):
            message = f"the floor answers {constant!r}, clustercheckd {ours!r}"
            raise load.WrongAnswerError(message)
        return floor

    @cached_property
    def shell_check(self) -> ShellCheck:
        """Xinetd and the shell check."""
        check = ShellCheck(self.node, self.installation.directory, self.installation.ports.free(), self.tell)
        self._exits.callback(check.process.kill)
        return check

    @contextmanager
    def service_paused(self) -> Iterator[None]:
        """Stop clustercheckd with SIGSTOP, so that its polls do not count for the other side."""
        self.service.process.send(signal.SIGSTOP)
        try:
            yield
        finally:
            self.service.process.send(signal.SIGCONT)
            self.service.wait_for_verdict(200, "synced")

    def node_cpu_seconds(self) -> float:
        """Return the CPU time of mariadbd."""
        return self.node.process.cpu_seconds

    def node_idle_share(self, seconds: float) -> float:
        """Return the share of a core that mariadbd uses when nothing queries it."""
        with self.service_paused():
            before = self.node_cpu_seconds()
            time.sleep(seconds)
            return (self.node_cpu_seconds() - before) / seconds

    def description(self) -> str:
        """Return the machine and the versions, as one line."""
        server = self.node.sql("SELECT VERSION()")[0][0].partition("-")[0]
        provider = (self.node.status("wsrep_provider_version") or "").partition("(")[0]
        packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
        python = ".".join(map(str, sys.version_info[:3]))
        return f"{description()}; Python {python}, {packages}; MariaDB {server}, Galera {provider}"


class Floor:
    """The process of bench/floor.py."""

    def __init__(self, directory: Path, port: int, body: str) -> None:
        self.port = port
        command = [sys.executable, "-m", "bench.floor", str(port), body]
        self.process = Process("floor", command, directory / "floor.log")

    def wait_until_up(self) -> None:
        """Wait for the first answer."""
        wait_for("the floor to answer", lambda: self.process.check() and self._answers(), seconds=_FLOOR_SECONDS)

    def _answers(self) -> bool:
        try:
            return bool(load.ask(self.port))
        except OSError:
            return False
