"""Sixty random faults on mock nodes, in two forms of the file: one writer at every settled state."""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.haproxy import EXAMPLE, READER, READER_QUESTION, WRITER, WRITER_QUESTION
from harness.ports import Ports
from harness.waiting import wait_for
from tests.haproxy.front import Front, MockNodes
from tests.haproxy.mock_node import PLANNED, VERDICTS, Client, MockNode
from tests.haproxy.variations import varied

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

    def __init__(self, nodes: MockNodes, front: Front, question: str, seed: int) -> None:
        self._nodes = nodes
        self._front = front
        self._questions = {WRITER: question, READER: READER_QUESTION}
        self._random = random.Random(seed)
        self._killed: set[str] = set()
        self._refusing: set[str] = set()
        self._writer: str | None = None
        self._held: list[Client] = []
        self._told = [f"seed {seed}"]

    def play(self) -> None:
        """Have one fault after the other, and look at each settled state."""
        for _ in range(STEPS):
            self._fault(self._random.choice(self._nodes.nodes))
            wait_for(f"HAProxy to see {self._told}", self._is_settled)
            self._look()

    def _fault(self, node: MockNode) -> None:
        was_well = node.says == "synced" and not node.hangs and node.name not in self._killed | self._refusing
        self._mend(node)
        fault = self._random.choice([*VERDICTS, "killed", "hung", "refusing"]) if was_well else "mended"
        self._told.append(f"{node.name} {fault}")
        if fault in VERDICTS:
            node.says = fault
        elif fault == "killed":
            node.stop()
            self._killed.add(node.name)
        elif fault == "hung":
            node.hang()
        elif fault == "refusing":
            node.refuse_clients()
            self._refusing.add(node.name)

    def _mend(self, node: MockNode) -> None:
        node.says, node.hangs = "synced", False
        if node.name in self._killed:
            node.start()
        elif node.name in self._refusing:
            node.accept_clients()
        self._killed.discard(node.name)
        self._refusing.discard(node.name)

    def _status(self, node: MockNode, question: str) -> int:
        return 0 if node.hangs or node.name in self._killed else VERDICTS[node.says](question)

    def _is_settled(self) -> bool:
        rows = self._front.haproxy.servers()
        for section, question in self._questions.items():
            for node in self._nodes.nodes:
                status = self._status(node, question)
                # A node that is DOWN when it begins to answer 404 stays DOWN.
                right = {200: {"UP"}, PLANNED: {"NOLB", "DOWN"} if section == READER else {"DOWN"}}
                if rows.get((section, node.name), {}).get("status") not in right.get(status, {"DOWN"}):
                    return False
        return True

    def _look(self) -> None:
        may_write, may_read = (
            {node.name for node in self._nodes.nodes if self._status(node, question) == 200}
            for question in self._questions.values()
        )
        wait_for(f"the sessions to be cut: {self._told}", lambda: self._on(self._held) <= may_write, seconds=5)
        fresh = self._front.writers.open(SAMPLE)
        on = self._on([*self._held, *fresh])
        assert len(on) <= 1, (self._told, on)
        assert on <= may_write, (self._told, on)
        if may_write and not may_write & self._refusing:
            assert on, self._told
        if self._writer in may_write:
            assert on <= {self._writer}, (self._told, on)
        self._writer = next(iter(on), self._writer)
        self._held += fresh
        landed = set(self._front.readers.landings(SAMPLE))
        serve = may_read - self._refusing
        assert landed - {None} <= serve, (self._told, landed)
        # Past two nodes that refuse, HAProxy may not find the third.
        if serve and len(may_read & self._refusing) < 2:
            assert None not in landed, self._told

    def _on(self, clients: Sequence[Client]) -> set[str | None]:
        return {client.node for client in clients if client.is_served}


@pytest.mark.long
def test_no_two_writers_and_nobody_on_a_node_that_says_no(tmp_path: Path, ports: Ports) -> None:
    def play(seed: int) -> None:
        text, size, question = FORMS[seed % len(FORMS)]
        directory = tmp_path / str(seed)
        directory.mkdir()
        with MockNodes(directory, ports, size=size) as nodes:
            Run(nodes, nodes.front(text=text()), question, seed).play()

    with ThreadPoolExecutor(RUNS) as pool:
        for played in [pool.submit(play, seed) for seed in range(RUNS)]:
            played.result()
