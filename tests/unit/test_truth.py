"""The arithmetic of the truth run: what counts as false, and for how long."""

import pytest

from bench.truth.faults import BROKEN_INIT_CONNECT, NO_THREADS, PAUSED, SIGSTOP
from bench.truth.report import IN_SYNC, OURS, SCRIPT, TRUTH, WITNESS, Report, Window
from bench.truth.stretches import (
    DESYNCED,
    FALSE_200,
    FALSE_503,
    NOT_DESYNCED,
    SAYS_200,
    SAYS_503,
    UNREADABLE,
    UNUSABLE,
    USABLE,
    Sample,
    judge,
    settled,
    stretches,
    with_silences,
)

UP = [Sample(0.0, 5.0, USABLE, "")]
DOWN = [Sample(0.0, 5.0, UNUSABLE, "")]


def samples(*kinds: str) -> list[Sample]:
    """Return one a second, each answered at once."""
    return [Sample(second, second, kind, kind) for second, kind in enumerate(kinds)]


def always(kind: str) -> list[Sample]:
    """Return six seconds of the same."""
    return samples(*[kind] * 6)


def test_a_success_that_waited_after_a_failure_belongs_to_the_failure() -> None:
    hung = [
        Sample(0, 1, UNUSABLE, "hung"),
        Sample(1, 1.9, USABLE, "committed"),
        Sample(2, 2.9, USABLE, "committed"),
    ]
    assert [sample.kind for sample in settled(hung)] == [UNUSABLE, UNUSABLE, USABLE]
    refused = [Sample(0, 0.01, UNUSABLE, "refused"), Sample(0.1, 0.11, USABLE, "committed")]
    assert settled(refused) == refused


def test_a_client_that_waits_in_vain_met_the_hang_no_earlier_than_its_last_step() -> None:
    asked = [
        Sample(0, 0.1, USABLE, ""),
        Sample(0.1, 1.3, UNUSABLE, ""),
        Sample(1.3, 2.5, UNUSABLE, ""),
    ]
    ((began_at, ended_at),) = stretches(settled(asked), UNUSABLE)
    assert (round(began_at, 3), ended_at) == (0.3, 2.5)
    refused = [asked[0], Sample(0.1, 0.2, UNUSABLE, "refused")]
    assert settled(refused) == refused


def test_nothing_is_said_while_a_checker_holds_its_answer() -> None:
    asked = [Sample(0, 0, SAYS_200, ""), Sample(1, 3, SAYS_503, "")]
    asked += [Sample(3, 3, SAYS_503, ""), Sample(4, 6, SAYS_200, "")]
    assert stretches(with_silences(asked), SAYS_200) == [(0, 0), (6, 6)]
    assert stretches(with_silences(asked), SAYS_503) == [(3, 3)]


def test_a_200_on_an_unusable_node_is_false_even_if_it_is_a_donor() -> None:
    said, unusable = always(SAYS_200), samples(USABLE, *[UNUSABLE] * 5)
    assert judge(said, unusable, always(NOT_DESYNCED))[FALSE_200] == [(1, 5)]
    assert judge(said, unusable, always(DESYNCED))[FALSE_200] == [(1, 5)]
    assert judge(said, always(USABLE), always(NOT_DESYNCED))[FALSE_200] == []


def test_a_503_on_a_usable_node_is_false_unless_the_node_is_desynced_or_cannot_be_read() -> None:
    said, usable = always(SAYS_503), samples(UNUSABLE, *[USABLE] * 5)
    seen = judge(
        said,
        usable,
        samples(DESYNCED, DESYNCED, DESYNCED, NOT_DESYNCED, NOT_DESYNCED, NOT_DESYNCED),
    )
    assert seen[FALSE_503] == [(2, 5)]
    # Whatever else is wrong with its variables: it can be used.
    assert judge(said, usable, always(NOT_DESYNCED))[FALSE_503] == [(1, 5)]
    assert judge(said, usable, always(UNREADABLE))[FALSE_503] == []
    until = [
        Sample(0, 3, UNREADABLE, ""),
        Sample(3, 4, NOT_DESYNCED, "after a wait"),
        Sample(4, 4.1, NOT_DESYNCED, ""),
    ]
    assert judge(said, usable, until)[FALSE_503] == [(4, 5)]


def report(
    kind: str,
    ours: list[Sample],
    truth: list[Sample],
    *,
    ended_at: float = 6.0,
    node: str = "node1",
) -> Report:
    """Report on a node, about which only clustercheckd said something, with one fault on node1."""
    said = {
        OURS: ours,
        IN_SYNC: [],
        SCRIPT: [],
        TRUTH: truth,
        WITNESS: always(NOT_DESYNCED),
    }
    return Report("a test", {node: said}, [Window(1, kind, "node1", 0.2, ended_at)])


def test_a_violation_is_told_with_what_was_seen_and_counted_at_its_fault() -> None:
    truth = samples(USABLE, USABLE, UNUSABLE, UNUSABLE, UNUSABLE, USABLE)
    found = report("desync", always(SAYS_200), truth)
    (violation,) = found.violations()
    assert violation.startswith(
        "clustercheckd: false 200 for 2.00 s on node1 at 2.00 s; fault 1, desync on node1\n"
    )
    assert "truth: unusable: unusable" in violation
    assert "| desync | 2.00 | 0 | 0 | 0 | 0 |" in found.text()


@pytest.mark.parametrize(
    ("kind", "longest"),
    [("SIGSTOP", 0.35), ("read-only", 0.35), (NO_THREADS, 3.1), (BROKEN_INIT_CONNECT, 3.1)],
)
def test_a_200_may_rest_on_a_poll_of_a_quarter_of_a_second_ago_and_on_a_login_of_three(
    kind: str, longest: float
) -> None:
    for last_200_at, violations in ((longest - 0.01, 0), (longest + 0.01, 1)):
        said = [
            Sample(0.0, last_200_at, SAYS_200, ""),
            Sample(last_200_at + 0.01, 5.0, SAYS_503, ""),
        ]
        assert len(report(kind, said, DOWN).violations()) == violations


def test_the_time_after_a_hang_and_the_other_nodes_have_rows_and_goals_of_their_own() -> None:
    said = [Sample(3.0, 3.59, SAYS_200, "")]
    during = report(SIGSTOP, said, DOWN)
    afterwards = report(SIGSTOP, said, DOWN, ended_at=2.0)
    assert (
        "| SIGSTOP | 0.59 | 0 | 0 | 0 | 0 |\n| SIGSTOP, afterwards | 0 | 0 | 0 | 0 | 0 |"
        in during.text()
    )
    assert (
        "| SIGSTOP | 0 | 0 | 0 | 0 | 0 |\n| SIGSTOP, afterwards | 0.59 | 0 | 0 | 0 | 0 |"
        in afterwards.text()
    )
    assert (len(during.violations()), len(afterwards.violations())) == (1, 0)
    elsewhere = report(SIGSTOP, always(SAYS_200), always(UNUSABLE), node="node2")
    assert "| SIGSTOP, other nodes | 5.00 | 0 | 0 | 0 | 0 |" in elsewhere.text()
    assert not elsewhere.violations()


def test_a_503_may_be_older_by_a_second() -> None:
    for hundredths, violations in ((134, 0), (136, 1)):
        said = [
            Sample(number / 100, number / 100, SAYS_503, "") for number in range(1, hundredths + 2)
        ]
        assert len(report("SIGSTOP", said, UP).violations()) == violations


@pytest.mark.parametrize(
    ("kind", "seen", "violations"),
    [(PAUSED, "503 timeout", 1), (PAUSED, "no answer: timed out", 0), ("kill -9", "503 x", 0)],
)
def test_a_service_that_was_paused_must_not_answer_503_for_it(
    kind: str, seen: str, violations: int
) -> None:
    said = [Sample(0.0, 0.0, SAYS_200, "200 synced"), Sample(0.5, 3.5, SAYS_503, seen)]
    assert len(report(kind, said, UP).violations()) == violations
