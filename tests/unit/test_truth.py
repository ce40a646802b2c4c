"""The arithmetic of the truth run: what counts as false, and for how long."""

import pytest

from bench.truth.faults import NO_THREADS
from bench.truth.group_faults import ALL_CUT
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
)

UP = [Sample(0.0, 5.0, USABLE, "")]
DOWN = [Sample(0.0, 5.0, UNUSABLE, "")]


def samples(*kinds: str) -> list[Sample]:
    """Return one a second, each answered at once."""
    return [Sample(second, second, kind, kind) for second, kind in enumerate(kinds)]


def always(kind: str) -> list[Sample]:
    """Return six seconds of the same."""
    return samples(*[kind] * 6)


def test_a_200_on_an_unusable_node_is_false_even_if_it_is_a_donor() -> None:
    said, unusable = always(SAYS_200), samples(USABLE, *[UNUSABLE] * 5)
    assert judge(said, unusable, always(NOT_DESYNCED))[FALSE_200] == [(1, 5)]
    assert judge(said, unusable, always(DESYNCED))[FALSE_200] == [(1, 5)]
    assert judge(said, always(USABLE), always(NOT_DESYNCED))[FALSE_200] == []


def test_a_503_on_a_usable_node_is_false_unless_the_node_is_desynced_or_cannot_be_read() -> (
    None
):
    said, usable = always(SAYS_503), samples(UNUSABLE, *[USABLE] * 5)
    until = samples(*[DESYNCED] * 3, *[NOT_DESYNCED] * 3)
    assert judge(said, usable, until)[FALSE_503] == [(2, 5)]
    # Whatever else is wrong with its variables: it can be used.
    assert judge(said, usable, always(NOT_DESYNCED))[FALSE_503] == [(1, 5)]
    assert judge(said, usable, always(UNREADABLE))[FALSE_503] == []
    until = [
        Sample(0, 3, UNREADABLE, ""),
        Sample(3, 4, NOT_DESYNCED, "after a wait"),
        Sample(4, 4.1, NOT_DESYNCED, ""),
    ]
    assert judge(said, usable, until)[FALSE_503] == [(4, 5)]


def said_of_a_node(
    ours: list[Sample], truth: list[Sample], witness: list[Sample]
) -> dict[str, list[Sample]]:
    """Return what is known of a node, about which only clustercheckd said something."""
    return {OURS: ours, IN_SYNC: [], SCRIPT: [], TRUTH: truth, WITNESS: witness}


def report(
    kind: str,
    ours: list[Sample],
    truth: list[Sample],
) -> Report:
    """Report on a node with one fault."""
    said = said_of_a_node(ours, truth, always(NOT_DESYNCED))
    return Report("a test", {"node1": said}, [Window(1, kind, "node1", 0.2, 6.0)])


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
    [
        ("SIGSTOP", 0.35),
        (NO_THREADS, 3.1),
    ],
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


@pytest.mark.parametrize(
    ("kind", "others", "truth", "found"),
    [
        ("LOCK TABLES", always(SAYS_200), DOWN, []),
        ("LOCK TABLES", always(SAYS_200), UP, ["out alone for 5.0 s, 4.7 s of it in vain"]),
        ("LOCK TABLES", always("503 stalled"), DOWN, ["two nodes out alone: node1 (503 cut-off) and node2 (503 stalled) for 5.00 s at 0.00 s; LOCK TABLES"]),
        (ALL_CUT, always("503 stalled"), DOWN, []),
    ],
)  # fmt: skip
def test_nodes_out_alone_are_so_one_at_a_time_and_not_in_vain(
    kind: str, others: list[Sample], truth: list[Sample], found: list[str]
) -> None:
    nodes = {
        "node1": said_of_a_node(
            [one._replace(kind=SAYS_503) for one in always("503 cut-off")], truth, []
        ),
        "node2": said_of_a_node(others, DOWN, []),
    }
    violations = Report(
        "a test", nodes, [Window(1, kind, "node1", 0.0, 6.0)]
    ).violations()
    assert found == [one for one in violations if " alone" in one.partition("\n")[0]]


@pytest.mark.parametrize(("other", "seconds"), [("stalled", "5.0"), ("cut-off", "0.0")])
def test_the_report_tells_for_how_long_two_nodes_were_stalled_at_once(
    other: str, seconds: str
) -> None:
    nodes = {
        f"node{number}": said_of_a_node(always(f"503 {reason}"), DOWN, [])
        for number, reason in enumerate(("stalled", other), 1)
    }
    found = Report("a test", nodes, [Window(1, ALL_CUT, "node1", 0.0, 6.0)])
    assert f"Two nodes stalled at once: {seconds} s.\n" in found.text()
