"""Fixtures: a mock node, and clustercheckd beside one or none."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from harness.ports import Ports
from harness.service import Service
from tests.conftest import Services
from tests.fake_mysql import FakeMySQL, error, fake_mysql, galera, greets_then

DONOR = {"wsrep_local_state": "2", "wsrep_local_state_comment": "Donor/Desynced"}
HEALTH_CHECK = b"GET / HTTP/1.0\r\n\r\n"
REFUSED = greets_then(error(1045))


@pytest.fixture
def node() -> Iterator[FakeMySQL]:
    """Run a Synced node."""
    with fake_mysql(galera()) as server:
        yield server


@pytest.fixture(scope="session")
def shared_services(
    tmp_path_factory: pytest.TempPathFactory, ports: Ports
) -> Iterator[Services]:
    """Start services that end with all tests. Each start takes a second of CPU."""
    with ExitStack() as exits:
        yield Services(tmp_path_factory.mktemp("shared"), ports, exits)


@pytest.fixture(scope="session")
def synced(shared_services: Services) -> Iterator[Service]:
    """Run clustercheckd beside a Synced node, once for all tests that change neither."""
    with fake_mysql(galera()) as server:
        yield shared_services.beside(server)


@pytest.fixture(scope="session")
def unreachable(shared_services: Services) -> Service:
    """Run clustercheckd beside a database that is down, once for all tests that only ask it."""
    return shared_services.start()


@pytest.fixture
def drainable(unreachable: Service) -> Iterator[Service]:
    """Return the same service to a test that drains it."""
    yield unreachable
    unreachable.disabled_file.unlink(missing_ok=True)
    unreachable.wait_for_verdict(503, "unreachable")
