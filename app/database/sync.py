"""Whether the node keeps up with its group, from its polls and its reads in sync.

Pure: no socket, no clock.

A read in sync is a SHOW STATUS with wsrep_sync_wait: the server answers when the node has received
and applied all that its group had ordered. On a node that is cut off, or behind a long DDL
statement, a full disk or a stuck applier, it waits, although every status variable says Synced.

    event                             the wait                        the return from a hang
    a read begins                     goes on, or begins              -
    it is answered                    ends                            complete, if it took 0.5 s
    it is refused (error 1205, 1047)  goes on, and counts as refused  -
    it ends in another way            goes on, but under 1 s: ends    -
    our account, or the path, fails   ends: nothing reads any more    -
    a poll gets no answer             -                               the last answer began a hang
    a poll fails                      -                               there is no hang
    it finds the server unreachable   -                               a hang goes on
    a poll is answered                -                               begins, if the hang took 2 s
    10 s later                        -                               complete
"""

from dataclasses import dataclass, replace

HANG_SECONDS = 2.0
"""After a hang of so many seconds, the group may have excluded the node, which does not know it
yet. The hang may have begun right after the last answer."""

RETURN_SECONDS = 10.0
"""How long the node may take to answer a read in sync after a hang, before it returns without."""

PROMPT_SECONDS = 0.5
"""Only a read that is answered so soon shows that the node is back. While the group is about to
exclude a node, a read may be answered after seconds, when the members have agreed on who they
were."""

_TOLD_NOTHING_SECONDS = 1.0


@dataclass(frozen=True)
class Sync:
    """What the polls and reads in sync so far say. All times are of one clock, in seconds.

    read_began_at: of the read that is under way, or of the latest. waiting_since: since when no
    read has been answered; None if the latest was. refused: whether the server refused one since
    then. answered_at: when the latest poll was answered; None if one has failed since. hung_since:
    since when no poll has been answered; None if the latest was. returned_at: when the first poll
    was answered after a hang, until the return is complete.
    """

    read_began_at: float | None = None
    waiting_since: float | None = None
    refused: bool = False
    answered_at: float | None = None
    hung_since: float | None = None
    returned_at: float | None = None

    def wait_seconds(self, at: float) -> float | None:
        """Return for how long no read in sync has been answered.

        0 if the latest was, None if there was none.
        """
        if self.read_began_at is None:
            return None
        return 0.0 if self.waiting_since is None else at - self.waiting_since

    def is_returning(self, at: float) -> bool:
        """Return whether the node has hung, and no read in sync has shown that it is back."""
        return self.returned_at is not None and at < self.returned_at + RETURN_SECONDS

    def is_returning_since(self, at: float) -> bool:
        """Return whether the node has come back from a hang after this time."""
        return self.returned_at is not None and at < self.returned_at

    def read_begun(self, at: float) -> "Sync":
        """Return the value after a read has begun."""
        since = at if self.waiting_since is None else self.waiting_since
        return replace(self, read_began_at=at, waiting_since=since)

    def read_answered(self, at: float) -> "Sync":
        """Return the value after the read was answered."""
        returned_at, began_at = self.returned_at, self.read_began_at
        if (
            returned_at is not None
            and began_at is not None
            and max(returned_at, at - PROMPT_SECONDS) <= began_at
        ):
            returned_at = None
        return replace(self, waiting_since=None, refused=False, returned_at=returned_at)

    def read_refused(self) -> "Sync":
        """Return the value after the server has refused the read."""
        return replace(self, refused=True)

    def read_lost(self, at: float) -> "Sync":
        """Return the value after the read has ended without an answer, as with its session."""
        told_nothing = self.waiting_since is None or at < self.waiting_since + _TOLD_NOTHING_SECONDS
        return self.nothing_reads() if told_nothing and not self.refused else self

    def nothing_reads(self) -> "Sync":
        """Return the value after the last session has ended, and our account gets no other."""
        return replace(self, read_began_at=None, waiting_since=None, refused=False)

    def poll_unanswered(self, began_at: float) -> "Sync":
        """Return the value after a poll that got no answer in time."""
        if self.hung_since is not None:
            return self
        return replace(self, hung_since=began_at if self.answered_at is None else self.answered_at)

    def poll_failed(self) -> "Sync":
        """Return the value after a poll that failed in any other way."""
        return replace(self, answered_at=None, hung_since=None)

    def poll_answered(self, at: float, *, can_read: bool = True) -> "Sync":
        """Return the value after a poll that was answered.

        can_read: whether there are reads in sync at all.
        """
        since = at if self.hung_since is None else self.hung_since
        hung = can_read and at - since >= HANG_SECONDS
        return replace(
            self, answered_at=at, hung_since=None, returned_at=at if hung else self.returned_at
        )
