"""From samples to stretches of time, and from those to what was false: pure arithmetic.

A sample is an answer to a question that was asked at one time and answered at another; what it says was so at some
moment in between. The rules, which where in doubt call a node unusable rather than usable:

1. A stretch of a kind runs from where the first of consecutive samples of that kind began to where the last of them
   ended. The time between two samples of different kinds belongs to neither. So each end of a stretch may in truth lie
   up to one sampling step (0.1 s, the script 0.5 s) further out.
2. A truth sample is `usable` if a fresh client could log in, read a row and commit one within 1 s, each step of it
   included; error 1213 (deadlock, certification conflict) is a working server's answer. Anything else is `unusable`,
   and was so from its beginning to its end. Only the first after a success, where the client waited in vain, counts
   from 1 s before its end: the server answered its earlier steps.
3. A success that itself waited (over 0.25 s) right after a failure shows that the node hung until then: it still
   belongs to the unusable stretch. This only ever makes a false 200 longer.
4. False 200: 200 was answered while the node was unusable, but for 5. False 503: 503 was answered while it was usable,
   but for 6. While a checker is slow to answer (over 0.25 s) it says nothing.
5. Invisible: of a false 200, a part of more than 0.5 s in which a witness, reading the variables in the same moments
   over a connection of its own, saw nothing wrong: Synced, Primary, connected, ready, no reject_queries, not read-only,
   not full. What is shorter may be the samples' own time, and stays a false 200.
6. By policy: of a false 503, the part in which the witness saw wsrep_local_state 2 or 3 and nothing else wrong. A
   node that lags on purpose is refused by AVAILABLE_WHEN_DONOR=0, however well it reads and commits.
7. In force: while a checker is slow to answer, a load balancer still acts on the answer before. This is the time that a
   200 was in force while the node was unusable, but for 5.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

SAYS_200, SAYS_503, SAYS_NOTHING = "200", "503", "nothing yet"
USABLE, UNUSABLE = "usable", "unusable"
HEALTHY, DESYNCED, UNHEALTHY = "healthy", "desynced", "unhealthy"

TRUTH_SECONDS = 1.0
"""How long a client waits for the server at each step, and for all of them."""

PROMPT_SECONDS = 0.25
_INVISIBLE_SECONDS = 0.5

Stretch = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Sample:
    """One question and its answer; times of the monotonic clock. seen: the answer in words."""

    began_at: float
    ended_at: float
    kind: str
    seen: str


@dataclass(frozen=True, slots=True)
class Findings:
    """What one checker said of one node, beside the truth."""

    false_200: list[Stretch]
    in_force: list[Stretch]
    false_503: list[Stretch]
    invisible: list[Stretch]
    by_policy: list[Stretch]


def judge(verdicts: Sequence[Sample], truth: Sequence[Sample], witness: Sequence[Sample]) -> Findings:
    """Compare what a checker said of a node with what was true of it."""
    answered, in_force, truth = given(verdicts), standing(verdicts), settled(truth)
    unusable = stretches(truth, UNUSABLE)
    wrong_200 = intersection(stretches(answered, SAYS_200), unusable)
    wrong_in_force = intersection(stretches(in_force, SAYS_200), unusable)
    wrong_503 = intersection(stretches(answered, SAYS_503), stretches(truth, USABLE))
    desynced = stretches(witness, DESYNCED)
    unseen = intersection(wrong_in_force, stretches(witness, HEALTHY))
    invisible = [stretch for stretch in unseen if length(stretch) > _INVISIBLE_SECONDS]
    return Findings(
        false_200=difference(wrong_200, invisible),
        in_force=difference(wrong_in_force, invisible),
        false_503=difference(wrong_503, desynced),
        invisible=invisible,
        by_policy=intersection(wrong_503, desynced),
    )


def settled(truth: Sequence[Sample]) -> list[Sample]:
    """Say from when a failure after a success holds (rule 2), and until when one before a success does (rule 3)."""
    result = list(truth)
    for index, (before, sample) in enumerate(pairwise(truth), 1):
        waited = sample.ended_at - sample.began_at > PROMPT_SECONDS
        if (before.kind, sample.kind) == (UNUSABLE, USABLE) and waited:
            result[index] = replace(sample, kind=UNUSABLE)
        if (before.kind, sample.kind) == (USABLE, UNUSABLE):
            result[index] = replace(sample, began_at=max(sample.began_at, sample.ended_at - TRUTH_SECONDS))
    return result


def given(verdicts: Sequence[Sample]) -> list[Sample]:
    """Let nothing count while a checker is slow to answer (rule 4)."""
    return _slow_ones_cut(verdicts, lambda _: SAYS_NOTHING)


def standing(verdicts: Sequence[Sample]) -> list[Sample]:
    """Let the answer before stand while a checker is slow to give the next (rule 7)."""
    return _slow_ones_cut(verdicts, lambda before: before.kind)


def _slow_ones_cut(verdicts: Sequence[Sample], meanwhile: Callable[[Sample], str]) -> list[Sample]:
    result: list[Sample] = []
    for sample in verdicts:
        if result and sample.ended_at - sample.began_at > PROMPT_SECONDS:
            result.append(replace(sample, kind=meanwhile(result[-1])))
            result.append(replace(sample, began_at=sample.ended_at))
        else:
            result.append(sample)
    return result


def stretches(samples: Sequence[Sample], kind: str) -> list[Stretch]:
    """Give the stretches of one kind (rule 1)."""
    found: list[Stretch] = []
    before = None
    for sample in samples:
        if sample.kind == kind:
            began_at = found.pop()[0] if before == kind else sample.began_at
            found.append((began_at, sample.ended_at))
        before = sample.kind
    return found


def intersection(some: Sequence[Stretch], others: Sequence[Stretch]) -> list[Stretch]:
    """Give what is in both; each is in order and without overlaps."""
    both = [(max(a, c), min(b, d)) for a, b in some for c, d in others if a < d and c < b]
    return [(began_at, ended_at) for began_at, ended_at in both if began_at < ended_at]


def difference(some: Sequence[Stretch], others: Sequence[Stretch]) -> list[Stretch]:
    """Give what is in some and not in others."""
    left = list(some)
    for c, d in others:
        left = [piece for a, b in left for piece in ((a, min(b, c)), (max(a, d), b)) if piece[0] < piece[1]]
    return left


def length(stretch: Stretch) -> float:
    """Give its seconds."""
    return stretch[1] - stretch[0]


def longest(some: Iterable[Stretch]) -> float:
    """Give the seconds of the longest; 0 where there is none."""
    return max(map(length, some), default=0.0)


def total(some: Iterable[Stretch]) -> float:
    """Give the seconds of all together."""
    return sum(map(length, some))
