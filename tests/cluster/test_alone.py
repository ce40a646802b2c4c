"""Nodes on hosts of their own: one that stands still alone takes no traffic by default."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack

import pytest

from harness.galera import Installation, Node, can_mount
from harness.network import RemoteHost, dropping, enter_network_of_our_own
from harness.stack import Stack
from harness.waiting import meanwhile
from tests.cluster.lone import reasons_of, wait_until_shown
from tests.measured import let_pass

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not can_mount(), reason="needs root"),
]

ALONE = {"cut-off", "disk-full", "stalled"}
OUT_SECONDS, BUSY_SECONDS, EXCLUDED_SECONDS = 4.0, 1.0, 15.0


@pytest.fixture(scope="module")
def there() -> Iterator[ThreadPoolExecutor]:
    """Move a thread into a network of its own; what it starts is there too."""
    with ThreadPoolExecutor(1, initializer=enter_network_of_our_own) as thread:
        yield thread


@pytest.fixture(scope="module")
def apart(there: ThreadPoolExecutor) -> Iterator[Stack]:
    """Run three nodes on three hosts, with Galera's own timeouts and a disk for their logs each."""
    exits = ExitStack()

    def start() -> Stack:
        hosts = [exits.enter_context(RemoteHost(number)) for number in range(3)]
        installation = Installation(hosts=hosts, binary_logs=True, group_timeouts=())
        exits.enter_context(installation)
        stack = exits.enter_context(Stack(installation=installation))
        stack.wait_until_whole()
        return stack

    try:
        yield there.submit(start).result()
    finally:
        there.submit(exits.close).result()


def group_port_cut(node: Node) -> AbstractContextManager[None]:
    """Drop what goes to or from the node by its group's port, while clients reach it."""
    return dropping(
        *(
            f"ip {side} {node.address} tcp {end} {node.group_port}"
            for side in ("saddr", "daddr")
            for end in ("sport", "dport")
        )
    )


FAULTS: dict[str, Callable[[Node], AbstractContextManager[None]]] = {
    "cut-off": group_port_cut,
    "disk-full": Node.with_full_disk,
}


@pytest.mark.parametrize("reason", FAULTS)
def test_one_that_stands_still_alone_is_out_in_time_and_no_other(
    there: ThreadPoolExecutor, apart: Stack, reason: str
) -> None:
    def check() -> None:
        others = apart.services[::2]

        def write(_: object) -> None:
            apart.nodes[0].commits()

        with FAULTS[reason](apart.nodes[1]), meanwhile(write, 0.1):
            wait_until_shown(
                apart.services[1], f"503 {reason}", OUT_SECONDS + BUSY_SECONDS
            )
            # As long as another one would take.
            let_pass(OUT_SECONDS)
        apart.wait_until_whole()
        for service in others:
            assert not ALONE & set(reasons_of(service))

    there.submit(check).result()


def test_nodes_that_were_cut_from_each_other_are_back_as_soon_as_their_group(
    there: ThreadPoolExecutor, apart: Stack
) -> None:
    def check() -> None:
        with dropping("meta l4proto tcp"):
            for service in apart.services:
                wait_until_shown(service, "503 non-primary", EXCLUDED_SECONDS)
        apart.wait_until_whole()
        for service in apart.services:
            latest_first = reasons_of(service)[::-1]
            since = latest_first[: latest_first.index("non-primary")]
            assert not ALONE & set(since)

    there.submit(check).result()
