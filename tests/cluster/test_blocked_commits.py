"""Nodes whose commits wait: what a client meets, and what the status variables show."""

import pytest

from harness.galera import Installation, Node, can_mount
from harness.stack import Stack
from harness.waiting import wait_for
from tests.cluster.lone import lone_node


def wait_until_blocked(node: Node) -> None:
    """Wait until a client's commit is not answered in two seconds."""
    wait_for(f"the commits of {node.name} to wait", lambda: not node.commits())


def test_an_alter_holds_up_the_commits_of_all_nodes_and_no_status_variable_shows_it(
    stack: Stack,
) -> None:
    with stack.cluster.altering(stack.nodes[0]):
        for node, service in zip(stack.nodes, stack.services, strict=True):
            wait_until_blocked(node)
            assert service.get().reason == "synced"
    for node in stack.nodes:
        assert node.commits()


def test_a_node_that_a_backup_blocks_is_desynced(stack: Stack) -> None:
    node, service = stack.nodes[0], stack.services[0]
    with node.without_commits():
        service.wait_for_verdict(503, "donor")
        assert not node.commits()
    service.wait_for_verdict(200, "synced")
    assert node.commits()


@pytest.mark.skipif(not can_mount(), reason="needs the right to mount a file system")
def test_a_full_disk_under_the_binary_log_holds_up_commits_until_there_is_space() -> None:
    with Installation(binary_logs=True) as installation, lone_node(installation, "full") as node:
        with node.with_full_disk():
            wait_until_blocked(node)
            assert node.status("wsrep_local_state_comment") == "Synced"
        assert node.commits()
    assert not installation.directory.exists()
