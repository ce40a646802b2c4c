"""Sixty random faults on mock nodes, in two forms of the file: never two writers."""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.haproxy import EXAMPLE, READER, READER_QUESTION, WRITER, WRITER_QUESTION
from harness.ports import Ports
from harness.waiting import wait_for
from tests.haproxy.front import Front, MockNodes, varied
from tests.haproxy.mock_node import PLANNED, STATES, Client

STEPS = 5
RUNS = 12
SAMPLE = 10
LENIENT_QUESTION = "/?available_when_donor=1&available_when_readonly=0"
# The text, how many nodes, and what the writer asks.
FORMS: list[tuple[Callable[[], str], int, str]] = [
    (EXAMPLE.read_text, 3, WRITER_QUESTION),
    (lambda: varied("Two nodes"), 2, LENIENT_QUESTION),
]


class Run:
    """One HAProxy in front of nodes that fail and return at random."""

    def __init__(
        self, nodes: MockNodes, front: Front, question: str, seed: int
    ) -> None:
        self._nodes = nodes.nodes
        self._front = front
        self._questions = {WRITER: question, READER: READER_QUESTION}
        self._random = random.Random(seed)
        self._writer: str | None = None
        self._held: list[Client] = []
        self._told = [f"seed {seed}"]

    def play(self) -> None:
        """Have one fault after the other, and look at each settled state."""
        for _ in range(STEPS):
            node = self._random.choice(self._nodes)
            node.become(
                self._random.choice(list(STATES))
                if node.state == "synced"
                else "synced"
            )
            self._told.append(f"{node.name} {node.state}")
            wait_for(f"HAProxy to see {self._told}", self._is_settled)
            self._look()

    def _is_settled(self) -> bool:
        rows = self._front.haproxy.servers()
        # A node that is DOWN when it begins to answer 404 stays DOWN.
        drained = {WRITER: {"DOWN"}, READER: {"NOLB", "DOWN"}}
        for section, question in self._questions.items():
            right = {200: {"UP"}, PLANNED: drained[section]}
            for node in self._nodes:
                expected = right.get(node.status(question), {"DOWN"})
                if rows[section, node.name]["status"] not in expected:
                    return False
        return True

    def _look(self) -> None:
        may_write, may_read = (
            {node.name for node in self._nodes if node.status(question) == 200}
            for question in self._questions.values()
        )
        refusing = {node.name for node in self._nodes if node.state == "refusing"}
        wait_for(
            f"the sessions to be cut: {self._told}",
            lambda: on(self._held) <= may_write,
            seconds=5,
        )
        self._held += self._front.writers.open(SAMPLE)
        now = on(self._held)
        assert len(now) <= 1, (self._told, now)
        assert now <= may_write, (self._told, now)
        if may_write and not may_write & refusing:
            assert now, self._told
        if self._writer in may_write:
            assert now <= {self._writer}, (self._told, now)
        self._writer = next(iter(now), self._writer)
        landed = set(self._front.readers.landings(SAMPLE))
        serve = may_read - refusing
        assert landed - {None} <= serve, (self._told, landed)
        # Past two nodes that refuse, HAProxy may not find the third.
        if serve and len(may_read & refusing) < 2:
            assert None not in landed, self._told


def on(clients: Sequence[Client]) -> set[str | None]:
    """Name the nodes that clients have sessions on."""
    return {client.node for client in clients if client.is_served}


@pytest.mark.long
def test_no_two_writers_and_nobody_on_a_node_that_says_no(
    tmp_path: Path, ports: Ports
) -> None:
    def play(seed: int) -> None:
        text, size, question = FORMS[seed % len(FORMS)]
        directory = tmp_path / str(seed)
        directory.mkdir()
        with MockNodes(directory, ports, size=size) as nodes:
            Run(nodes, nodes.front(text=text()), question, seed).play()

    with ThreadPoolExecutor(RUNS) as pool:
        for played in [pool.submit(play, seed) for seed in range(RUNS)]:
            played.result()
