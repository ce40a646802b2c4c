"""What runs without a command."""

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import Awaitable
from contextlib import nullcontext, suppress
from dataclasses import asdict
from datetime import UTC, datetime

# A host name is looked up, also one with letters beyond ASCII. An upgrade may have replaced the
# files of a process that goes on: what it imports then would be of another version, or missing.
from encodings import idna, punycode  # noqa: F401
from typing import Any

import uvloop

from app import __version__
from app.commands.exit_status import DONE, MISUSED
from app.database.connection import prepare_for
from app.database.poller import Pace, Poller
from app.http.answers import Answers, Application
from app.http.connections import DEADLINE_SECONDS, ConnectionRegister
from app.http.reload_outcome import ReloadOutcome
from app.http.server import Server
from app.http.sources import HealthCheckCounts, Sources
from app.monitor.monitor import IDLE_SECONDS, Monitor, Polling, oldest_usable_seconds
from app.service.giving_way import giving_way
from app.service.log import Log
from app.service.reload import failed, follow, known_of, refuse, reload
from app.service.successor import (
    Known,
    Predecessor,
    Report,
    Successor,
    predecessor,
)
from app.service.systemd import Systemd, kept_socket
from app.settings.disabled_file import switches_now
from app.settings.error import SettingsError
from app.settings.listening import listening_socket
from app.settings.source import Loaded, Source
from app.text import host_and_port
from app.verdict.rules import Switches

_GO_SECONDS = 10.0
"""How long the old process may take to go, beside an answer that it still holds."""

_UNFED_SECONDS = 5.0
"""How long to wait until it accepts no more: meanwhile, nobody feeds systemd's watchdog."""

_NOBODY_FOLLOWS = "only systemd follows a new process: restart clustercheckd"

_NOT_YET = datetime.fromtimestamp(0, UTC)

_log = logging.getLogger(__name__)


def serve(source: Source) -> int:
    """Run the service until a signal stops it, and return the exit status.

    Raises `SettingsError` if the settings cannot be used.
    """
    # Until the server sets its own handlers, there is nothing to shut down, and a reload waits.
    signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    old = predecessor()
    log = Log()
    try:
        loaded = source.load()
        settings = loaded.settings
        prepare_for(settings.target())
        log.format_as(settings.clustercheck_log_level, settings.clustercheck_log_format)
        for line in loaded.warnings:
            _log.warning("setting ignored", extra={"detail": line})
        uvloop.run(_Service(loaded, old).run())
    except SettingsError as fault:
        if old is None:
            raise
        # The old process tells.
        refused = ReloadOutcome(datetime.now(UTC), str(fault).splitlines())
        old.tell(Report(os.getpid(), refused))
        return MISUSED
    # The interpreter would look for garbage as it exits, while health checks wait.
    gc.freeze()
    return DONE


class _Service:
    """The parts of a running service. old: the process whose place it takes."""

    _successor: Successor | None = None

    def __init__(self, loaded: Loaded, old: Predecessor | None) -> None:
        settings = loaded.settings
        self._old = old
        self._stopping = self._draining = False
        self._systemd = Systemd(os.environ.get("NOTIFY_SOCKET"), is_heard=old is None)
        self._outcome = ReloadOutcome(
            datetime.now(UTC), warnings=loaded.warnings, env_file=loaded.env_file
        )
        interval_seconds = settings.clustercheck_poll_interval
        deadline_seconds = settings.clustercheck_deadline
        poller = Poller(
            settings,
            Pace(
                deadline_seconds,
                settings.clustercheck_login_interval,
                max(IDLE_SECONDS, interval_seconds),
            ),
        )
        polling = Polling(
            poller.poll,
            interval_seconds,
            deadline_seconds,
            oldest_usable_seconds(interval_seconds, deadline_seconds),
            settings.policy(),
        )
        self._monitor = Monitor(
            polling,
            switches=self._switches,
            on_verdict=self._systemd.show,
        )
        self._sources = Sources(
            loaded,
            poller,
            self._monitor,
            ConnectionRegister(settings.clustercheck_allow_from),
            HealthCheckCounts(),
            # A successor shows its outcome once its predecessor accepts no more.
            self._outcome if old is None else ReloadOutcome(_NOT_YET),
        )
        self._answers = Answers(self._sources)
        if old is None:
            self._listen(kept_socket())

    async def run(self) -> None:
        """Serve until a signal, or until a successor does."""
        making = asyncio.to_thread(self._make_documents, asyncio.get_running_loop())
        documents = asyncio.create_task(making)
        self._answers.application = documents
        tasks: list[asyncio.Future[Any]] = [documents]
        try:
            if self._old:
                await documents
                await follow(self._old, self._sources, self._outcome)
                self._listen(self._old.listening)
            self._tell("reloaded" if self._old else "started")
            self._reloading = asyncio.create_task(self._reload_at_each_sighup())
            is_alive = self._systemd.feed_watchdog(lambda: self._monitor.alive)
            beside = self._reloading, is_alive, self._monitor.run()
            tasks += map(asyncio.ensure_future, beside)
            if self._old:
                # Of a drained node too: `otherwise` is what its reload is judged by.
                await self._monitor.next_verdict()
            await self._server.serve([self._listening])
        finally:
            # The handlers end with the loop. A second signal would turn the exit status into a
            # failure.
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            if self._successor:
                await asyncio.wait([self._reloading])
            else:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self._sources.poller.aclose()
            if self._successor:
                self._successor.tell(known_of(self._sources, _NOT_YET))

    def _make_documents(self, loop: asyncio.AbstractEventLoop) -> Application:
        """Import FastAPI, which takes longer than all the rest, beside the first polls."""
        # A successor answers nobody yet.
        with nullcontext() if self._old else giving_way(loop):
            from app.http.api import create_application  # noqa: PLC0415 (see above)

            return create_application(self._sources)

    def _listen(self, kept: socket.socket | None) -> None:
        """Make the server. Raises `SettingsError`."""
        self._listening = listening_socket(self._sources.settings, kept)
        self._is_new = self._listening is not kept
        self._server = Server(
            self._listening,
            self._sources.connections,
            self._answers,
            on_accepting=self._accepts,
            on_signal=self._stop,
        )

    def _accepts(self) -> None:
        if self._old:
            self._old.tell(Report(os.getpid(), self._outcome))

    def _switches(self) -> Switches:
        path = self._sources.settings.clustercheck_disabled_file
        return switches_now(path, shutting_down=self._draining)

    def _tell(self, event: str) -> None:
        settings = self._sources.settings
        _log.info(
            event,
            extra={
                "version": __version__,
                "database": settings.login_words,
                "listen": host_and_port(*self._listening.getsockname()[:2]),
                "max_age_seconds": self._monitor.polling.max_age_seconds,
                **asdict(self._monitor.polling.policy),
            },
        )

    def _stop(self, signal_name: str) -> None:
        """After the first signal, drain. After a second one, stop at once."""
        settings = self._sources.settings
        drain_seconds = 0.0 if self._stopping else settings.clustercheck_drain_seconds
        self._stopping = True
        # A successor that took over now would not know of the shutdown.
        self._reloading.cancel()
        if drain_seconds:
            self._draining = True
        self._systemd.stopping(drain_seconds + settings.clustercheck_deadline)
        event = "draining" if drain_seconds else "stopping"
        _log.info(
            event, extra={"signal": signal_name, "seconds": drain_seconds or None}
        )
        asyncio.get_running_loop().call_later(drain_seconds, self._server.stop)

    async def _reload_at_each_sighup(self) -> None:
        """Reload, one at a time, whenever SIGHUP has arrived, once this is the main process."""
        if self._old:
            await self._succeed(self._old)
        else:
            self._keep()
        self._asked = asyncio.Event()
        loop = asyncio.get_running_loop()
        signal.signal(
            signal.SIGHUP,
            lambda _number, _frame: loop.call_soon_threadsafe(self._asked.set),
        )
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])
        while await self._asked.wait():
            self._asked.clear()
            # Two threads that import may wait for each other: see giving_way.
            await asyncio.wait([self._answers.application])
            if not self._systemd.can_follow:
                refuse(self._sources, failed(_NOBODY_FOLLOWS))
            elif await reload(self._sources, self._listening, self._hand_over):
                return

    async def _succeed(self, old: Predecessor) -> None:
        """Wait until the old process accepts no more, and then until it has logged out."""
        old.limit(_GO_SECONDS + self._sources.settings.clustercheck_deadline)
        sessions = self._sources.poller.sessions
        closing = asyncio.create_task(old.answer(Known))
        await asyncio.wait([closing], timeout=_UNFED_SECONDS)
        self._systemd.is_heard = True
        self._keep()
        self._sources.last_reload = self._outcome
        with suppress(EOFError):
            await closing
            sessions.others = (await old.answer(Known)).sessions
        sessions.is_shared = False
        old.close()

    def _keep(self) -> None:
        """Have systemd keep a new socket. An old one that it keeps would take the connections."""
        if self._is_new:
            self._systemd.keep(self._listening)

    def _hand_over(self, successor: Successor, pid: int) -> Awaitable[object]:
        """Leave the place to a successor, which accepts; return what ends when this does not."""
        self._systemd.hand_over(pid)
        self._successor = successor

        def pass_on(*_of_the_signal: object) -> None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGHUP)

        def pass_on_if_asked() -> None:
            if self._asked.is_set():
                pass_on()

        signal.signal(signal.SIGHUP, pass_on)
        # After what a signal that has just arrived has called.
        asyncio.get_running_loop().call_soon(pass_on_if_asked)
        # As long as ever.
        self._server.stop(DEADLINE_SECONDS)
        return self._server.has_closed.wait()
