"""A real HAProxy that runs haproxy.cfg.example, with this machine's ports in place of the example's addresses."""

import csv
import io
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql

from harness.galera import Node, connect_as_client
from harness.ports import LOOPBACK, Ports
from harness.process import Process
from harness.service import Service, read_to_end
from harness.waiting import wait_for

EXAMPLE = Path(__file__).parent.parent / "haproxy.cfg.example"

WRITER, READER = "galera_writer", "galera_reader"
READER_QUESTION = "/?available_when_donor=1&max_recv_queue=100"
"""What the reader's section asks."""

_SECONDS = 10
_TRIES = 20


@dataclass(frozen=True)
class Backend:
    """A node and the clustercheckd beside it, as one server line of HAProxy."""

    node: Node
    service: Service


class HAProxy:
    """One HAProxy process in front of the nodes."""

    def __init__(
        self,
        directory: Path,
        ports: Ports,
        backends: Sequence[Backend],
        *,
        replace: Mapping[str, str] | None = None,
    ) -> None:
        self.ports = {WRITER: ports.free(), READER: ports.free(), "stats": ports.free()}
        self.log = directory / "haproxy.log"
        self._admin_socket = directory / "haproxy.sock"
        config = directory / "haproxy.cfg"
        config.write_text(self._config(backends, replace or {}))
        self.process = Process("haproxy", ["haproxy", "-db", "-f", str(config)], self.log)

    def wait_until_up(self) -> None:
        """Wait until it answers on its admin socket."""
        wait_for("haproxy to answer", lambda: self.process.check() and self._admin_socket.exists(), seconds=_SECONDS)
        wait_for("haproxy to know its servers", self.servers, seconds=_SECONDS)

    def servers(self) -> dict[tuple[str, str], dict[str, str]]:
        """Read `show stat`: a row by (section, server), columns as in the stats page's CSV."""
        try:
            rows = csv.DictReader(io.StringIO(self.ask("show stat").lstrip("# ")))
            return {(row["pxname"], row["svname"]): row for row in rows}
        except OSError:
            return {}

    def server_status(self, section: str, node: Node) -> str:
        """Give HAProxy's word for one server: UP, DOWN, NOLB, UP 1/2 ..."""
        return self.servers().get((section, node.name), {}).get("status", "unknown")

    def wait_for_status(self, section: str, node: Node, wanted: str, *, seconds: float = 30.0) -> None:
        """Wait for HAProxy's word for one server to be this one."""
        wait_for(
            f"HAProxy to have {node.name} {wanted} in {section}",
            lambda: self.server_status(section, node) == wanted,
            seconds=seconds,
        )

    def ask(self, command: str) -> str:
        """Send one command to the admin socket."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_SECONDS)
            connection.connect(str(self._admin_socket))
            connection.sendall(f"{command}\n".encode())
            return read_to_end(connection).decode()

    def connect(self, section: str) -> "pymysql.Connection[Any]":
        """Connect to the database as a client does."""
        return connect_as_client(self.ports[section])

    def session_on(self, section: str, node: Node) -> "pymysql.Connection[Any]":
        """Open sessions until one is on the node, and keep that one."""
        for _ in range(_TRIES):
            session = self.connect(section)
            with session.cursor() as cursor:
                cursor.execute("SELECT @@wsrep_node_name")
                if cursor.fetchone() == (node.name,):
                    return session
            session.close()
        message = f"no session in {section} landed on {node.name}"
        raise RuntimeError(message)

    def lands_on(self, section: str) -> str | None:
        """Name the node a new client lands on; None where it lands on none."""
        try:
            with self.connect(section) as connection, connection.cursor() as cursor:
                cursor.execute("SELECT @@wsrep_node_name")
                row = cursor.fetchone()
                return str(row[0]) if row else None
        except (pymysql.MySQLError, OSError):
            return None

    def _config(self, backends: Sequence[Backend], replace: Mapping[str, str]) -> str:
        text = EXAMPLE.read_text()
        for old, new in {
            "log /dev/log local0": "log stdout format raw local0",
            "/run/haproxy/admin.sock mode 660": f"{self._admin_socket} mode 600",
            "bind :3306": f"bind {LOOPBACK}:{self.ports[WRITER]}",
            "bind :3307": f"bind {LOOPBACK}:{self.ports[READER]}",
            "bind :8404": f"bind {LOOPBACK}:{self.ports['stats']}",
            **replace,
        }.items():
            text = _replaced(text, old, new)
        for number, backend in enumerate(backends, 1):
            old = f"server node{number} 10.0.0.1{number}:3306"
            new = f"server {backend.node.name} {LOOPBACK}:{backend.node.port} port {backend.service.port}"
            text = _replaced(text, old, new)
        # A cluster of fewer nodes has fewer servers.
        beyond = rf"[{len(backends) + 1}-9]"
        return re.sub(rf"^ *(server node{beyond} |stick match .*/node{beyond}\)).*\n", "", text, flags=re.MULTILINE)


def _replaced(text: str, old: str, new: str) -> str:
    if old not in text:
        message = f"haproxy.cfg.example no longer has: {old}"
        raise RuntimeError(message)
    return text.replace(old, new)
