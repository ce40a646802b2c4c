"""A simulated MySQL server. What becomes of a client, and of a statement, is for others to say."""

import asyncio
import contextlib
import enum
import errno
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from async_solipsism.socket import Queue, Socket

from tests import fake_mysql as fake
from tests.simulation.world import Action, World


class Fate(enum.Enum):
    """What becomes of a new client."""

    WELCOME = "is welcome"
    SLOW = "gets in slowly"
    REFUSED = "is refused a connection"
    UNANSWERED = "gets no connection"
    NO_GREETING = "gets no greeting"
    CUT = "is cut off in the handshake"
    NO_THREAD = "gets error 1135"
    FULL = "gets error 1040"
    DENIED = "gets error 1045"
    DIES = "gets in and is cut off at its first statement"
    SILENT = "gets in and then no answer"


SLOW_SECONDS = 2.5
FREE_REFUSALS = 3
"""From this refusal in a row on, a server with MySQL's connection_control delays each login by a
second or more, the first right one too."""

_GREETING_ERRORS = {Fate.NO_THREAD: 1135, Fate.FULL: 1040}
_FIRST_STATEMENTS = 3
"""One prepares the session. Then a visit reads in sync, and any other session polls."""

_GREETING = fake.packet(0, fake.greeting())
_WELL = {
    "wsrep_local_state": "4",
    "wsrep_cluster_status": "Primary",
    "wsrep_connected": "ON",
    "wsrep_ready": "ON",
}
_VARIABLES = {"wsrep_provider": "galera.so"}
_IN_SYNC = fake.table(["1"], [["1"]])
_LOCK_WAIT_TIMEOUT = fake.packet(1, fake.error(1205))
_QUIT = b"\x01"
_HEADER_BYTES = 4
_CONNECT_TIMEOUT_SECONDS, _WAIT_TIMEOUT_SECONDS = 10.0, 28800.0
_WAIT_TIMEOUT = re.compile(r"wait_timeout=(\d+)")
_KEEPALIVE_SECONDS = 25
_NAMES = (("::1", 1), ("::1", 3306))


class Sync(enum.Enum):
    """After how many seconds a read in sync gets which answer: Galera refuses it after 30 s."""

    ANSWERED = 0.0, _IN_SYNC
    SLOW = 0.5, _IN_SYNC
    LATE = 3.0, _IN_SYNC
    TOO_LATE = 12.0, _IN_SYNC
    GIVEN_UP = 30.0, _LOCK_WAIT_TIMEOUT
    REFUSED = 0.001, _LOCK_WAIT_TIMEOUT
    LOST = 3600.0, b""


class _Shown(NamedTuple):
    """What a node shows: its queue, the pauses sent and received, and whether it applies."""

    queue: int
    sent: int
    received: int
    applies: bool


class Stand(_Shown, enum.Enum):
    """Who stands still, and what the node then shows."""

    NOBODY = 0, 0, 0, True
    IT = 29, 1, 1, False
    OTHERS = 0, 0, 1, False
    ALL = 29, 1, 2, False


def milliseconds(seconds: float) -> str:
    """Return the time as it stands in an answer, in place of a number of the component."""
    return str(int(seconds * 1000))


class _Descriptor(Socket):  # type: ignore[misc]
    """A client's end of a connection, which closes with the last of its duplicates."""

    def __init__(self, incoming: Queue, outgoing: Queue) -> None:
        super().__init__(incoming, outgoing, *_NAMES)
        self._duplicates = [self]

    def dup(self) -> "_Descriptor":
        """Return another descriptor of the same connection."""
        other = _Descriptor(self._read_queue, self._write_queue)
        other._duplicates = self._duplicates
        self._duplicates.append(other)
        return other

    def close(self) -> None:
        """Close this descriptor."""
        self._duplicates.remove(self)
        if self._duplicates:
            self._read_queue = self._write_queue = None
        else:
            super().close()


class Session:
    """One client, as the server sees it."""

    transport: asyncio.Transport | None = None
    given_up = False
    logged_in = False
    silent = False
    ended = False
    busy = False
    sync = False
    is_cut = False  # whether the next answer is but half of one
    statements = 0  # since it has logged in
    heard_at = 0.0
    idle_seconds = _CONNECT_TIMEOUT_SECONDS  # how long the server waits for it
    _received = b""
    _gone = False

    def __init__(self, number: int, address: str, fate: Fate, silent_at: int) -> None:
        self.number = number
        self.address = address
        self.fate = fate
        self.silent_at = silent_at
        sent, received = Queue(), Queue()
        self.ours = _Descriptor(received, sent)
        self.theirs = Socket(sent, received, *reversed(_NAMES))

    @property
    def held(self) -> bool:
        """Whether the client has the connection open."""
        return not self.given_up and not (
            self.transport and self.transport.is_closing()
        )

    def next_packet(self) -> bytes | None:
        """Take the next packet that has arrived: b"" if there is none yet, None after the last."""
        with contextlib.suppress(BlockingIOError):
            while data := self.theirs.recv(65536):
                self._received += data
            self._gone = True
        end = _HEADER_BYTES + int.from_bytes(self._received[:3], "little")
        if len(self._received) < end:
            return None if self._gone else b""
        packet = self._received[_HEADER_BYTES:end]
        self._received = self._received[end:]
        return packet

    def obey(self, statement: str) -> None:
        """Keep what a statement sets."""
        if told := _WAIT_TIMEOUT.search(statement):
            self.idle_seconds = float(told[1])
        if "wsrep_sync_wait" in statement:
            self.sync = "wsrep_sync_wait=0" not in statement

    def send(self, data: bytes) -> None:
        """Send, if the client is still there."""
        with contextlib.suppress(OSError):
            self.theirs.send(data)

    def end(self) -> None:
        """Close the connection."""
        if not self.ended:
            self.ended = True
            self.theirs.close()


class Server:
    """Serves its clients as its attributes say."""

    on_client: Callable[[Fate], object]
    on_session: Action
    fate = Fate.WELCOME
    sync = Sync.ANSWERED
    stand = Stand.NOBODY
    _applied_until = 0.0
    stopped = False
    holds_statements = False
    _count = 0
    _refusals = 0

    def __init__(self, world: World, rng: random.Random) -> None:
        self._ungreeted: list[Session] = []
        self.next_fates: list[Fate] = []
        # Not where the server alone hangs, or a proxy.
        self.has_keepalive = rng.random() < 0.7
        self.answer_seconds = rng.choice([0.0, 0.0, 0.02])
        self.refusal_seconds = rng.choice([0.0, 1.0, 4.0])
        self.sessions: list[Session] = []
        self.next_client = asyncio.Event()
        self._world = world
        self._rng = rng
        self._held: list[Action] = []
        world.loop.connect = self.connect
        world.each_turn = self._listen

    @property
    def held(self) -> list[Session]:
        """The sessions that the client has open."""
        return [session for session in self.sessions if session.held]

    @property
    def has(self) -> Counter[str]:
        """How many sessions it has at each address, with those that the client has given up."""
        return Counter(one.address for one in self.sessions if not one.ended)

    @property
    def logged_in(self) -> list[Session]:
        """The sessions that have logged in and have not ended."""
        return [
            session
            for session in self.sessions
            if session.logged_in and not session.ended
        ]

    @property
    def hangs(self) -> bool:
        """Whether statements get no answer."""
        return self.stopped or self.holds_statements

    @property
    def waits_in_sync(self) -> bool:
        """Whether a read in sync is under way."""
        return any(session.sync and session.busy for session in self.held)

    def change_stand(self, stand: Stand) -> None:
        """Let somebody stand still, or let all go on."""
        self._world.tell(f"from now on {stand.name} stands still")
        self._applied_until, self.stand = self._world.now, stand

    def _status(self) -> dict[str, str]:
        return {
            **_WELL,
            "Uptime": milliseconds(self._world.now),
            "wsrep_last_committed": milliseconds(self._applied_at),
            "wsrep_local_recv_queue": str(self.stand.queue),
            "wsrep_flow_control_sent": str(self.stand.sent),
            "wsrep_flow_control_recv": str(self.stand.received),
        }

    def _counters(self) -> dict[str, str]:
        return {
            "Handler_write": milliseconds(self._applied_at),
            "Innodb_data_pending_reads": "0",
        }

    @property
    def _applied_at(self) -> float:
        return self._world.now if self.stand.applies else self._applied_until

    async def connect(self, address: str) -> Session:
        """Connect a new client to one of the server's addresses."""
        fate = self.next_fates.pop(0) if self.next_fates else self.fate
        self._count += 1
        self.next_client.set()
        self.next_client.clear()
        if fate is not Fate.WELCOME:
            self._world.tell(f"client {self._count} {fate.value}")
        self.on_client(fate)
        if fate is Fate.REFUSED:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
        if fate is Fate.UNANSWERED:
            await asyncio.Event().wait()
        is_accident = fate is not self.fate
        silent_at = self._rng.randint(1, _FIRST_STATEMENTS) if is_accident else 1
        session = Session(self._count, address, fate, silent_at)
        session.heard_at = self._world.now
        # Each turn of the loop looks at all of them.
        left = [one for one in self.sessions if one.held or not one.ended]
        self.sessions = [*left, session]
        self.on_session()
        self._meet(session)
        return session

    def change_fate(self, fate: Fate) -> None:
        """Let new clients meet with another fate, and those that still wait for a greeting."""
        self.fate = fate
        waiting, self._ungreeted = self._ungreeted, []
        for session in waiting:
            session.fate, session.busy = fate, False
            self._meet(session)

    def _meet(self, session: Session) -> None:
        fate = session.fate
        if fate in (Fate.CUT, Fate.REFUSED):
            self._soon(session.end)
        elif fate in _GREETING_ERRORS:
            self._soon(lambda: self._turn_away(session, 0, _GREETING_ERRORS[fate]))
        elif fate in (Fate.NO_GREETING, Fate.UNANSWERED):
            # The server does not notice either that the client leaves.
            session.busy = True
            self._ungreeted.append(session)
        else:
            self._soon(
                lambda: session.send(_GREETING),
                SLOW_SECONDS if fate is Fate.SLOW else 0.0,
            )

    def silence(self, session: Session) -> None:
        """Lose whatever either side sends from now on, perhaps until the kernel notices."""
        self._world.tell(f"session {session.number} falls silent")
        session.silent = True
        if self.has_keepalive:
            self._world.after(_KEEPALIVE_SECONDS, session.end)

    def go_on(self) -> None:
        """Do what was held back."""
        self._world.tell("the server goes on")
        self.stopped = self.holds_statements = False
        held, self._held = self._held, []
        for action in held:
            self._soon(action)

    def _soon(self, action: Action, seconds: float = 0.0) -> None:
        self._world.after(
            seconds + self._rng.uniform(0.0001, 0.001), lambda: self._act(action)
        )

    def _act(self, action: Action) -> None:
        if self.stopped:
            self._held.append(action)
        else:
            action()

    def _listen(self) -> None:
        if not self.stopped:
            for session in self.sessions:
                self._serve(session)
                self._end_if_left(session)

    def _end_if_left(self, session: Session) -> None:
        """End a session that the client has given up, as soon as the server can notice that."""
        if session.held or self.holds_statements:
            return
        if session.busy:
            # Once reads in sync are answered, those that have waited are, too.
            ends = session.sync and self.sync is not Sync.LOST
        else:
            ends = self._world.now - session.heard_at >= session.idle_seconds
        if ends and session.silent:
            # The client does not learn of it.
            session.ended = True
        elif ends:
            session.end()

    def _serve(self, session: Session) -> None:
        """Begin with the next packet."""
        waits = self.holds_statements and session.logged_in
        if waits or session.busy or session.silent or session.ended:
            return
        packet = session.next_packet()
        if packet is None or packet == _QUIT:
            session.end()
        elif packet:
            session.busy = True
            session.heard_at = self._world.now
            if session.logged_in:
                self._execute(session, packet[1:].decode())
            else:
                delays = self.refusal_seconds * (self._refusals - FREE_REFUSALS + 1)
                self._soon(lambda: self._log_in(session), max(0.0, delays))

    def _log_in(self, session: Session) -> None:
        if session.fate is Fate.DENIED:
            self._refusals += 1
            self._turn_away(session, 2, 1045)
        else:
            self._refusals = 0
            session.logged_in = True
            session.idle_seconds = _WAIT_TIMEOUT_SECONDS
            self._finish(session, fake.packet(2, fake.OK))

    def _turn_away(self, session: Session, number: int, error: int) -> None:
        session.send(fake.packet(number, fake.error(error)))
        session.end()

    def _execute(self, session: Session, statement: str) -> None:
        session.statements += 1
        if session.fate is Fate.SILENT and session.statements == session.silent_at:
            self.silence(session)
        if session.fate is Fate.DIES:
            session.end()
        session.obey(statement)
        seconds = self.answer_seconds
        if statement == "SELECT 1" and session.sync:
            seconds, answer = self.sync.value
        elif statement.startswith("SHOW GLOBAL STATUS"):
            answer = fake.shown(self._counters())
        else:
            answer = fake.answer_to(statement, self._status(), _VARIABLES)
        self._soon(lambda: self._finish(session, answer), seconds)

    def _finish(self, session: Session, answer: bytes) -> None:
        session.busy = False
        if session.silent or session.ended:
            return
        if session.is_cut:
            session.send(answer[: len(answer) // 2])
            self.silence(session)
            return
        session.send(answer)
        self._serve(session)
