"""The waits of reads in sync: logged as they last, and as they end."""

import logging

from app.verdict.alone import GROUP
from app.verdict.node_state import NodeState

_TOLD_SECONDS = 1.0
"""The log tells of a longer wait."""

_ALL_WAIT = (
    "the whole group waits, as far as this node shows: look for DDL, a lock, a large transaction,"
    " and a member that has gone"
)

_log = logging.getLogger(__name__)


class Waits:
    """Logs each wait once, and once its end."""

    _told_seconds = 0.0

    def note(self, node: NodeState) -> None:
        """Log what a poll has seen of a wait, if that is news."""
        seconds = node.sync_wait_seconds
        if seconds is not None and seconds >= _TOLD_SECONDS:
            if not self._told_seconds:
                detail = _ALL_WAIT if node.stall == GROUP else node.stall
                _log.warning("not in sync", extra={"detail": detail})
            self._told_seconds = seconds
        elif seconds == 0.0 and self._told_seconds:
            _log.info("in sync again", extra={"seconds": round(self._told_seconds, 1)})
            self._told_seconds = 0.0
