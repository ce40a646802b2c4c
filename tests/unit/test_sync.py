"""The table of polls and reads in sync.

How long the node has not kept up, and whether it is back from a hang.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from app.database.sync import RETURN_SECONDS, Sync

Event = Callable[[Sync, float], Sync]

read: Event = Sync.read_begun
answered: Event = Sync.read_answered
lost: Event = Sync.read_lost
silence: Event = Sync.poll_unanswered
poll: Event = Sync.poll_answered


def refused(sync: Sync, _at: float) -> Sync:
    """Let a read be refused."""
    return sync.read_refused()


def no_login(sync: Sync, _at: float) -> Sync:
    """Let our account get no other session."""
    return sync.nothing_reads()


def failure(sync: Sync, _at: float) -> Sync:
    """Let a poll fail."""
    return sync.poll_failed()


@dataclass(frozen=True)
class Row:
    """What happened when, and what is known at 20 s.

    For how long nothing was answered, and if that was refused.
    """

    events: tuple[tuple[float, Event], ...]
    wait_seconds: float | None
    refused: bool = False


WAITS = {
    "nothing yet": Row((), None),
    "a read waits": Row(((15, read),), 5),
    "answered": Row(((15, read), (16, answered)), 0),
    "the next one waits": Row(((15, read), (16, answered), (17, read)), 3),
    "refused": Row(((15, read), (16, refused)), 5, refused=True),
    "refused, and the next one waits": Row(
        ((15, read), (16, refused), (17, read)), 5, refused=True
    ),
    "refused, and the next one is answered": Row(
        ((15, read), (16, refused), (17, read), (18, answered)), 0
    ),
    "lost at once": Row(((15, read), (15.9, lost)), None),
    "lost at once, and the next one waits": Row(((15, read), (15.9, lost), (17, read)), 3),
    "lost after a second": Row(((15, read), (16, lost)), 5),
    "lost after a second, and the next one at once": Row(
        ((15, read), (16, lost), (17, read), (17.1, lost)), 5
    ),
    "refused, and the next one lost": Row(
        ((15, read), (15.1, refused), (15.2, read), (15.3, lost)), 5, refused=True
    ),
    "no login after an answer": Row(((15, read), (16, answered), (17, no_login)), None),
    "no login after a refusal": Row(((15, read), (16, refused), (17, no_login)), None),
    "no login after a loss": Row(((15, read), (16, lost), (17, no_login)), None),
    "polls make no difference": Row(((15, read), (15, silence), (18, poll)), 5),
}


def after(events: tuple[tuple[float, Event], ...]) -> Sync:
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


RETURNS: dict[str, tuple[tuple[tuple[float, Event], ...], bool]] = {
    "no hang": ((), False),
    "a short hang": (((8, silence), (9, silence), (9.9, poll)), False),
    "a hang of two seconds": (((8, silence), (9, silence), (10, poll)), True),
    "from the answer before": (((8, poll), (9, silence), (10, poll)), True),
    "from a poll after a failure": (((8, poll), (8.5, failure), (9, silence), (10, poll)), False),
    "more polls": (((8, silence), (10, poll), (11, poll)), True),
    "a poll failed meanwhile": (((8, silence), (9, failure), (10, poll)), False),
    "two short hangs": (((7, silence), (8.5, poll), (9, silence), (10, poll)), False),
    "a short hang after a long one": (((5, silence), (8, poll), (9, silence), (10, poll)), True),
    "a read in sync answered": (((8, silence), (10, poll), (10, read), (10.1, answered)), False),
    "one answered late": (((8, silence), (10, poll), (10, read), (10.6, answered)), True),
    "one answered late, and the next one promptly": (
        ((8, silence), (10, poll), (10, read), (10.6, answered), (10.7, read), (10.7, answered)),
        False,
    ),
    "one that began before": (((8, silence), (9.9, read), (10, poll), (10.1, answered)), True),
    "one that waits": (((8, silence), (10, poll), (10, read)), True),
    "one refused": (((8, silence), (10, poll), (10, read), (10.1, refused)), True),
    "one lost": (((8, silence), (10, poll), (10, read), (10.1, lost)), True),
}


@pytest.mark.parametrize(("events", "returning"), RETURNS.values(), ids=RETURNS)
def test_row_of_the_return(events: tuple[tuple[float, Event], ...], *, returning: bool) -> None:
    sync = after(events)
    assert sync.is_returning(11.0) is returning
    assert not sync.is_returning(10.0 + RETURN_SECONDS)


def test_a_return_is_news_until_a_login_has_begun_after_it() -> None:
    sync = Sync().poll_unanswered(8.0).poll_answered(10.0)
    assert [sync.is_returning_since(at) for at in (9.0, 10.0, 11.0)] == [True, False, False]
    assert not Sync().is_returning_since(9.0)
