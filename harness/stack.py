"""The whole stack: Galera nodes, a clustercheckd for each, HAProxy in front."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from harness.block import Block
from harness.galera import Cluster, Installation, Node
from harness.haproxy import Backend, HAProxy
from harness.prometheus import Prometheus
from harness.service import Service, service_beside
from harness.waiting import wait_for

_COMPLETE_SECONDS = 60.0


class Stack(Block):
    """A running cluster, started when the `with` block begins and removed when it ends.

    settings: more settings of each clustercheckd. installation: one that exists already; without
    it, the stack makes its own.
    """

    def __init__(
        self,
        size: int = 3,
        tell: Callable[[str], None] = lambda _: None,
        *,
        settings: Mapping[str, str] | None = None,
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
        """Start another clustercheckd for a node, with these settings; wait until it answers."""
        return self._exits.enter_context(
            service_beside(node, self._directory, self._ports, **environ)
        )

    def start_prometheus(
        self, services: Sequence[Service] | None = None, interval: str = "200ms"
    ) -> Prometheus:
        """Start a Prometheus that scrapes services and HAProxy, and wait until it answers.

        services: all that the stack began with, if None. interval: between two scrapes.
        """
        prometheus = Prometheus(
            self._directory,
            self._ports.free(),
            [service.port for service in services or self.services],
            self.haproxy.ports["stats"],
            interval,
        )
        self._exits.callback(prometheus.process.kill)
        prometheus.wait_until_up()
        return prometheus

    def restart_node(self, node: Node, *, donor: str | None = None) -> None:
        """Start a node that has ended, and wait until it is Synced.

        donor: the name of the only node that may send it the data; None: any of the others. The
        writes leave a node that becomes a donor.
        """
        options = [f"--wsrep-sst-donor={donor}"] if donor else []
        self.cluster.start_node(node, options=options)
        self.cluster.wait_until_synced(node)

    @contextmanager
    def killed(self, node: Node, *, donor: str | None = None) -> Iterator[None]:
        """Kill a node, and start it again after the block. donor: as in `restart_node`."""
        node.kill()
        yield
        self.restart_node(node, donor=donor)

    @contextmanager
    def on_each_node(
        self, enter: Callable[[Node], AbstractContextManager[object]]
    ) -> Iterator[None]:
        """Enter a block of each node, one after the other, and leave all after the block."""
        with ExitStack() as exits:
            for node in self.nodes:
                exits.enter_context(enter(node))
            yield

    def wait_until_whole(self) -> None:
        """Wait until every node is a Synced member of one cluster, available, and UP in HAProxy."""
        wait_for(
            "every node to see every member",
            self._is_complete,
            seconds=_COMPLETE_SECONDS,
        )
        for backend in self.backends:
            backend.service.wait_for_verdict(200, "synced")
            self.haproxy.wait_for_status(backend.node, writer="UP", readers="UP")
            # A member that has just come back can block the commits of all members, although all
            # say Synced.
            wait_for(f"{backend.node.name} to commit", backend.node.commits)

    def _is_complete(self) -> bool:
        return {node.status("wsrep_cluster_size") for node in self.nodes} == {
            str(self.cluster.size)
        }

    def _start(self) -> None:
        """Start everything, which takes about 15 s."""
        self.installation = self._given or Installation()
        if self._given is None:
            self._tell(f"installing a MariaDB server in {self.installation.directory}")
            self._exits.enter_context(self.installation)
        self._ports = self.installation.ports
        self._directory = Path(tempfile.mkdtemp(dir=self.installation.directory))
        self.cluster = Cluster(self.installation, self._size, self._tell)
        self.nodes = self.cluster.nodes
        for node in self.nodes:
            self._exits.callback(node.kill)
        self.cluster.start()
        self._tell("starting clustercheckd beside each node, and HAProxy in front")
        self.services = [self.service(node, **self._settings) for node in self.nodes]
        self.backends = [
            Backend(node, service)
            for node, service in zip(self.nodes, self.services, strict=True)
        ]
        servers = [backend.server for backend in self.backends]
        self.haproxy = HAProxy(self._directory, self._ports, servers)
        self._exits.callback(self.haproxy.kill)
        self.haproxy.start()
