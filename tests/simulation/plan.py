"""What happens in a world, from its seed: when the server changes, which sessions suffer, when our
process pauses.
"""

import random

from tests.simulation.promises import ACCOUNT, LOGIN_INTERVAL_SECONDS, Promises
from tests.simulation.server import Fate, Server, Session, Sync
from tests.simulation.world import World

_KINDS = 5
"""So many kinds of events happen in one world: with few, more of the worlds are extreme."""

_FATES = [*Fate, *[Fate.NO_THREAD] * 3, Fate.CUT, Fate.SLOW, Fate.DIES]


class Plan:
    """Lets things happen in a world until `ends_at`; then all is well."""

    def __init__(
        self, world: World, server: Server, promises: Promises, rng: random.Random
    ) -> None:
        self.world = world
        self.server = server
        self.promises = promises
        self.rng = rng
        self.ends_at = rng.uniform(6.0, 22.0)
        self.pauses_after_poll: list[float] = []
        kinds = [
            *(
                self.befall,
                self.befall,
                self.befall,
                self.befall,
                self.hang,
                self.kill,
                self.kill,
                self.silence,
            ),
            *(self.meet_next, self.strand, self.answer_slowly, self.wait_in_sync),
            *(self.pause, self.pause, self.pause, self.sleep, self.work),
        ]
        self._slept_at = 0.0
        self._kinds = rng.sample(kinds, _KINDS)
        world.after(rng.uniform(0.5, 4.0), self._go_on)
        world.at(self.ends_at, self.end)

    def end(self) -> None:
        """Make all well."""
        self.world.tell("all is well from now on")
        self.server.next_fates.clear()
        self.rest()
        self.release()
        self.change_answers(0.0)
        self.change_sync(Sync.ANSWERED)
        self.change_fate(Fate.WELCOME)

    def befall(self) -> None:
        """Let all new clients meet with one fate for a time."""
        if self.server.fate is Fate.WELCOME:
            fate = self.rng.choice(_FATES)
            self.change_fate(fate)
            if fate is Fate.SLOW:
                self.meet_next(Fate.CUT)
            self.world.after(self._some_seconds(), self._relieve)

    def _relieve(self) -> None:
        worse = self.server.fate not in (Fate.WELCOME, *ACCOUNT) and self.rng.random() < 0.5
        self.change_fate(self.rng.choice(ACCOUNT) if worse else Fate.WELCOME)
        if worse:
            self.world.after(2.0 + self._some_seconds(), self._relieve)

    def change_fate(self, fate: Fate) -> None:
        """Change what becomes of new clients."""
        if fate is not self.server.fate:
            self.world.tell(f"from now on a new client {fate.value}")
            self.server.login_seconds = self.rng.uniform(0.3, 3.5) if fate is Fate.SLOW else 0.0
            self.promises.change_fate(fate)
            self.server.fate = fate

    def hang(self) -> None:
        """Stop the server, or hold the statements while new clients get in."""
        if self.world.now > self.ends_at:
            return
        self.server.stopped = self.rng.random() < 0.5
        self.server.holds_statements = not self.server.stopped
        self.world.tell(
            "the server stops" if self.server.stopped else "the server answers no statement"
        )
        self.world.after(self._some_seconds(), self.release)

    def release(self) -> None:
        """Let the server go on."""
        if self.server.hangs:
            self.world.tell("the server goes on")
            self.server.go_on()
            self.promises.settle()

    def kill(self, *, every: bool = False) -> None:
        """End one session or all, as KILL does."""
        sessions = [
            session for session in self.server.sessions if session.logged_in and not session.ended
        ]
        for session in sessions if every else self._one_of(sessions):
            self.promises.lose_session()
            self.world.tell(f"session {session.number} is killed")
            session.end()

    def silence(self) -> None:
        """Lose what one session sends and is sent."""
        for session in self._one_of([session for session in self.server.sessions if session.held]):
            self.promises.lose_session(silently=True)
            self.server.silence(session)
            session.cut_off = True

    def meet_next(self, fate: Fate | None = None) -> None:
        """Choose what becomes of the next new client alone."""
        self.server.next_fates.append(
            fate or self.rng.choice([Fate.CUT, Fate.DIES, Fate.SILENT, Fate.SILENT])
        )

    def strand(self) -> None:
        """Leave the next client without an answer, and then kill the others, so that only new
        logins work.
        """
        self.meet_next(self.rng.choice([Fate.NO_GREETING, Fate.SILENT]))
        self.world.after(
            LOGIN_INTERVAL_SECONDS + self.rng.uniform(0.3, 2.0), lambda: self.kill(every=True)
        )

    def answer_slowly(self) -> None:
        """Let each answer take a while."""
        self.change_answers(self.rng.choice([0.0, 0.02, 0.2]))

    def change_answers(self, seconds: float) -> None:
        """Change how long each answer takes."""
        if seconds != self.server.answer_seconds:
            self.world.tell(f"an answer takes {seconds:g} s")
            self.server.answer_seconds = seconds
            self.promises.settle(hung=False)

    def wait_in_sync(self) -> None:
        """Let reads in sync wait for a time."""
        self.change_sync(self.rng.choice(list(Sync)))
        self.world.after(self._some_seconds(), lambda: self.change_sync(Sync.ANSWERED))

    def change_sync(self, sync: Sync) -> None:
        """Change what becomes of reads in sync."""
        if sync is not self.server.sync:
            self.world.tell(f"from now on a read in sync {sync.value}")
            self.server.sync_seconds = self.rng.choice([0.5, 3.0, 12.0, 60.0])
            self.server.sync = sync
            self.promises.settle(hung=False)

    def pause(self) -> None:
        """Pause our process now, or some turns of the loop after the end of a poll."""
        seconds = self.rng.choice([0.1, 1.0, 3.0, 9.0, 40.0]) * self.rng.uniform(0.7, 1.3)
        if self.rng.random() < 0.3:
            self.world.pause(seconds)
        else:
            self.pauses_after_poll.append(seconds)

    def poll_ended(self) -> None:
        """Pause, if it is time."""
        for seconds in self.pauses_after_poll:
            self.world.pause(seconds, self.rng.randint(0, 2))
        self.pauses_after_poll.clear()

    def sleep(self) -> None:
        """Suspend the machine, but not again before a poll has ended."""
        if self.world.now > self._slept_at + 2.0:
            self._slept_at = self.world.now
            self.world.sleep(self.rng.uniform(10.0, 5000.0))

    def work(self) -> None:
        """Let our process work for a while in each turn of the loop, perhaps while the server
        hangs.
        """
        if not self.world.turn_seconds:
            self._change_work(self.rng.choice([0.02, 0.15, 0.3]))
        self.world.after(self.rng.uniform(2.0, 20.0), self.rest)
        if self.rng.random() < 0.5:
            self.world.after(1.5, self.hang)

    def rest(self) -> None:
        """Let our process be as fast as ever."""
        self._change_work(0.0)

    def _change_work(self, turn_seconds: float) -> None:
        if turn_seconds != self.world.turn_seconds:
            self.world.tell(f"our process works for {turn_seconds:g} s in each turn")
            self.world.work(turn_seconds)
            self.promises.settle()

    def _go_on(self) -> None:
        if self.world.now < self.ends_at:
            self.rng.choice(self._kinds)()
            self.world.after(self.rng.uniform(0.2, 4.0), self._go_on)

    def _some_seconds(self) -> float:
        return self.rng.choice([0.2, 0.7, 2.0, 4.0, 6.0, 12.0]) * self.rng.uniform(0.7, 1.3)

    def _one_of(self, sessions: list[Session]) -> list[Session]:
        return [self.rng.choice(sessions)] if sessions else []
