"""Mock nodes for the tests of one file."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.ports import Ports
from tests.haproxy.front import Front, MockNodes


@pytest.fixture
def nodes(tmp_path: Path, ports: Ports) -> Iterator[MockNodes]:
    """Start three mock nodes."""
    with ExitStack() as exits:
        yield MockNodes(tmp_path, ports, exits)


@pytest.fixture
def front(nodes: MockNodes) -> Front:
    """Start an HAProxy before them, with the example as it stands."""
    return nodes.front()
