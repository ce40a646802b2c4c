"""Fixtures: real processes, started once for all tests that use them."""

import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.galera import Installation
from harness.network import NoNetworkError, RemoteHost
from harness.ports import Ports
from harness.service import Service
from harness.stack import Stack

# A shell script that runs the tests in the background has them ignore SIGINT, which what they start would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)


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
        service = self.start_unasked(**environ)
        service.wait_until_up()
        return service

    def start_unasked(self, **environ: str) -> Service:
        """Start one without waiting for an answer."""
        return self.start_through((), environ)

    def start_through(
        self,
        wrapper: Sequence[str],
        environ: Mapping[str, str],
        *,
        port: int | None = None,
        pass_fds: Sequence[int] = (),
    ) -> Service:
        """Start one by way of a wrapper's command, without waiting for an answer."""
        nowhere = {} if "MYSQL_HOST" in environ else {"MYSQL_SOCKET": str(self.directory / "no.sock")}
        settings = {**nowhere, **environ}
        command = (*wrapper, sys.executable, "-m", "app")
        service = Service(self.directory, port or self._ports.free(), settings, command=command, pass_fds=pass_fds)
        self._exits.callback(service.stop)
        return service


@pytest.fixture
def services(tmp_path: Path, ports: Ports) -> Iterator[Services]:
    """Start clustercheckd processes that end with the test."""
    with ExitStack() as exits:
        yield Services(tmp_path, ports, exits)


@pytest.fixture(scope="session")
def shared_stack() -> Iterator[Stack]:
    """Start three Galera nodes, a clustercheckd beside each, HAProxy in front."""
    with Stack() as running:
        yield running


@pytest.fixture
def stack(shared_stack: Stack) -> Stack:
    """Give the running cluster, whole and with every node available."""
    shared_stack.wait_until_whole()
    return shared_stack


@pytest.fixture(scope="session")
def installation() -> Iterator[Installation]:
    """Install a MariaDB of its own, for servers that are no part of the cluster."""
    with Installation() as installed:
        yield installed


@pytest.fixture
def remote_host() -> Iterator[RemoteHost]:
    """Make a host at the other end of a network."""
    try:
        host = RemoteHost().__enter__()
    except NoNetworkError as fault:
        pytest.skip(f"no network namespace to be had here: {fault}")
    with ExitStack() as exits:
        exits.push(host)
        yield host
