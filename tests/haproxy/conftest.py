"""Stand-in nodes for the tests of one file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.ports import Ports
from tests.haproxy.front import Front, StandIns


@pytest.fixture
def nodes(tmp_path: Path, ports: Ports) -> Iterator[StandIns]:
    """Start three stand-in nodes."""
    with StandIns(tmp_path, ports) as running:
        yield running


@pytest.fixture
def front(nodes: StandIns) -> Front:
    """Start an HAProxy before them, with the example as it stands."""
    return nodes.front()
