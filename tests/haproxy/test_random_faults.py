"""Sixty random faults on stand-in nodes, in three forms of the file: one writer at every settled state."""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.haproxy import EXAMPLE, READER, READER_QUESTION, WRITER, WRITER_QUESTION
from harness.ports import Ports
from harness.waiting import wait_for
from tests.haproxy.front import Front, StandIns
from tests.haproxy.stand_in import PLANNED, VERDICTS, Client, StandIn
from tests.haproxy.variations import varied

STEPS = 5
SAMPLE = 10
LENIENT_QUESTION = "/?available_when_donor=1&available_when_readonly=0"
# The text, how many nodes, what each section asks, and what a node is asked at the least to be a writer.
FORMS: dict[str, tuple[Callable[[], str], int, dict[str, str], str]] = {
    "as it stands": (EXAMPLE.read_text, 3, {WRITER: WRITER_QUESTION, READER: READER_QUESTION}, WRITER_QUESTION),
    "two nodes": (
        lambda: varied("Two nodes"),
        2,
        {WRITER: LENIENT_QUESTION, READER: READER_QUESTION},
        LENIENT_QUESTION,
    ),
    "donors": (
        lambda: varied("A donor rather than no writer"),
        3,
        {WRITER: WRITER_QUESTION, READER: READER_QUESTION, "donors": LENIENT_QUESTION},
        LENIENT_QUESTION,
    ),
}


class Run:
    """One HAProxy in front of nodes that fail and return at random."""

    def __init__(self, nodes: StandIns, front: Front, questions: dict[str, str], least: str, seed: int) -> None:
        self._nodes = nodes
        self._front = front
        self._questions = questions
        self._least = least
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

    def _fault(self, node: StandIn) -> None:
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
            node.hangs = True
        elif fault == "refusing":
            node.refuse_clients()
            self._refusing.add(node.name)

    def _mend(self, node: StandIn) -> None:
        node.says, node.hangs = "synced", False
        if node.name in self._killed:
            node.start()
        elif node.name in self._refusing:
            node.accept_clients()
        self._killed.discard(node.name)
        self._refusing.discard(node.name)

    def _status(self, node: StandIn, question: str) -> int:
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
        may_write, may_stay, may_read = (
            {node.name for node in self._nodes.nodes if self._status(node, question) == 200}
            for question in (self._least, self._questions[WRITER], READER_QUESTION)
        )
        wait_for(f"the sessions to be cut: {self._told}", lambda: self._on(self._held) <= may_write, seconds=5)
        fresh = self._front.writers.open(SAMPLE)
        on = self._on([*self._held, *fresh])
        assert len(on) <= 1, (self._told, on)
        assert on <= may_write, (self._told, on)
        if may_write and not may_write & self._refusing:
            assert on, self._told
        if self._writer in may_stay:
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


def test_no_two_writers_and_nobody_on_a_node_that_says_no(tmp_path: Path, ports: Ports) -> None:
    def play(form: str, seed: int) -> None:
        text, size, questions, least = FORMS[form]
        directory = tmp_path / str(seed)
        directory.mkdir()
        with StandIns(directory, ports, size=size) as nodes:
            Run(nodes, nodes.front(text=text()), questions, least, seed).play()

    plays = [(form, seed) for seed, form in enumerate([*FORMS] * 4)]
    assert len(plays) * STEPS == 60
    with ThreadPoolExecutor(len(plays)) as pool:
        for played in [pool.submit(play, *arguments) for arguments in plays]:
            played.result()
