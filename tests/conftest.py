"""Fixtures: real processes, started once for all tests that use them, and what runs in parallel."""

import os
import signal
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from harness.galera import Installation
from harness.network import NoNetworkError, RemoteHost
from harness.ports import LOOPBACK, Ports
from harness.service import Service
from harness.stack import Stack
from tests.fake_mysql import FakeMySQL

# A shell script that runs the tests in the background has them ignore SIGINT, which what they start
# would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

# pytest --hypothesis-profile=many is a part of make test-all. A busy machine meets no deadline.
settings.register_profile("few", max_examples=50, deadline=None)
settings.register_profile("many", max_examples=1000, deadline=None)
settings.load_profile("few")


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
TEST_FOLDERS = ("package", "unit", "simulation", "http", "cluster", "haproxy")
CLUSTER = "cluster"
PROCESSES = 4
"""How many processes run all tests. Tests wait more than they work."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Run all tests in several processes, but those that somebody has named in this one."""
    everything = (
        config.args_source == pytest.Config.ArgsSource.TESTPATHS
        and not config.option.keyword
    )
    return PROCESSES if everything else 0


class Groups(LoadScopeScheduling):  # type: ignore[misc]
    """Runs each group of tests in one process: since pytest 9.2, xdist ignores its own marks."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Groups:
    """Keep the tests of a group in one process."""
    return Groups(config, log)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let pytest-rerunfailures send at once: after each test, it writes twice and then reads."""
    connection = getattr(getattr(session.config, "failures_db", None), "sock", None)
    if connection is not None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests of the shared cluster, which take longest."""
    items.sort(
        key=lambda item: (
            group_of(item.nodeid) != CLUSTER,
            -TEST_FOLDERS.index(item.path.parent.name),
        )
    )


def group_of(nodeid: str) -> str:
    """Name the tests that a test has to share a process with: they share servers."""
    path = Path(nodeid.partition("::")[0])
    match path.parent.name:
        case "simulation":
            return nodeid
        case "unit":
            # They share nothing, but a row takes less time than to send it alone.
            return nodeid.partition("[")[0]
    return CLUSTER if _uses_cluster(path) else str(path)


@cache
def _uses_cluster(path: Path) -> bool:
    return "stack: Stack" in (Path(__file__).parent.parent / path).read_text()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run asynchronous tests on asyncio only."""
    return "asyncio"


@pytest.fixture(scope="session")
def ports() -> Iterator[Ports]:
    """Hand out free ports."""
    reserved = Ports()
    yield reserved
    reserved.close()


class Services:
    """Starts clustercheckd processes, and ends them with the test."""

    def __init__(self, directory: Path, ports: Ports, exits: ExitStack) -> None:
        self.directory = directory
        self._ports = ports
        self._exits = exits

    def start(self, **environ: str) -> Service:
        """Start one with these settings; without any, its database is not there."""
        return self.start_through((), environ)

    def beside(self, node: FakeMySQL, **environ: str) -> Service:
        """Start one beside a mock node, and wait until it has seen that the node is Synced."""
        service = self.start(**settings_for(node, **environ))
        service.wait_for_verdict(200, "synced")
        return service

    def start_unasked(self, **environ: str) -> Service:
        """Start one without waiting for an answer."""
        return self.start_through((), environ, is_asked=False)

    def start_through(
        self,
        wrapper: Sequence[str],
        environ: Mapping[str, str],
        *,
        port: int | None = None,
        pass_fds: Sequence[int] = (),
        is_asked: bool = True,
    ) -> Service:
        """Start one by way of a wrapper's command; wait for an answer if it is asked for one."""
        nowhere = (
            {}
            if "MYSQL_HOST" in environ
            else {"MYSQL_SOCKET": str(self.directory / "no.sock")}
        )
        settings = {**nowhere, **environ}
        command = (*wrapper, sys.executable, "-m", "app")
        service = Service(
            self.directory,
            port or self._ports.free(),
            settings,
            command=command,
            pass_fds=pass_fds,
        )
        self._exits.callback(service.stop)
        if is_asked:
            service.wait_until_up()
        return service


def settings_for(node: FakeMySQL, **environ: str) -> dict[str, str]:
    """Return the settings for a mock node, and others."""
    return {
        "MYSQL_HOST": LOOPBACK,
        "MYSQL_PORT": str(node.port),
        "MYSQL_USERNAME": "someone",
        **environ,
    }


@pytest.fixture
def services(tmp_path: Path, ports: Ports) -> Iterator[Services]:
    """Start clustercheckd processes that end with the test."""
    with ExitStack() as exits:
        yield Services(tmp_path, ports, exits)


@pytest.fixture(scope="session")
def shared_stack(
    installation: Installation, tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Iterator[Stack]:
    """Start three Galera nodes, a clustercheckd beside each, HAProxy in front."""
    if worker_id != "master":
        # In one process only, or else each would start them, and nobody would notice.
        started = tmp_path_factory.getbasetemp().parent / "shared-stack"
        started.touch(exist_ok=False)
    with Stack(installation=installation) as running:
        yield running


@pytest.fixture
def stack(shared_stack: Stack) -> Stack:
    """Return the running cluster, whole and with every node available."""
    for node in shared_stack.nodes:
        if node.process.exit_code is not None:
            shared_stack.restart_node(node)
    shared_stack.wait_until_whole()
    return shared_stack


@pytest.fixture(scope="session")
def installation() -> Iterator[Installation]:
    """Install a MariaDB, for the shared cluster and for servers that are no part of it."""
    with Installation() as installed:
        yield installed


@pytest.fixture
def remote_host() -> Iterator[RemoteHost]:
    """Make a host at the other end of a network."""
    with ExitStack() as exits:
        try:
            host = exits.enter_context(RemoteHost())
        except NoNetworkError as fault:
            pytest.skip(f"no network namespace to be had here: {fault}")
        yield host
