"""Whether the node keeps up with its group, from polls and reads in sync (docs/policies.md). Pure.

If no poll was answered for so long that the group may have excluded the node, which may not know it
yet, the next 200 needs a read in sync that began afterwards, whoever slept.
"""

import math
from enum import Enum
from typing import NamedTuple

_RETURN_SECONDS = 10.0
"""After so long, the node returns without it."""

_PROMPT_SECONDS = 0.5
"""A later answer shows no return: the group may be about to exclude the node."""

_AGAIN_SECONDS = 1.0
"""After a read that was refused or lost."""

_RETURNING_AGAIN_SECONDS = 0.2
"""The same while the node returns."""

_TOLD_NOTHING_SECONDS = 1.0
_SUSPECTED = 0.4
_SPARE_SECONDS = 0.1


class Read(Enum):
    """What the reads in sync say."""

    NONE = "there was none, or nothing can be known of it"
    ANSWERED = "the latest was answered"
    WAITING = "none was answered since `waiting_since`"
    REFUSED = "the same, and the node refused one"


class Answers(Enum):
    """How the answers to polls came."""

    NONE = "there was none yet: the first one comes without a gap"
    SILENCE = "the server gave none yet, and may have hung for any time"
    TIMELY = "the next one is due until `due_at`; later, it comes after a gap"
    RETURNING = "the same, and the one at `returned_at` came after a gap: no read was prompt since"


def gap_seconds(suspect_seconds: float, poll_interval_seconds: float) -> float:
    """Return how long a node may give no answer without being excluded from its group.

    suspect_seconds: until it is excluded, from its last message, which may be a second older.
    """
    return max(_SUSPECTED * suspect_seconds, poll_interval_seconds + _SPARE_SECONDS)


class Sync(NamedTuple):
    """What the polls and reads in sync so far say.

    A method that names an event returns the value after it. unanswered: of the latest poll.
    in_sync_at: when the latest read that was answered began.
    """

    read: Read = Read.NONE
    read_began_at: float = 0.0
    waiting_since: float = 0.0
    in_sync_at: float = -math.inf
    answers: Answers = Answers.NONE
    due_at: float = 0.0
    returned_at: float = 0.0
    unanswered: bool = False

    def wait_seconds(self, at: float) -> float | None:
        """How long none was answered; None if nothing is known."""
        if self.read is Read.NONE:
            return None
        return at - self.waiting_since if self._waits else 0.0

    @property
    def refused(self) -> bool:
        """Whether the node has refused one since its last answer."""
        return self.read is Read.REFUSED

    @property
    def _waits(self) -> bool:
        return self.read in (Read.WAITING, Read.REFUSED)

    def is_returning(self, at: float) -> bool:
        """Whether no read has shown that the node is back."""
        returning = self.answers is Answers.RETURNING
        return returning and at < self.returned_at + _RETURN_SECONDS

    @property
    def read_is_outdated(self) -> bool:
        """Whether the latest read began before the gap."""
        returning = self.answers is Answers.RETURNING
        return returning and self.read_began_at < self.returned_at

    def read_is_due(self, at: float, interval_seconds: float) -> bool:
        """Whether to read, unless one is under way."""
        seconds = interval_seconds
        if self._waits:
            seconds = min(seconds, _AGAIN_SECONDS)
        if self.is_returning(at):
            seconds = min(seconds, _RETURNING_AGAIN_SECONDS)
        is_old = self.read is Read.NONE or self.read_is_outdated
        return is_old or at >= self.read_began_at + seconds

    def read_begun(self, at: float) -> "Sync":
        """Note that one was sent."""
        if self._waits:
            return self._replace(read_began_at=at)
        return self._replace(read=Read.WAITING, read_began_at=at, waiting_since=at)

    def read_ended(self, at: float, *, is_answered: bool) -> "Sync":
        """Note its end. is_answered: without error 1205 or 1047."""
        if not self._waits:
            return self
        if not is_answered:
            return self._replace(read=Read.REFUSED)
        is_prompt = at <= self.read_began_at + _PROMPT_SECONDS
        answers = self.answers
        if answers is Answers.RETURNING and is_prompt and not self.read_is_outdated:
            answers = Answers.TIMELY
        in_sync_at = self.read_began_at
        return self._replace(read=Read.ANSWERED, answers=answers, in_sync_at=in_sync_at)

    def read_lost(self, at: float) -> "Sync":
        """Note that its session was lost, or got another error."""
        waited = self._waits and at >= self.waiting_since + _TOLD_NOTHING_SECONDS
        return self if waited or self.refused else self.nothing_reads()

    def nothing_reads(self) -> "Sync":
        """Note that nothing is known any more."""
        return self._replace(read=Read.NONE)

    def waited(self, at: float, seconds: float | None) -> "Sync":
        """Note that another process has waited for so long."""
        if not self._waits:
            return self
        since = min(self.waiting_since, at - (seconds or 0.0))
        return self._replace(waiting_since=since)

    def poll_failed(self) -> "Sync":
        """Note a poll that did not read the node."""
        is_first = self.answers is Answers.NONE
        answers = Answers.SILENCE if is_first else self.answers
        return self._replace(answers=answers, unanswered=True)

    def poll_answered(self, at: float, longest_gap_seconds: float | None) -> "Sync":
        """Note a poll that was answered. longest_gap_seconds: None if nothing reads in sync."""
        if longest_gap_seconds is None:
            return self._replace(answers=Answers.NONE, unanswered=False)
        answers, returned_at = self.answers, self.returned_at
        if answers is Answers.NONE:
            answers = Answers.TIMELY
        elif answers is Answers.SILENCE or at > self.due_at:
            answers, returned_at = Answers.RETURNING, at
        return self._replace(
            answers=answers,
            due_at=at + longest_gap_seconds,
            returned_at=returned_at,
            unanswered=False,
        )
