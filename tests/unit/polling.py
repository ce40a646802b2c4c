"""A poller in a test, one poll at a time."""

import asyncio
import contextlib
import gc
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvloop

from app.database.poller import Pace, Poller
from app.deadline import boot_seconds
from app.settings.database import Database
from app.verdict.node_state import NodeState, PollFailure
from app.verdict.reason import Reason
from tests.fake_mysql import Behaviour, FakeMySQL, fake_mysql
from tests.measured import DisturbedError

DEADLINE_SECONDS = 0.3
Loop = Callable[[], asyncio.AbstractEventLoop]
LOOPS = pytest.mark.parametrize(
    "new_loop",
    [asyncio.new_event_loop, uvloop.new_event_loop],
    ids=["asyncio", "uvloop"],
)


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock is the sum of a test's jumps: a busy machine adds nothing."""

    ahead_seconds = 0.0

    def time(self) -> float:
        return self.ahead_seconds


class Polls:
    """A poller whose event loop runs only while one of these methods does."""

    def __init__(self, runner: asyncio.Runner, database: Database, pace: Pace) -> None:
        self.ahead_seconds = 0.0  # of the real clock
        self.poller = Poller(database, pace, clock=self._now)
        self._runner = runner

    def _now(self) -> float:
        return boot_seconds() + self.ahead_seconds

    def poll(self) -> NodeState | PollFailure:
        """Poll once."""
        return self._runner.run(self.poller.poll())

    def state(self) -> NodeState:
        """Poll once, which succeeds."""
        result = self.poll()
        if isinstance(result, PollFailure) and result.reason is Reason.TIMEOUT:
            # The deadline is one that a busy machine may miss.
            raise DisturbedError(result)
        assert isinstance(result, NodeState), result
        return result

    def failure(self) -> PollFailure:
        """Poll once, which fails."""
        result = self.poll()
        assert isinstance(result, PollFailure), result
        return result

    def poll_until(self, condition: Callable[[NodeState], object]) -> None:
        """Poll, successfully, until a state fulfils a condition."""
        began = time.monotonic()
        while not condition(self.state()):
            assert time.monotonic() - began < 20
            self.wait(0.01)

    def wait(self, seconds: float) -> None:
        """Let what the poller does beside the polls go on."""
        self._runner.run(asyncio.sleep(seconds))

    def check_closed(self, server: FakeMySQL, seconds: float = 10) -> None:
        """Check that the poller soon has no connection to a server, which closes none."""
        began = time.monotonic()
        while _connections_to(server.port):
            gc.collect()
            assert time.monotonic() - began < seconds
            self.wait(0.01)


def _connections_to(port: int) -> int:
    """Count this process's descriptors of connections to a port, the client's end alone."""
    found = 0
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as duplicate:
                    found += duplicate.getpeername()[1:2] == (port,)
    return found


@contextmanager
def polls_of(
    database: Database,
    *,
    login_interval: float = 0,
    new_loop: Loop = uvloop.new_event_loop,
) -> Iterator[Polls]:
    """Run a poller, and close it in the end."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        pace = Pace(DEADLINE_SECONDS, login_interval)
        polls = Polls(runner, database, pace)
        try:
            yield polls
        finally:
            runner.run(polls.poller.aclose())


@contextmanager
def polling(
    behaviour: Behaviour,
    **options: Any,  # noqa: ANN401 (those of polls_of)
) -> Iterator[tuple[Polls, FakeMySQL]]:
    """Run a poller and its server."""
    with (
        fake_mysql(behaviour) as server,
        polls_of(database_of(server), **options) as polls,
    ):
        yield polls, server


def database_of(server: FakeMySQL) -> Database:
    """Return the settings that lead to a server."""
    return Database(
        mysql_host=str(server.server_address[0]),
        mysql_port=server.port,
        mysql_username="someone",
        mysql_password="geheim",
    )
