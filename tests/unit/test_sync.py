"""The table of polls and reads in sync.

How long the node has not kept up, and whether it is back from a hang.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from app.database.sync import Sync, gap_seconds

Event = Callable[[Sync, float], Sync]
Events = tuple[tuple[float, Event], ...]

read: Event = Sync.read_begun
lost: Event = Sync.read_lost
LONGEST_GAP_SECONDS = 2.0


def answered(sync: Sync, at: float) -> Sync:
    """Let a read be answered."""
    return sync.read_ended(at, is_answered=True)


def poll(sync: Sync, at: float) -> Sync:
    """Let a poll be answered."""
    return sync.poll_answered(at, LONGEST_GAP_SECONDS)


def no_interval(sync: Sync, at: float) -> Sync:
    """Let a poll be answered while nothing reads in sync."""
    return sync.poll_answered(at, None)


def refused(sync: Sync, at: float) -> Sync:
    """Let a read be refused."""
    return sync.read_ended(at, is_answered=False)


def no_login(sync: Sync, _at: float) -> Sync:
    """Let our account get no other session."""
    return sync.nothing_reads()


def failure(sync: Sync, _at: float) -> Sync:
    """Let a poll fail."""
    return sync.poll_failed()


class Row(NamedTuple):
    """What happened when, and what is known at 20 s.

    For how long nothing was answered, and if that was refused.
    """

    events: Events
    wait_seconds: float | None
    refused: bool = False


WAITS = {
    "nothing yet": Row((), None),
    "the next one waits": Row(((15, read), (16, answered), (17, read)), 3),
    "refused, and the next one is answered": Row(
        ((15, read), (16, refused), (17, read), (18, answered)), 0
    ),
    "lost at once, and the next one waits": Row(
        ((15, read), (15.9, lost), (17, read)), 3
    ),
    "lost after a second, and the next one at once": Row(
        ((15, read), (16, lost), (17, read), (17.1, lost)), 5
    ),
    "refused, and the next one lost": Row(
        ((15, read), (15.1, refused), (15.2, read), (15.3, lost)), 5, refused=True
    ),
    "no login after a refusal, and a late answer": Row(
        ((15, read), (15, refused), (16, no_login), (17, answered)), None
    ),
    "polls make no difference": Row(((15, read), (15, failure), (18, poll)), 5),
}


def after(events: Events) -> Sync:
    """Let all that happen."""
    sync = Sync()
    for at, event in events:
        sync = event(sync, at)
    return sync


@pytest.mark.parametrize("row", WAITS.values(), ids=WAITS)
def test_row_of_the_wait(row: Row) -> None:
    sync = after(row.events)
    assert sync.wait_seconds(20.0) == row.wait_seconds
    assert sync.refused is row.refused


RETURNS: dict[str, tuple[Events, bool]] = {
    "a start": (((10, poll),), False),
    "two seconds": (((8, poll), (10, poll)), False),
    "polls failed meanwhile": (((7.9, poll), (9, failure), (10, poll)), True),
    "polls failed for a short time": (((8.1, poll), (9, failure), (10, poll)), False),
    "it hung at the start": (((9, failure), (10, poll)), True),
    "more polls": (((7, poll), (10, poll), (11, poll)), True),
    "a read in sync answered": (
        ((7, poll), (10, poll), (10, read), (10.1, answered)),
        False,
    ),
    "one that began before": (
        ((7, poll), (9.9, read), (10, poll), (10.1, answered)),
        True,
    ),
    "a gap in which nothing was to be read": (
        ((5, poll), (6, no_interval), (10, poll)),
        False,
    ),
    "another gap": (
        ((6, poll), (8.5, poll), (8.5, read), (8.5, answered), (10.9, poll)),
        True,
    ),
}


@pytest.mark.parametrize(("events", "returning"), RETURNS.values(), ids=RETURNS)
def test_row_of_the_return(events: Events, *, returning: bool) -> None:
    sync = after(events)
    assert sync.is_returning(11.0) is returning
    assert not sync.is_returning(20.9)


DUE: dict[str, tuple[Events, float]] = {
    "the first": (((8, poll),), 0),
    "after an answer": (((8, poll), (10, read), (10, answered)), 12),
    "after a refusal": (((8, poll), (10, read), (10, refused)), 11),
    "after a loss": (((8, poll), (10, read), (11, lost)), 11),
    "after a gap": (((7, poll), (9.9, read), (9.9, answered), (10, poll)), 0),
    "refused while the node returns": (
        ((7, poll), (10, poll), (10, read), (10, refused)),
        10.2,
    ),
    "late while the node returns": (
        ((7, poll), (10, poll), (10, read), (10.6, answered)),
        10.2,
    ),
}


@pytest.mark.parametrize(("events", "due_at"), DUE.values(), ids=DUE)
def test_row_of_the_next_read(events: Events, due_at: float) -> None:
    sync = after(events)
    assert sync.read_is_due(max(due_at, 10.0), 2.0)
    assert not due_at or not sync.read_is_due(due_at - 0.01, 2.0)


@pytest.mark.parametrize(("suspect_seconds", "seconds"), [(5.0, 2.0), (1.0, 1.1)])
def test_the_longest_gap_is_shorter_than_the_group_s_patience_and_longer_than_a_pause_between_polls(
    suspect_seconds: float, seconds: float
) -> None:
    assert gap_seconds(suspect_seconds, 1.0) == seconds


def test_a_wait_that_another_process_knows_of_counts() -> None:
    waiting = Sync().read_begun(100.0)
    assert waiting.waited(101.0, 30.0).wait_seconds(101.0) == 30.0
    assert waiting.waited(101.0, 0.5).wait_seconds(101.0) == 1.0
    assert waiting.waited(101.0, None) == waiting
    answered = waiting.read_ended(101.0, is_answered=True)
    assert answered.waited(101.0, 30.0) == answered
