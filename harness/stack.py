"""The whole stack: Galera nodes, a clustercheckd for each, HAProxy in front."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from harness.block import Block
from harness.galera import Cluster, Installation, Node
from harness.haproxy import READER, WRITER, Backend, HAProxy
from harness.prometheus import Prometheus
from harness.service import Service
from harness.waiting import wait_for


class Stack(Block):
    """A running cluster, started when the `with` block begins and removed when it ends.

    settings: more settings of clustercheckd, by node name. installation: one that exists already; without it, the stack
    makes its own.
    """

    def __init__(
        self,
        size: int = 3,
        tell: Callable[[str], None] = lambda _: None,
        settings: Mapping[str, Mapping[str, str]] | None = None,
        installation: Installation | None = None,
    ) -> None:
        self._size = size
        self._tell = tell
        self._settings = settings or {}
        self._given = installation
        self._exits = ExitStack()

    def close(self) -> None:
        """Stop and remove everything."""
        self._tell("stopping and removing everything that was started")
        self._exits.close()

    def service(self, node: Node, **environ: str) -> Service:
        """Start another clustercheckd for a node, with these settings, and wait until it answers."""
        service = Service.of(node, self.installation.directory, self.installation.ports.free(), **environ)
        self._exits.callback(service.process.kill)
        service.wait_until_up()
        return service

    def haproxy_for(self, backends: Sequence[Backend], directory: Path, text: str | None = None) -> HAProxy:
        """Start an HAProxy with its files in directory, and wait until it answers. text: see `HAProxy`."""
        haproxy = HAProxy(directory, self.installation.ports, [backend.server for backend in backends], text=text)
        self._exits.callback(haproxy.kill)
        haproxy.wait_until_up()
        return haproxy

    def prometheus_for(self, services: Sequence[Service], directory: Path, haproxy: int | None = None) -> Prometheus:
        """Start a Prometheus that scrapes services, with its files in directory, and wait until it answers.

        haproxy: the port of an HAProxy that exports its metrics.
        """
        prometheus = Prometheus(directory, self.installation.ports.free(), services, haproxy=haproxy)
        self._exits.callback(prometheus.process.kill)
        prometheus.wait_until_up()
        return prometheus

    def restart_node(self, node: Node) -> None:
        """Start a node that has ended, and wait until it is Synced."""
        self.cluster.start_node(node)
        self.cluster.wait_until_synced(node)

    def wait_until_whole(self) -> None:
        """Wait until every node is a Synced member of one cluster, available, and UP in HAProxy."""
        self.cluster.wait_for_size(len(self.nodes))
        for backend in self.backends:
            backend.service.wait_for_verdict(200, "synced")
            for section in (WRITER, READER):
                self.haproxy.wait_for_status(section, backend.node, "UP")
            # A member that has just come back can block the commits of all members, although all say Synced.
            wait_for(f"{backend.node.name} to commit", backend.node.commits)

    def _start(self) -> None:
        """Start everything, which takes about 15 s."""
        if self._given is None:
            self._tell("installing a MariaDB server")
        self.installation = self._given or self._exits.enter_context(Installation())
        self.cluster = Cluster(self.installation, self._size)
        self.nodes = self.cluster.nodes
        for node in self.nodes:
            self._tell(f"starting {node.name}")
            self.cluster.start_node(node, bootstrap=node is self.nodes[0])
            self.cluster.wait_until_synced(node)
        self._tell("starting clustercheckd beside each node, and HAProxy in front")
        self.backends = [Backend(node, self.service(node, **self._settings.get(node.name, {}))) for node in self.nodes]
        self.services = [backend.service for backend in self.backends]
        self.haproxy = self.haproxy_for(self.backends, self.installation.directory)
