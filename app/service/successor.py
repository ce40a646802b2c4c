"""A successor: the program as it lies on the disk, started again to take this process' place.

Both accept from one queue of connections, so that none is lost. Beside that socket they share a
channel, on which each message is one JSON value:

| who | tells    | when                     | what follows                        |
|-----|----------|--------------------------|-------------------------------------|
| old | `Known`  | at the start             | the new one tries its settings      |
| new | `Report` | it has tried them        | the old one kills it, or goes on    |
| old | `Known`  | it may take over         | the new one begins to accept        |
| new | `Report` | it accepts, or cannot    | the old one has systemd follow it   |
| old | `Known`  | it accepts no more       | it gives its last answers           |
| old | `Known`  | it has logged out        | it ends                             |

Each may be of another version: a field that is added needs a default. Until systemd follows it, the
new one may refuse, die, hang or be killed: nothing has changed. After that, it kills an old one
that does not go.
"""

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from app.http.reload_outcome import ReloadOutcome
from app.verdict.alone import Stand

_VARIABLE = "CLUSTERCHECKD_PREDECESSOR"
"""The descriptors that a successor inherits: the channel, the listening socket, and the old process
itself, see pidfd_open(2)."""

_MOST_BYTES = 1 << 16

_T = TypeVar("_T")


@dataclass
class Known:
    """What the old process knows.

    at: when the reload began. server: see `Database.server`. hangs: whether it gives no answer.
    asked: the clients of the last minute. sync_wait_seconds, stand: see the poller. sessions: how
    many the server may have of it. env_file: what it has read, if any.
    """

    at: datetime
    server: Sequence[object]
    hangs: bool
    asked: Sequence[str]
    sync_wait_seconds: float | None
    stand: Stand
    sessions: int
    env_file: str | None = None


@dataclass
class Report:
    """How far a successor has come.

    outcome: what speaks against it, if anything. sessions: how many the server may have of it.
    """

    pid: int
    outcome: ReloadOutcome
    sessions: int = 0


class _Channel:
    """One end of the socket between both. Raises EOFError once the other process has gone."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)  # noqa: FBT003
        self._end = end

    def tell(self, message: Known | Report) -> None:
        from pydantic_core import to_json  # noqa: PLC0415 (the first verdict waits for no import)

        try:
            self._end.send(to_json(message, inf_nan_mode="constants"))
        except OSError as fault:
            # It may have gone: then the next answer says so.
            if fault.errno == errno.EMSGSIZE:
                raise

    async def answer(self, kind: type[_T]) -> _T:
        from pydantic import TypeAdapter  # noqa: PLC0415 (as above)

        loop = asyncio.get_running_loop()
        try:
            received = await loop.sock_recv(self._end, _MOST_BYTES)
        except ConnectionResetError:
            # It has gone, and read not all. What it told before comes next.
            received = await loop.sock_recv(self._end, _MOST_BYTES)
        if not received:
            raise EOFError
        return TypeAdapter(kind).validate_json(received)

    def close(self) -> None:
        self._end.close()


class Successor(_Channel):
    """A successor, seen from the process that starts it. Raises OSError if it cannot start.

    follows: whether systemd follows it.
    """

    follows = False

    def __init__(self, listening: socket.socket) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(ours)
        ourselves = os.pidfd_open(os.getpid())
        inherited = theirs.fileno(), listening.fileno(), ourselves
        try:
            self._process = subprocess.Popen(  # noqa: S603 (as we were started ourselves)
                [sys.executable, *sys.orig_argv[1:]],
                env={**os.environ, _VARIABLE: ":".join(map(str, inherited))},
                pass_fds=inherited,
                # Its child stays in the group.
                process_group=0,
            )
        finally:
            theirs.close()
            os.close(ourselves)

    def close(self) -> None:
        """Let it go on alone if systemd follows it, or else kill it."""
        if not self.follows:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            super().close()
        self._process.wait()


class Predecessor(_Channel):
    """The old process, seen from its successor. listening: the socket of both."""

    def __init__(self, descriptors: str) -> None:
        channel, listening, self._process = map(int, descriptors.split(":"))
        super().__init__(socket.socket(fileno=channel))
        self.listening = socket.socket(fileno=listening)

    def limit(self, seconds: float) -> None:
        """Kill it if it does not end within so many seconds."""
        asyncio.get_running_loop().call_later(seconds, self._kill)

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, signal.SIGKILL)
        os.close(self._process)


def predecessor() -> Predecessor | None:
    """Return the old process, if this is a successor. Call it before any thread is started."""
    descriptors = os.environ.pop(_VARIABLE, None)
    if descriptors is None:
        return None
    # systemd sees the end of a process only if it is its child, as this one will be now.
    if os.fork():
        os._exit(0)
    return Predecessor(descriptors)
