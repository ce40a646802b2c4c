"""What happens in a world, from its seed.

When the server changes, which sessions suffer, when our process pauses.
"""

import math
import random
from dataclasses import dataclass

from tests.simulation.promises import ACCOUNT, Promises
from tests.simulation.server import Fate, Server, Session, Sync
from tests.simulation.world import Action, World

_KINDS = 5
"""So many kinds of events happen in one world: with few, more of the worlds are extreme."""

_FATES = [*Fate, *[Fate.NO_THREAD] * 3, Fate.CUT, Fate.SLOW, Fate.DIES]
_ACCIDENTS = [Fate.CUT, Fate.DIES, Fate.SILENT, Fate.SILENT]
_ENDING = (Fate.WELCOME, *ACCOUNT)


@dataclass
class Plan:
    """Lets things happen in a world until `ends_at`; then all is well."""

    world: World
    server: Server
    promises: Promises
    rng: random.Random
    is_calm: bool

    def __post_init__(self) -> None:
        """Choose what happens."""
        self.ends_at = 0.0 if self.is_calm else self.rng.uniform(6.0, 22.0)
        self.pauses_after_poll: list[float] = []
        self._slept_at = 0.0
        kinds: list[Action] = [
            *[self.befall] * 4,
            *[self.pause] * 3,
            *[self.kill] * 2,
            self.hang,
            self.silence,
            self.work,
            self.sleep,
            self.have_accident,
            self.wait_in_sync,
            self.pause_all,
            self.cut_answer,
        ]
        self._kinds = self.rng.sample(kinds, _KINDS)
        self._later(self.rng.uniform(0.5, 4.0), self._go_on)
        self.world.after(self.ends_at, self.end)

    def end(self) -> None:
        """Make all well."""
        self.world.tell("all is well from now on")
        self.server.next_fates.clear()
        self._work_for(0.0)
        self.release()
        self.change_sync(Sync.ANSWERED)
        self.change_fate(Fate.WELCOME)

    def befall(self) -> None:
        """Let all new clients meet with one fate for a time."""
        if self.server.fate is Fate.WELCOME:
            fate = self.rng.choice(_FATES)
            self.change_fate(fate)
            if fate is Fate.SLOW:
                self.server.next_fates.append(Fate.CUT)
            self._later(self._some_seconds(), self._relieve)

    def _relieve(self) -> None:
        """Let all new clients in again, or first refuse our account for a while."""
        if self.server.fate not in _ENDING and self.rng.random() < 0.5:
            self.change_fate(self.rng.choice(ACCOUNT))
            self._later(2.0 + self._some_seconds(), self._relieve)
        else:
            self.change_fate(Fate.WELCOME)

    def change_fate(self, fate: Fate) -> None:
        """Change what becomes of new clients."""
        before = self.server.fate
        if fate is not before:
            self.world.tell(f"from now on a new client {fate.value}")
            self.server.change_fate(fate)
            self.promises.fate_changed(before)

    def hang(self) -> None:
        """Stop the server, or hold the statements while new clients get in."""
        self.server.stopped = self.rng.random() < 0.5
        self.server.holds_statements = not self.server.stopped
        self.world.tell(
            f"the server hangs; it takes logins: {self.server.holds_statements}"
        )
        self._later(self._some_seconds(), self.release)

    def release(self) -> None:
        """Let the server go on."""
        if self.server.hangs:
            self.server.go_on()
            self.promises.settle()

    def kill(self) -> None:
        """End one session, as KILL does."""
        for session in self._one_of(self.server.logged_in):
            self.promises.lose_session()
            self.world.tell(f"session {session.number} is killed")
            session.end()

    def silence(self) -> None:
        """Lose what one session sends and is sent."""
        for session in self._one_of(self.server.held):
            self.promises.lose_session(silently=True)
            self.server.silence(session)

    def cut_answer(self) -> None:
        """Lose all after half an answer to one session."""
        for session in self._one_of(self.server.held):
            self.promises.lose_session(silently=True)
            self.world.tell(f"session {session.number} gets half an answer next")
            session.is_cut = True

    def have_accident(self) -> None:
        """Choose what becomes of the next new client alone."""
        self.server.next_fates.append(self.rng.choice(_ACCIDENTS))

    def wait_in_sync(self) -> None:
        """Let reads in sync end in another way for a time."""
        self.change_sync(self.rng.choice(list(Sync)))
        self._later(self._some_seconds(), lambda: self.change_sync(Sync.ANSWERED))

    def change_sync(self, sync: Sync) -> None:
        """Change what becomes of reads in sync."""
        if sync is not self.server.sync:
            self.world.tell(f"from now on reads in sync are {sync.name}")
            self.server.sync = sync
            self.promises.sync_changed()

    def pause(self) -> None:
        """Pause our process now, or some turns of the loop after the end of a poll."""
        seconds = self._about([0.1, 1.0, 3.0, 9.0, 40.0])
        self.promises.pause(seconds)
        if self.rng.random() < 0.3:
            self.world.pause(seconds)
        else:
            self.pauses_after_poll.append(seconds)

    def pause_all(self) -> None:
        """Pause the server and our process together, as in a machine that stands still."""
        self.stop_all(self._about([1.0, 3.0, 9.0]))

    def stop_all(self, seconds: float) -> None:
        """Stop the server, and our process for nearly as long."""
        self.promises.pause(seconds)
        hung = self.server.hangs
        self.server.stopped = True
        self.world.tell("the server stops with our process")
        self.world.pause(seconds)

        def go_on() -> None:
            if self.server.stopped:
                self.server.go_on()
                # Nobody but the clock notices, but of a hang from before.
                if hung:
                    self.promises.settle()

        self.world.after(seconds - 0.01, go_on)

    def poll_ended(self) -> None:
        """Pause, if it is time."""
        for seconds in self.pauses_after_poll:
            self.world.pause(seconds, self.rng.randint(0, 2))
        self.pauses_after_poll.clear()

    def sleep(self) -> None:
        """Suspend the machine, but not again before a poll has ended."""
        if self.world.now > self._slept_at + 2.0:
            self._slept_at = self.world.now
            self.promises.pause(math.inf)
            self.world.sleep(self.rng.uniform(10.0, 5000.0))

    def work(self) -> None:
        """Let our process work in each turn of the loop, perhaps while the server hangs."""
        if not self.world.turn_seconds:
            self._work_for(self.rng.choice([0.02, 0.15, 0.3]))
        self._later(self.rng.uniform(2.0, 20.0), lambda: self._work_for(0.0))
        if self.rng.random() < 0.5:
            self._later(1.5, self.hang)

    def _work_for(self, turn_seconds: float) -> None:
        if turn_seconds != self.world.turn_seconds:
            self.world.work(turn_seconds)
            self.promises.settle()

    def _go_on(self) -> None:
        self.rng.choice(self._kinds)()
        self._later(self.rng.uniform(0.2, 4.0), self._go_on)

    def _later(self, seconds: float, action: Action) -> None:
        """Do something after so many seconds, unless all is well by then."""
        self.world.after(seconds, lambda: self.world.now < self.ends_at and action())

    def _some_seconds(self) -> float:
        return self._about([0.2, 0.7, 2.0, 4.0, 6.0, 12.0])

    def _about(self, seconds: list[float]) -> float:
        """Choose one of these times, and be inexact."""
        return self.rng.choice(seconds) * self.rng.uniform(0.7, 1.3)

    def _one_of(self, sessions: list[Session]) -> list[Session]:
        return self.rng.sample(sessions, min(1, len(sessions)))
