"""The table of logins: what each outcome says of the server, and when the next login is due."""

from typing import NamedTuple

import pytest

from app.database.logins import Logins, Outcome
from app.verdict.node_state import PollFailure
from app.verdict.reason import Reason

ACCEPTED, REJECTED, REFUSED, DELAYED, ANSWERED, UNREAD, FAILED = Outcome
WHY: dict[Outcome | None, PollFailure] = {
    outcome: PollFailure(Reason.ERROR, outcome.value)
    for outcome in Outcome
    if outcome is not ACCEPTED
}
INTERVAL_SECONDS = 2.0


class Row(NamedTuple):
    """How logins ended, of which the latest began at 0, and what that says.

    The names are those of `Logins`.
    """

    ended: tuple[Outcome, ...]
    due_after_seconds: float
    rejects_logins: bool = False
    account_refused: bool = False
    paused_seconds: float = 0.0


TABLE = [
    Row((), 0),
    Row((ACCEPTED,), 2),
    # One rejected login may be an accident, a second one is none.
    Row((REJECTED,), 0),
    Row((REJECTED, REJECTED), 1, rejects_logins=True),
    Row((REJECTED, ACCEPTED, REJECTED), 0),
    Row((REJECTED, REJECTED, ACCEPTED), 2),
    # Each refusal is a line in the server's log.
    Row((REFUSED,), 2, account_refused=True, paused_seconds=1),
    Row((REFUSED, REFUSED), 2, account_refused=True, paused_seconds=2),
    Row((REFUSED,) * 7, 60, account_refused=True, paused_seconds=60),
    Row((REFUSED,) * 2000, 60, account_refused=True, paused_seconds=60),
    # After a refusal, no answer is a delay for our account alone.
    Row((REFUSED, DELAYED), 2, account_refused=True, paused_seconds=2),
    Row((REJECTED, REFUSED, DELAYED, REJECTED), 0),
    # But while no client gets in, the next login is not late to see that they do.
    Row(
        (REFUSED, REJECTED, REJECTED, DELAYED),
        1,
        rejects_logins=True,
        account_refused=True,
    ),
    Row((REFUSED, REFUSED, FAILED), 2, account_refused=True),
    # Who refuses our account takes logins.
    Row((REJECTED, REJECTED, REFUSED), 2, account_refused=True, paused_seconds=1),
    # So does one that is full: whether a full node stays is another rule's.
    Row((REJECTED, REJECTED, ANSWERED), 2, account_refused=True),
    Row((REJECTED, ANSWERED, REJECTED), 0),
    # So does one that lets us in, whatever its session cannot do then.
    Row((REFUSED, REJECTED, REJECTED, UNREAD), 2, account_refused=True),
    Row((REFUSED, UNREAD, REFUSED), 2, account_refused=True, paused_seconds=1),
    # Nothing is known of the server.
    Row((REJECTED, FAILED), 2, account_refused=True),
    Row((REJECTED, REJECTED, FAILED), 1, rejects_logins=True, account_refused=True),
    Row((REJECTED, FAILED, REJECTED), 1, rejects_logins=True),
]


def after(outcomes: tuple[Outcome, ...]) -> Logins:
    """Let logins end in these ways. The latest began at 0."""
    logins = Logins()
    for outcome in outcomes:
        began = logins.begun(0.0)
        logins = began.ended(outcome, WHY.get(outcome))
    return logins


@pytest.mark.parametrize(
    "row",
    TABLE,
    ids=[" ".join(outcome.name for outcome in row.ended)[:60] for row in TABLE],
)
def test_row_of_the_table(row: Row) -> None:
    logins = after(row.ended)
    assert logins.failure == WHY.get(logins.outcome)
    assert (logins.rejected == WHY[REJECTED]) is row.rejects_logins
    assert logins.account_refused is row.account_refused
    if row.due_after_seconds:
        before = row.due_after_seconds - 0.01
        assert not logins.is_due(before, INTERVAL_SECONDS, session_answers=True)
    assert logins.is_due(row.due_after_seconds, INTERVAL_SECONDS, session_answers=True)
    if row.paused_seconds:
        assert logins.waits(0.99 * row.paused_seconds)
    assert not logins.waits(row.paused_seconds)


def test_a_change_of_the_account_ends_the_pause_and_keeps_one_refusal() -> None:
    changed = after((REFUSED,) * 7).account_changed()
    assert not changed.waits(0.0)
    assert changed.is_due(0.0, INTERVAL_SECONDS, session_answers=True)
    again = changed.begun(0.0).ended(REFUSED, WHY[REFUSED])
    assert (again.waits(1.9), again.waits(2.0)) == (True, False)


def test_a_server_that_takes_no_logins_is_tried_each_second_whatever_the_interval() -> (
    None
):
    logins = after((REJECTED, REJECTED))
    for interval_seconds in (0.0, 60.0):
        assert [
            logins.is_due(at, interval_seconds, session_answers=True)
            for at in (0.99, 1.0)
        ] == [False, True]
    assert logins.is_due(0.5, 0.5, session_answers=True)


@pytest.mark.parametrize(
    "outcome", [other for other in Outcome if other is not REJECTED]
)
def test_a_session_that_gets_no_answer_is_a_reason_to_log_in_whatever_the_interval(
    outcome: Outcome,
) -> None:
    logins = after((outcome,))._replace(refusals=0)
    for interval_seconds in (0.0, 60.0):
        assert logins.is_due(59.9, interval_seconds, session_answers=True) is False
        assert [
            logins.is_due(at, interval_seconds, session_answers=False)
            for at in (1.99, 2.0)
        ] == [False, True]


@pytest.mark.parametrize(
    ("ended", "left", "seconds"),
    [
        ((REJECTED,), 0, 4.0),
        ((REJECTED,) * 9, 1, 4.0),
        # A server that hangs keeps each that is given up.
        ((REJECTED,) * 2, 2, 60.0),
        ((ACCEPTED,), 2, 60.0),
        # The server may delay the account.
        ((REFUSED,), 0, 60.0),
        ((REFUSED, ACCEPTED), 0, 1.5),
    ],
)
def test_how_long_the_next_login_may_take(
    ended: tuple[Outcome, ...], left: int, seconds: float
) -> None:
    assert after(ended).limit_seconds(left) == seconds
