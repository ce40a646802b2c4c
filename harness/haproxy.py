"""A real HAProxy that runs haproxy.cfg.example, with this machine's ports in it."""

import csv
import io
import os
import re
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pymysql

from harness.galera import Node, connect_as_client
from harness.ports import LOOPBACK, Ports
from harness.process import Process
from harness.service import Service, get, read_to_end
from harness.waiting import wait_for

EXAMPLE = Path(__file__).parent.parent / "haproxy.cfg.example"

WRITER, READER = "writer", "readers"
WRITER_QUESTION = "/?available_when_readonly=0"
READER_QUESTION = "/?available_when_donor=1&max_recv_queue=200"
"""The targets of the two sections' health checks."""

_SECONDS = 10
_SESSIONS_TO_FIND_ONE = 60
"""How many sessions to open until one is on a given node: slowstart sends few to a node that has
just returned."""


class Named(Protocol):
    """A node, a real one or a mock."""

    name: str


class Server(NamedTuple):
    """One server line of HAProxy. port: that of the database. check_port: that of clustercheckd."""

    name: str
    port: int
    check_port: int
    address: str = LOOPBACK


class Backend(NamedTuple):
    """A node and the clustercheckd beside it."""

    node: Node
    service: Service

    @property
    def server(self) -> Server:
        """Return the server line of HAProxy for both."""
        return Server(
            self.node.name, self.node.port, self.service.port, self.node.address
        )


class HAProxy:
    """One HAProxy in front of the nodes, run as by its systemd unit: a master process and a worker.

    servers: node1, node2, ..., in the order of the file. text: the configuration, with the
    example's addresses; None for the example itself. name: this HAProxy's name among its peers.
    replace: further replacements in the text.
    """

    def __init__(
        self,
        directory: Path,
        ports: Ports,
        servers: Sequence[Server],
        *,
        text: str | None = None,
        name: str = "lb1",
        replace: Mapping[str, str] | None = None,
    ) -> None:
        self.ports = {name: ports.free() for name in (WRITER, READER, "stats", "peers")}
        self.log = directory / f"haproxy-{name}.log"
        self.master_socket = directory / f"master-{name}.sock"
        self._admin_socket = directory / f"haproxy-{name}.sock"
        config = directory / f"haproxy-{name}.cfg"
        self._command = ["haproxy", "-Ws", "-S", str(self.master_socket)]
        self._command += ["-L", name, "-f", str(config)]
        text = EXAMPLE.read_text() if text is None else text
        config.write_text(self._adapted(text, servers, replace or {}))

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._admin_socket.unlink(missing_ok=True)
        self.process = Process("haproxy", self._command, self.log)
        wait_for(
            "haproxy to know its servers",
            lambda: self.process.check() and self.servers(),
            seconds=_SECONDS,
        )

    def restart(self) -> None:
        """Stop it as systemd does, and start it again."""
        self.process.stop()
        self.start()

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self.process.kill()

    def reload(self) -> None:
        """Replace the worker with a new one, as `systemctl reload` does, and wait for it."""
        before = wait_for("a worker of HAProxy", self.worker, seconds=_SECONDS)
        self.process.send(signal.SIGUSR2)
        wait_for(
            "a new worker of HAProxy",
            lambda: self.worker() not in {0, before},
            seconds=_SECONDS,
        )

    def worker(self) -> int:
        """Return the process id of the worker that answers; 0 if none does."""
        return self.info("Pid")

    def info(self, name: str) -> int:
        """Return a number that the worker tells of itself; 0 if no worker answers."""
        try:
            found = re.search(rf"^{name}: (\d+)$", self.ask("show info"), re.MULTILINE)
        except OSError:
            return 0
        return int(found[1]) if found else 0

    def servers(self) -> dict[tuple[str, str], dict[str, str]]:
        """Return the rows of `show stat` by (section, server), with the columns of its CSV."""
        try:
            rows = csv.DictReader(io.StringIO(self.ask("show stat").lstrip("# ")))
        except OSError:
            return {}
        return {(row["pxname"], row["svname"]): row for row in rows}

    def server_status(self, section: str, node: Named) -> str:
        """Return HAProxy's status of one server: UP, DOWN, NOLB, UP 1/2 ..."""
        return self.servers().get((section, node.name), {}).get("status", "unknown")

    def wait_for_status(
        self, node: Named, *, seconds: float = 30.0, **wanted: str
    ) -> None:
        """Wait for HAProxy's status of a node.

        wanted: the status by section, such as `writer="UP"`.
        """
        wait_for(
            f"HAProxy to have {node.name} {wanted}",
            lambda: all(
                self.server_status(section, node) == status
                for section, status in wanted.items()
            ),
            seconds=seconds,
        )

    def ask(self, command: str) -> str:
        """Send one command to the admin socket, and return the answer."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_SECONDS)
            connection.connect(str(self._admin_socket))
            connection.sendall(f"{command}\n".encode())
            return read_to_end(connection).decode()

    def stats(self) -> str:
        """Return the HTML of the stats page."""
        return get(self.ports["stats"]).body

    def connect(self, section: str) -> "pymysql.Connection[Any]":
        """Connect to the database as a client does."""
        return connect_as_client(self.ports[section])

    def session_on(self, section: str, node: Node) -> "pymysql.Connection[Any]":
        """Open sessions until one is on the node, and keep that one."""
        with ExitStack() as others:
            for _ in range(_SESSIONS_TO_FIND_ONE):
                session = self.connect(section)
                if name_of(session) == node.name:
                    return session
                others.push(session)
        raise RuntimeError(f"no session in {section} landed on {node.name}")

    def lands_on(self, section: str) -> str | None:
        """Return the name of the node that a new client gets; None if it gets none."""
        try:
            with self.connect(section) as connection:
                return name_of(connection)
        except (pymysql.MySQLError, OSError):
            return None

    def _adapted(
        self, text: str, servers: Sequence[Server], replace: Mapping[str, str]
    ) -> str:
        if os.geteuid() != 0:
            text = re.sub(r"^ *(user|group|chroot) .*\n", "", text, flags=re.MULTILINE)
        # A small cluster has fewer nodes than the example.
        absent = rf"^ *server node[{len(servers) + 1}-9] 10\.0\.0\..*\n"
        text = re.sub(absent, "", text, flags=re.MULTILINE)
        replacements = {
            "/var/lib/haproxy/admin.sock": str(self._admin_socket),
            "bind :3306": f"bind {LOOPBACK}:{self.ports[WRITER]}",
            "bind :3307": f"bind {LOOPBACK}:{self.ports[READER]}",
            f"{LOOPBACK}:8404": f"{LOOPBACK}:{self.ports['stats']}",
            f"{LOOPBACK}:10306": f"{LOOPBACK}:{self.ports['peers']}",
            **{
                f"10.0.0.1{number}:3306": f"{server.address}:{server.port} port {server.check_port}"
                for number, server in enumerate(servers, 1)
            },
            **replace,
        }
        for old, new in replacements.items():
            text = text.replace(old, new)
        if left := [
            line for line in text.splitlines() if re.match(r" *[^#]*\b10\.0\.0\.", line)
        ]:
            raise RuntimeError(
                f"the configuration still has addresses of the example: {left}"
            )
        return text


def name_of(session: "pymysql.Connection[Any]") -> str:
    """Return the name of the node that a session is on."""
    with session.cursor() as cursor:
        cursor.execute("SELECT @@wsrep_node_name")
        return str(cursor.fetchall()[0][0])
