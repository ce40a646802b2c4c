"""The log of changes: each gets a line, unless the same verdicts keep returning."""

import logging
from collections.abc import Iterator

import pytest

from app.change_log import ChangeLog
from app.reason import Reason
from app.verdict import Verdict

SYNCED = Verdict(available=True, reason=Reason.SYNCED, detail="seen")
LAGGING = Verdict(available=False, reason=Reason.LAGGING, detail="seen")
DONOR = Verdict(available=False, reason=Reason.DONOR, detail="seen")
DOWN = Verdict(available=False, reason=Reason.UNREACHABLE, detail="seen")


class Node:
    """A node that is told to have a verdict for so many seconds, and polled four times in each."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self._log = ChangeLog(lambda: self.seconds)
        self._verdict: Verdict | None = None

    def is_for(self, seconds: float, verdict: Verdict) -> None:
        """Have it polled for so long."""
        for _ in range(round(seconds * 4)):
            if verdict == self._verdict:
                self._log.unchanged()
            else:
                self._log.changed(verdict)
            self._verdict = verdict
            self.seconds += 0.25


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.records.append(record)


@pytest.fixture
def lines() -> Iterator[list[logging.LogRecord]]:
    """Give the records, as they come."""
    logger, handler = logging.getLogger("app.change_log"), Lines()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler.records
    logger.removeHandler(handler)
    logger.setLevel(level)


def said(lines: list[logging.LogRecord]) -> list[tuple[str, str, int | None]]:
    """Give event, reason and number of changes of each line."""
    return [(line.getMessage(), vars(line)["reason"], vars(line)["changes"]) for line in lines]


def test_changes_that_do_not_return_get_a_line_each(lines: list[logging.LogRecord]) -> None:
    node = Node()
    for verdict in (SYNCED, DONOR, LAGGING, SYNCED, DOWN):
        node.is_for(1, verdict)
    assert said(lines) == [
        ("available", "synced", None),
        ("draining", "donor", None),
        ("unavailable", "lagging", None),
        ("available", "synced", None),
        ("unavailable", "unreachable", None),
    ]
    assert [line.levelname for line in lines] == ["INFO", "INFO", "WARNING", "INFO", "WARNING"]
    assert [vars(line)["was"] for line in lines] == [None, "synced", "donor", "lagging", "synced"]
    assert [vars(line)["planned"] for line in lines] == [None, True, None, None, None]


def test_a_fault_that_comes_and_goes_once_is_no_flapping(lines: list[logging.LogRecord]) -> None:
    node = Node()
    node.is_for(100, SYNCED)
    node.is_for(1, DOWN)
    node.is_for(100, SYNCED)
    assert said(lines) == [
        ("available", "synced", None),
        ("unavailable", "unreachable", None),
        ("available", "synced", None),
    ]


def test_a_verdict_that_keeps_returning_is_told_with_a_count(lines: list[logging.LogRecord]) -> None:
    node = Node()
    for _ in range(10):
        node.is_for(1, SYNCED)
        node.is_for(1, LAGGING)
    assert said(lines) == [
        ("available", "synced", None),
        ("unavailable", "lagging", None),
        ("available", "synced", None),
        ("unavailable", "lagging", None),
        ("flapping", "synced", 5),
    ]
    assert (lines[-1].levelname, vars(lines[-1])["was"], vars(lines[-1])["seconds"]) == ("WARNING", "lagging", 4)
    # It stays as it is last: its line says how many had none.
    node.is_for(9, LAGGING)
    assert len(lines) == 5
    node.is_for(1, LAGGING)
    assert said(lines[5:]) == [("unavailable", "lagging", 15)]
    node.is_for(100, LAGGING)
    assert len(lines) == 6


def test_flapping_that_goes_on_is_told_each_minute(lines: list[logging.LogRecord]) -> None:
    node = Node()
    for _ in range(600):
        node.is_for(0.5, SYNCED)
        node.is_for(0.5, LAGGING)
    assert len(lines) == 4 + 1 + 9
    assert {line.getMessage() for line in lines[4:]} == {"flapping"}
    assert {vars(line)["changes"] for line in lines[5:]} == {120}


def test_another_verdict_is_not_lost_in_the_flapping(lines: list[logging.LogRecord]) -> None:
    node = Node()
    for _ in range(5):
        node.is_for(1, SYNCED)
        node.is_for(1, LAGGING)
    node.is_for(60, DOWN)
    assert said(lines)[-1] == ("unavailable", "unreachable", 6)
    node.is_for(60, SYNCED)
    assert said(lines)[-1] == ("available", "synced", None)


def test_slow_returns_get_a_line_each(lines: list[logging.LogRecord]) -> None:
    node = Node()
    for _ in range(5):
        node.is_for(10, SYNCED)
        node.is_for(10, LAGGING)
    assert [line.getMessage() for line in lines] == ["available", "unavailable"] * 5
