"""Turns samples into stretches of time, and compares those to find false answers. Pure arithmetic.

A sample is a question and its answer, with the time of each. The answer was true at some moment in
between. In case of doubt, the rules treat a node as unusable:

1. A stretch of a kind lasts from the start of the first to the end of the last of consecutive
   samples of that kind. The time between two samples of different kinds belongs to neither. Each
   end of a stretch may therefore really be up to one sampling step (0.1 s, for the script 0.5 s)
   further out.
2. A truth sample is `usable` if a new client could log in, read a row and commit one within 1 s in
   all. Error 1213 (deadlock, certification conflict) counts as usable, because only a working
   server sends it. Any other sample is `unusable`, from its start to its end. The first failure
   after a success counts from 1 s before its end at the earliest: before that, the server answered.
3. A slow success (over 0.25 s) right after a failure shows that the node hung until then. It
   belongs to the unusable stretch. This can only make a false 200 longer.
4. False 200: a checker answered 200 while the node was unusable, even if no status variable shows
   that. False 503: it answered 503 while the node was usable, except for rule 5. While a checker
   takes over 0.25 s to answer, it says nothing.
5. Refused on purpose: the part of a false 503 in which a witness, who logs in as any client, saw
   wsrep_local_state 2 or 3, or could not read it. AVAILABLE_WHEN_DONOR=0 refuses the former, even
   if it reads and commits. A node whose state cannot be read is never available. Rules 2 and 3
   apply to the witness, too.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

SAYS_200, SAYS_503, SAYS_NOTHING = "200", "503", "nothing yet"
USABLE, UNUSABLE = "usable", "unusable"
DESYNCED, UNREADABLE, NOT_DESYNCED = "desynced", "unreadable", "not desynced"
FALSE_200, FALSE_503 = "false 200", "false 503"

TRUTH_SECONDS = 1.0
"""How long a client waits for the server: at each step, and in all."""

PROMPT_SECONDS = 0.25

Stretch = tuple[float, float]


class Sample(NamedTuple):
    """One question and its answer, with times of the monotonic clock.

    seen: a description of the answer.
    """

    began_at: float
    ended_at: float
    kind: str
    seen: str


def judge(
    verdicts: Sequence[Sample], truth: Sequence[Sample], witness: Sequence[Sample]
) -> dict[str, list[Stretch]]:
    """Compare a checker's answers about a node with the truth. Return the false ones, by kind."""
    answered, truth, witness = (
        with_silences(verdicts),
        settled(truth),
        settled(witness, UNREADABLE),
    )
    wrong_503 = intersection(stretches(answered, SAYS_503), stretches(truth, USABLE))
    return {
        FALSE_200: intersection(
            stretches(answered, SAYS_200), stretches(truth, UNUSABLE)
        ),
        FALSE_503: difference(
            difference(wrong_503, stretches(witness, DESYNCED)),
            stretches(witness, UNREADABLE),
        ),
    }


def settled(samples: Sequence[Sample], failed: str = UNUSABLE) -> list[Sample]:
    """Adjust where failures begin and end.

    The start of one after a success (rule 2), and its end before a slow success (rule 3).
    """
    result = list(samples)
    for index, (before, sample) in enumerate(pairwise(samples), 1):
        waited = sample.ended_at - sample.began_at > PROMPT_SECONDS
        if before.kind == failed != sample.kind and waited:
            result[index] = sample._replace(kind=failed)
        if before.kind != failed == sample.kind:
            result[index] = sample._replace(
                began_at=max(sample.began_at, sample.ended_at - TRUTH_SECONDS)
            )
    return result


def with_silences(verdicts: Sequence[Sample]) -> list[Sample]:
    """Replace the time in which a checker is slow to answer with no answer (rule 4)."""
    result: list[Sample] = []
    for sample in verdicts:
        if result and sample.ended_at - sample.began_at > PROMPT_SECONDS:
            result.append(sample._replace(kind=SAYS_NOTHING))
            result.append(sample._replace(began_at=sample.ended_at))
        else:
            result.append(sample)
    return result


def stretches(samples: Sequence[Sample], kind: str) -> list[Stretch]:
    """Return the stretches of one kind (rule 1)."""
    found: list[Stretch] = []
    before = None
    for sample in samples:
        if sample.kind == kind:
            began_at = found.pop()[0] if before == kind else sample.began_at
            found.append((began_at, sample.ended_at))
        before = sample.kind
    return found


def intersection(some: Sequence[Stretch], others: Sequence[Stretch]) -> list[Stretch]:
    """Return the stretches that are in both. Each argument is sorted and has no overlaps."""
    both = [
        (max(a, c), min(b, d)) for a, b in some for c, d in others if a < d and c < b
    ]
    return [(began_at, ended_at) for began_at, ended_at in both if began_at < ended_at]


def difference(some: Sequence[Stretch], others: Sequence[Stretch]) -> list[Stretch]:
    """Return the stretches that are in some but not in others."""
    left = list(some)
    for c, d in others:
        left = [
            piece
            for a, b in left
            for piece in ((a, min(b, c)), (max(a, d), b))
            if piece[0] < piece[1]
        ]
    return left


def length(stretch: Stretch) -> float:
    """Return the length of a stretch in seconds."""
    return stretch[1] - stretch[0]
