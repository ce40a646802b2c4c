"""Whether the node keeps up with its group, from polls and reads in sync (docs/policies.md). Pure.

If no poll was answered for so long that the group may have excluded the node, the next 200 needs a
read in sync that began afterwards, whoever slept: the server, this process or the machine. The node
itself may not know yet that it was excluded.
"""

import math
from dataclasses import dataclass, replace

RETURN_SECONDS = 10.0
"""After such a gap, the node returns without a read in sync that it has not answered so long."""

PROMPT_SECONDS = 0.5
"""Only a read that is answered so soon shows that the node is back. While the group is about to
exclude it, one may be answered after seconds, when the members have agreed on who they were."""

_AGAIN_SECONDS = 1.0
"""After a read that was refused or lost."""

_RETURNING_AGAIN_SECONDS = 0.2
"""While the node returns: at each poll."""

_TOLD_NOTHING_SECONDS = 1.0
_SUSPECTED = 0.4
_SPARE_SECONDS = 0.1


def gap_seconds(suspect_seconds: float, poll_interval_seconds: float) -> float:
    """Return how long a node may give no answer without being excluded from its group.

    suspect_seconds: its evs.suspect_timeout. The others count from its last message, which may be a
    second older. poll_interval_seconds: the longest pause between two polls, which is no gap.
    """
    return max(_SUSPECTED * suspect_seconds, poll_interval_seconds + _SPARE_SECONDS)


@dataclass(frozen=True)
class Sync:
    """What the polls and reads in sync so far say, in seconds of one clock.

    A method that names an event returns the value after it.

    read_began_at: of the latest read; -inf if there was none. waiting_since: since when none was
    answered; None if the latest was. refused: whether one was since then. due_at: until when an
    answer to a poll comes without a gap; inf before the first. unanswered: whether the latest poll
    got no answer in time. returned_at: of the first answer after a gap, until the return is
    complete; -inf otherwise.
    """

    read_began_at: float = -math.inf
    waiting_since: float | None = None
    refused: bool = False
    due_at: float = math.inf
    unanswered: bool = False
    returned_at: float = -math.inf

    def wait_seconds(self, at: float) -> float | None:
        """How long none was answered; 0 if the latest was, None if there was none."""
        if self.read_began_at == -math.inf:
            return None
        return 0.0 if self.waiting_since is None else at - self.waiting_since

    def is_returning(self, at: float) -> bool:
        """Whether no read has shown yet that the node is back from a gap."""
        return at < self.returned_at + RETURN_SECONDS

    @property
    def read_is_outdated(self) -> bool:
        """Whether the latest read began before the gap, so that its answer shows no return."""
        return self.read_began_at < self.returned_at

    def read_is_due(self, at: float, interval_seconds: float) -> bool:
        """Whether to read, unless a read is under way. interval_seconds: 0 for none."""
        seconds = interval_seconds or math.inf
        if self.waiting_since is not None:
            seconds = min(seconds, _AGAIN_SECONDS)
        if self.is_returning(at):
            seconds = min(seconds, _RETURNING_AGAIN_SECONDS)
        return self.read_is_outdated or at >= self.read_began_at + seconds

    def read_begun(self, at: float) -> "Sync":
        """Note that one was sent."""
        since = at if self.waiting_since is None else self.waiting_since
        return replace(self, read_began_at=at, waiting_since=since)

    def read_answered(self, at: float) -> "Sync":
        """Note its answer."""
        returned_at = self.returned_at
        if self.read_began_at >= max(returned_at, at - PROMPT_SECONDS):
            returned_at = -math.inf
        return replace(self, waiting_since=None, refused=False, returned_at=returned_at)

    def read_refused(self) -> "Sync":
        """Note error 1205 or 1047."""
        return replace(self, refused=True)

    def read_lost(self, at: float) -> "Sync":
        """Note that its session was lost."""
        return self if self.refused else self._unless_told(at, self.waiting_since)

    def read_failed(self, at: float) -> "Sync":
        """Note an error that concerns our account or session, not the node."""
        return self._unless_told(at, self.read_began_at)

    def _unless_told(self, at: float, since: float | None) -> "Sync":
        told_nothing = since is None or at < since + _TOLD_NOTHING_SECONDS
        return self.nothing_reads() if told_nothing else self

    def nothing_reads(self) -> "Sync":
        """Note that no session can read, and our account gets no other."""
        return replace(self, read_began_at=-math.inf, waiting_since=None, refused=False)

    def poll_failed(self, *, in_time: bool, is_answer: bool = False) -> "Sync":
        """Note a poll that did not read the node. in_time: not by a timeout.

        A server that does not answer when clustercheckd starts may have hung for any time.
        """
        due_at = self.due_at
        if due_at == math.inf and not is_answer:
            due_at = -math.inf
        return replace(self, due_at=due_at, unanswered=not in_time)

    def poll_answered(self, at: float, longest_gap_seconds: float) -> "Sync":
        """Note a poll that was answered.

        longest_gap_seconds: how long the next answer may take without a gap; inf if nothing reads
        in sync.
        """
        is_gap = at > self.due_at and longest_gap_seconds < math.inf
        return replace(
            self,
            due_at=at + longest_gap_seconds,
            unanswered=False,
            returned_at=at if is_gap else self.returned_at,
        )
