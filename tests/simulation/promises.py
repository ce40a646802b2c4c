"""What clustercheckd promises, and what a simulated server gives it to promise.

The numbers are those of docs/guarantees.md, docs/reference/settings.md and
docs/reference/http-api.md, not of the code. All times are in seconds in which our process runs.
"""

import math

from tests.simulation.server import SLOW_SECONDS, Fate, Server, Sync
from tests.simulation.world import World

POLL_INTERVAL_SECONDS = 0.25
LOGIN_INTERVAL_SECONDS = 2.0
DEADLINE_SECONDS = 0.8
"""The defaults of the settings."""

IDLE_SECONDS = 1.0
"""A poll begins if nobody has asked for so long."""

ANSWER_SECONDS = DEADLINE_SECONDS + 0.1
"""How long any answer may take: the deadline, and a tenth after a pause."""

REFUSAL_SECONDS = 0.05
"""How long a 503 may take if the node was unavailable."""

MAX_AGE_SECONDS = 1.9
"""An older result is stale (docs/reference/http-api.md, Status)."""

CLOSE_SECONDS = 0.5
"""How long it may take to log out."""

ROUNDING_SECONDS = 1e-5

MOST_SESSIONS = 3
MOST_ON_THE_SERVER = 6
"""Counted by the server, with those that were given up."""

MOST_SYNC_WAIT_SECONDS = 1.0
"""The limit of the stricter health checks."""

BLOCKED_SECONDS = LOGIN_INTERVAL_SECONDS + MOST_SYNC_WAIT_SECONDS + 2 * IDLE_SECONDS
"""How long after a node has come to a stand they may still get a 200."""

SYNC_SECONDS = 60.0
"""After so long a read in sync that waits is given up."""

TURN_SECONDS = 0.01
"""What the turns of the loop and the way to the server may add."""

DISTURBED_SECONDS = 6.0
"""How long an answer may take while our process works or pauses: a deadline has eight steps, and
repeats eight that are late."""

BACK_SECONDS = 1.0 + 5 * 0.02
"""Available within a second and two polls; a login and a poll take five answers."""

HANG_SECONDS = (2.0, 6.0)
"""After the shortest, a read in sync is due. The other outlasts a login."""

RETURN_SECONDS = 10.0
"""How much longer after a hang, if no read in sync is answered."""

REJECTED_WITHIN_SECONDS = {
    Fate.REFUSED: 3.0,
    Fate.CUT: 3.0,
    Fate.NO_THREAD: 3.0,
    Fate.DIES: 3.0,
    Fate.UNANSWERED: 8.0,
    Fate.NO_GREETING: 8.0,
    Fate.SILENT: 8.0,
}
"""How long after the last login that could succeed a 200 may still be given."""

LATE_SECONDS = {
    Fate.SLOW: SLOW_SECONDS,
    Fate.DENIED: 60.0,
    Fate.FULL: 5.0,
    Fate.NO_GREETING: 5.0,
    Fate.UNANSWERED: 5.0,
    Fate.SILENT: 60.0,
}
"""How much later a node may be back: the longest pause after a refusal, the limit of a login, and
what two sessions cost that never answer."""

ACCOUNT = (Fate.DENIED, Fate.FULL)
"""These concern our account: a session that works goes on."""

_OPEN = (Fate.WELCOME, Fate.SLOW)


class Promises:
    """Know since when the server is as it is, and therefore what may be answered.

    A single accident in a calm world costs no verdict. Trouble that comes on top of trouble does.
    """

    _settled_at = 0.0
    _hangs_until = -math.inf  # the login, or the session, of the latest accident
    _rejects_since = math.inf
    _keeps_session = True
    _in_sync_at = 0.0
    _latest = Fate.WELCOME  # what became of the latest client

    def __init__(self, world: World, server: Server, ask_seconds: float) -> None:
        poll_seconds = min(IDLE_SECONDS, POLL_INTERVAL_SECONDS + ask_seconds)
        self._back_seconds = BACK_SECONDS + 2 * poll_seconds
        self._world = world
        self._server = server
        server.on_client = self._note_client

    @property
    def settled_at(self) -> float:
        """When a node that stays as it is must be available; infinite if it need not be."""
        fate = self._server.fate
        usable = fate in _OPEN or (fate in ACCOUNT and self._keeps_session)
        disturbed = self._server.hangs or self._world.turn_seconds
        return self._settled_at if usable and not disturbed else math.inf

    @property
    def in_sync_at(self) -> float:
        """The same under a limit for reads in sync."""
        is_in_sync = self._server.sync in (Sync.ANSWERED, Sync.SLOW)
        return max(self.settled_at, self._in_sync_at) if is_in_sync else math.inf

    @property
    def last_200_at(self) -> float:
        """Until when a 200 may be given, if no login succeeds."""
        if self._world.turn_seconds:
            return math.inf
        within_seconds = REJECTED_WITHIN_SECONDS.get(self._server.fate, math.inf)
        return self._rejects_since + within_seconds + POLL_INTERVAL_SECONDS

    def fate_changed(self, before: Fate) -> None:
        """Note that new clients meet with another fate than before."""
        if before in _OPEN:
            self._keeps_session = self._is_calm
        self._rejects_since = max(
            self._world.running, self._settled_at, self._fragile_until
        )
        if before is not Fate.WELCOME:
            self.settle(LATE_SECONDS.get(before, 0.0))

    def lose_session(self, *, silently: bool = False) -> None:
        """Note that a session ends or falls silent."""
        next_one_fails = (
            self._server.fate is not Fate.WELCOME or self._server.next_fates
        )
        self._keeps_session = False
        if silently:
            self.settle(LATE_SECONDS[Fate.SILENT])
            self._settle_in_sync(LATE_SECONDS[Fate.SILENT])
        elif next_one_fails or not self._is_calm:
            self.settle()
        self._be_fragile(0.0)

    def settle(self, late_seconds: float = 0.0) -> None:
        """Note that something has ended which may have cost the verdict."""
        now = self._world.running
        seconds = late_seconds + self._back_seconds
        seconds += LATE_SECONDS.get(self._server.fate, 0.0)
        if not (
            self._is_in_sync and self._is_calm and self._server.fate is Fate.WELCOME
        ):
            seconds += RETURN_SECONDS
        self._settled_at = max(self._settled_at, max(now, self._hangs_until) + seconds)
        self._rejects_since = max(self._rejects_since, now + late_seconds)

    def pause(self, seconds: float) -> None:
        """Note that our process is about to pause, which alone costs nothing."""
        if seconds > HANG_SECONDS[0] / 2 and not (self._is_in_sync and self._is_calm):
            self.settle()
        self._be_fragile(0.0)

    @property
    def _is_in_sync(self) -> bool:
        return self._server.sync is Sync.ANSWERED and not self._server.waits_in_sync

    def sync_changed(self) -> None:
        """Note that reads in sync end in another way, which matters only after a hang."""
        self._settle_in_sync(SYNC_SECONDS if self._server.waits_in_sync else 0.0)
        if not self._is_calm:
            self.settle()

    @property
    def _fragile_until(self) -> float:
        return self._hangs_until + LOGIN_INTERVAL_SECONDS + IDLE_SECONDS

    @property
    def _is_calm(self) -> bool:
        return self._world.running >= max(self._settled_at, self._fragile_until)

    def _note_client(self, fate: Fate) -> None:
        """Note what becomes of a new client."""
        before, self._latest = self._latest, fate
        if fate is Fate.WELCOME:
            return
        late_seconds = LATE_SECONDS.get(fate, 0.0)
        is_accident = fate is not self._server.fate
        # A slow login may have been late: then this one is the second.
        in_trouble = before is Fate.SLOW or not self._is_calm
        if not self._server.held or (is_accident and in_trouble):
            self.settle(late_seconds)
        if is_accident:
            self._be_fragile(late_seconds)
            self._settle_in_sync(late_seconds)

    def _settle_in_sync(self, late_seconds: float) -> None:
        late_seconds += LOGIN_INTERVAL_SECONDS + self._back_seconds
        self._in_sync_at = max(self._in_sync_at, self._world.running + late_seconds)

    def _be_fragile(self, late_seconds: float) -> None:
        self._hangs_until = max(self._hangs_until, self._world.running + late_seconds)
        self._rejects_since = max(self._rejects_since, self._hangs_until)
