"""What clustercheckd promises, and what a simulated server gives it to promise: the judge of each
answer.

All times are in seconds in which our process runs.
"""

import math

from tests.simulation.server import FIRST_POLL, Fate, Server, Sync
from tests.simulation.world import World

POLL_INTERVAL_SECONDS = 0.25
LOGIN_INTERVAL_SECONDS = 2.0
DEADLINE_SECONDS = 0.8
"""The defaults of the settings."""

IDLE_SECONDS = 1.0
"""A poll begins if nobody has asked for so long (app/monitor/monitor.py)."""

REFUSAL_SECONDS = 0.05
"""How long a 503 may take if the node was unavailable (app/monitor/monitor.py)."""

CLOSE_SECONDS = 0.5
"""How long it may take to log out."""

ROUNDING_SECONDS = 1e-5

MOST_SESSIONS = 3
"""One answers the polls, one logs in, one logs out (app/database/poller.py)."""

SECONDS_PER_SESSION_LEFT = 30.0
"""A server that hangs is left with no more than these sessions and one more in so many seconds."""

ANSWER_SECONDS = DEADLINE_SECONDS + 0.1
"""How long any answer may take (app/monitor/monitor.py)."""

TURN_SECONDS = 0.01
"""What the turns of the loop and the way to the server may add."""

STEP_SECONDS = ANSWER_SECONDS / 8
MOST_STEPS = 20
"""A deadline has eight steps, and repeats eight that are late (app/monitor/deadline.py); the
monitor adds turns."""

BACK_SECONDS = 1.0
"""After so long the next login is due. The poll after that begins it, and the next one knows its
outcome."""

RETURN_SECONDS = 10.0
"""How much longer after a hang, if no read in sync is answered (app/database/sync.py)."""

REFUSED_SECONDS = 5.0
"""The longest pause between two logins that the server refuses: each adds a line to its log."""

SILENT_SECONDS = 30.0
MOST_SILENT_SECONDS = 60.0
"""How long a session that never answers is waited for, and what two of them cost."""

REJECTED_WITHIN_SECONDS = {
    Fate.REFUSED: 3.0,
    Fate.CUT: 3.0,
    Fate.NO_THREAD: 3.0,
    Fate.DIES: 3.0,
    Fate.UNANSWERED: 8.0,
    Fate.NO_GREETING: 8.0,
    Fate.SILENT: 60.0,
}
"""How long after the last login that could succeed a 200 may still be given."""

LOGIN_SECONDS = 5.0
"""How long a login may take. While one hangs, a lost session costs a moment."""

ACCOUNT = (Fate.DENIED, Fate.FULL)
"""These concern our account: a session that works goes on."""
_STATEMENTS = 5
"""A login and its first poll take five answers."""

_PROMPT_SECONDS = 0.05
"""With answers that take longer, a login and a poll together may take more than the deadline."""

_OPEN = (Fate.WELCOME, Fate.SLOW)
_PROMPT = (Fate.WELCOME, Fate.REFUSED, Fate.CUT, Fate.NO_THREAD, Fate.DIES, *ACCOUNT)
_HANGING = (Fate.NO_GREETING, Fate.UNANSWERED)
_UNANSWERED = (*_HANGING, Fate.SILENT)
_LATE_SECONDS = {
    **dict.fromkeys(ACCOUNT, REFUSED_SECONDS),
    **dict.fromkeys(_HANGING, LOGIN_SECONDS),
    Fate.SILENT: SILENT_SECONDS,
}
"""How much later than `BACK_SECONDS` a node may be back: the pause after a refusal, or a login that
still hangs."""


class Promises:
    """Knows since when the server is as it is, and therefore what may be answered."""

    def __init__(self, world: World, server: Server, ask_seconds: float) -> None:
        self._back_seconds = BACK_SECONDS + 2 * min(
            IDLE_SECONDS, POLL_INTERVAL_SECONDS + ask_seconds
        )
        self._world = world
        self._server = server
        self._rejects_since = math.inf
        self._settled_at = 0.0
        self._silence_ends_at = 0.0
        self._login_hangs_until = 0.0
        self._rejected_until = 0.0
        self._refused_until = 0.0
        self._lost_at = -math.inf
        self._return_ends_at = 0.0
        self._keeps_session = True
        server.on_fate = self._note_fate
        server.on_expiry = lambda session: self.lose_session(
            while_logging_in=session.statements < FIRST_POLL
        )

    @property
    def settled_at(self) -> float:
        """When a node that stays as it is must be available; infinite if it need not be."""
        fate = self._server.fate
        usable = fate in _OPEN or (fate in ACCOUNT and self._keeps_session)
        disturbed = self._server.hangs or self._world.turn_seconds
        return self._settled_at if usable and not disturbed else math.inf

    @property
    def last_200_at(self) -> float:
        """Until when a 200 may be given, if no login succeeds."""
        fate = self._server.fate
        within = REJECTED_WITHIN_SECONDS.get(fate, 0.0)
        hangs_until = 0.0 if fate in _HANGING else self._login_hangs_until
        since = max(self._rejects_since, self._silence_ends_at, self._refused_until, hangs_until)
        return math.inf if self._world.turn_seconds else since + within + POLL_INTERVAL_SECONDS

    def change_fate(self, fate: Fate) -> None:
        """Note what becomes of new clients from now on, before the server does it."""
        before = self._server.fate
        now = self._world.running
        if before in _OPEN:
            self._keeps_session = now >= max(self.settled_at, self._lost_at + 2 * IDLE_SECONDS)
        self._rejects_since = self._world.running if fate in REJECTED_WITHIN_SECONDS else math.inf
        if before is Fate.SILENT:
            self._silence_ends_at = self._world.running + MOST_SILENT_SECONDS
        if before is not Fate.WELCOME:
            late_seconds = max(_LATE_SECONDS.get(before, 0.0), self._login_hangs_until - now)
            self.settle(late_seconds, hung=before not in _PROMPT)

    def lose_session(self, *, silently: bool = False, while_logging_in: bool = False) -> None:
        """Note that sessions end or fall silent."""
        now = self._world.running
        again = now < self._lost_at + 2 * IDLE_SECONDS
        self._keeps_session = False
        self._lost_at = now
        if silently:
            self._note_silence()
        disturbed = again or now < max(
            self._silence_ends_at, self._login_hangs_until, self._return_ends_at
        )
        slow = (
            self._server.fate is not Fate.WELCOME or self._server.answer_seconds > _PROMPT_SECONDS
        )
        if disturbed or slow or while_logging_in or self._server.next_fates:
            self.settle(hung=silently or slow)

    def settle(self, seconds: float = 0.0, *, hung: bool = True) -> None:
        """Note that something has ended which may have cost the verdict. hung: whether polls may
        have hung.
        """
        seconds += (
            self._back_seconds
            + self._server.login_seconds
            + _STATEMENTS * self._server.answer_seconds
        )
        if hung:
            self._return_ends_at = self._world.running + RETURN_SECONDS + seconds
        in_sync = self._server.sync is Sync.ANSWERED and not self._server.waits_in_sync
        undisturbed = (
            self._server.fate is Fate.WELCOME and self._world.running > self._login_hangs_until
        )
        if not (in_sync and undisturbed):
            self._settled_at = max(self._settled_at, self._return_ends_at)
        self._settled_at = max(
            self._settled_at, self._world.running + seconds, self._silence_ends_at + seconds
        )
        if self._rejects_since < math.inf:
            self._rejects_since = max(self._rejects_since, self._world.running)

    def _note_fate(self, fate: Fate) -> None:
        now = self._world.running
        if fate is not Fate.WELCOME and now < self._return_ends_at:
            self._settled_at = max(self._settled_at, self._return_ends_at)
        if fate is Fate.SILENT:
            self._note_silence()
        if fate in ACCOUNT:
            self._refused_until = now + REFUSED_SECONDS
        if fate in _HANGING:
            self._login_hangs_until = now + LOGIN_SECONDS
        alone = not self._server.held or now < self._lost_at + 2 * IDLE_SECONDS
        if (alone and fate is not Fate.WELCOME) or (
            fate in _UNANSWERED and now < self._rejected_until
        ):
            self.settle(_LATE_SECONDS.get(fate, 0.0))
        if fate in REJECTED_WITHIN_SECONDS:
            # One rejected login is an accident; two in a row are not.
            if now < self._rejected_until and self._server.fate not in REJECTED_WITHIN_SECONDS:
                self.settle(_LATE_SECONDS.get(fate, 0.0), hung=fate not in _PROMPT)
            self._rejected_until = (
                now + _LATE_SECONDS.get(fate, 0.0) + LOGIN_INTERVAL_SECONDS + IDLE_SECONDS
            )

    def _note_silence(self) -> None:
        now = self._world.running
        ends_at = max(now, self._silence_ends_at) + SILENT_SECONDS
        self._silence_ends_at = min(ends_at, now + MOST_SILENT_SECONDS)


def most_seconds(*, known_refusal: bool, pauses: int, turn_seconds: float) -> float:
    """Return how long an answer may take."""
    seconds = REFUSAL_SECONDS if known_refusal else ANSWER_SECONDS
    if turn_seconds:
        steps = 4 if known_refusal else MOST_STEPS
        seconds = steps * max(STEP_SECONDS, turn_seconds)
    # A step in which our process was paused may be repeated.
    return seconds + 2 * pauses * STEP_SECONDS + TURN_SECONDS
