"""One node that the tests of several files share, where one is enough."""

from collections.abc import Iterator

import pytest

from harness.galera import Installation, Node
from tests.cluster.lone import lone_node


@pytest.fixture(scope="session")
def lone(installation: Installation) -> Iterator[Node]:
    """Run a cluster of one."""
    with lone_node(installation, "lone") as node:
        yield node
