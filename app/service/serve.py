"""What runs without a command."""

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime

import uvloop

import app.service.preload  # noqa: F401 (before anything can need it)
from app import __version__
from app.database.connection import prepare_for
from app.database.poller import Pace, Poller
from app.http.answers import Answers, Application
from app.http.connections import ConnectionRegister
from app.http.reload_outcome import ReloadOutcome
from app.http.server import Server
from app.http.sources import HealthCheckCounts, Sources
from app.monitor.monitor import IDLE_SECONDS, Monitor, Polling, oldest_usable_seconds
from app.service.giving_way import giving_way
from app.service.log import Log
from app.service.systemd import Systemd, kept_socket
from app.settings.disabled_file import switches_now
from app.settings.error import SettingsError
from app.settings.listening import listening_socket
from app.settings.settings import LISTENING, Settings
from app.settings.source import Source
from app.text import host_and_port
from app.verdict.node_state import PollFailure
from app.verdict.reason import Reason
from app.verdict.rules import Switches

_log = logging.getLogger(__name__)


def serve(source: Source) -> int:
    """Run the service until a signal stops it, and return the exit status.

    Raises `SettingsError` if the settings cannot be used.
    """
    # Until the server sets its own handlers, there is nothing to shut down, and a reload waits.
    signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    log = Log()
    settings, warnings = source.load()
    prepare_for(settings.target())
    log.format_as(settings.clustercheck_log_level, settings.clustercheck_log_format)
    _tell_ignored(warnings)
    service = _Service(settings, log, source)
    uvloop.run(service.run())
    # The interpreter would look for garbage as it exits, while health checks wait.
    gc.freeze()
    return 0


class _Service:
    """The parts of a running service. A reload replaces those that depend on settings."""

    def __init__(self, settings: Settings, log: Log, source: Source) -> None:
        self._log = log
        self._source = source
        self._stopping = self._draining = False
        self._systemd = Systemd(os.environ.get("NOTIFY_SOCKET"))
        poller = Poller(settings, _pace(settings))
        self._monitor = Monitor(
            _polling(settings, poller),
            switches=self._switches,
            on_verdict=self._systemd.show,
        )
        self._sources = Sources(
            settings,
            poller,
            self._monitor,
            ConnectionRegister(settings.clustercheck_allow_from),
            HealthCheckCounts(),
            ReloadOutcome(datetime.now(UTC)),
        )
        kept = kept_socket()
        self._listening = listening_socket(settings, kept)
        if self._listening is not kept:
            self._systemd.keep(self._listening)
        self._answers = Answers(self._sources)
        self._server = Server(
            self._listening, self._sources.connections, self._answers, self._stop
        )

    async def run(self) -> None:
        """Serve until a signal."""
        self._tell("started")
        polling = asyncio.create_task(self._monitor.run())
        feeding = asyncio.create_task(
            self._systemd.feed_watchdog(lambda: self._monitor.alive)
        )
        making = asyncio.to_thread(self._make_documents, asyncio.get_running_loop())
        documents = asyncio.create_task(making)
        self._answers.application = documents
        self._reloading = asyncio.create_task(self._reload_at_each_sighup())
        try:
            await self._server.serve([self._listening])
        finally:
            # The handlers end with the loop. A second signal would turn the exit status into a
            # failure.
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            tasks = (polling, feeding, self._reloading, documents)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self._sources.poller.aclose()

    def _make_documents(self, loop: asyncio.AbstractEventLoop) -> Application:
        """Import FastAPI, which takes long, at once: an upgrade may replace the files."""
        with giving_way(loop):
            from app.http.api import create_application  # noqa: PLC0415 (see above)

            return create_application(self._sources)

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
        # A reload that took over now would not know of the shutdown.
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
        """Reload, one at a time, whenever SIGHUP has arrived."""
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()
        signal.signal(
            signal.SIGHUP, lambda _number, _frame: loop.call_soon_threadsafe(asked.set)
        )
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])
        # A reload may import as well: see giving_way.
        await asyncio.wait([self._answers.application])
        while await asked.wait():
            asked.clear()
            await self._reload()

    async def _reload(self) -> None:
        """Take the settings as they are now, or say why not."""
        outcome = ReloadOutcome(datetime.now(UTC))
        try:
            settings, outcome.warnings = self._source.load(strict=True)
            _tell_ignored(outcome.warnings)
            if failure := await self._try(settings):
                outcome.failure = failure
                seen = f"{failure.reason}: {failure.detail}"
                outcome.complaints = [
                    f"the node can be read, and could not be with these settings: {seen}"
                ]
            else:
                await self._take(settings)
                allowed = settings.clustercheck_allow_from
                outcome.shut_out = self._sources.connections.allow(allowed)
        except SettingsError as fault:
            outcome.complaints = str(fault).splitlines()
        except Exception:  # noqa: BLE001 (no fault may end the reloading)
            _log.exception("not reloaded")
            outcome.failure = PollFailure(
                Reason.ERROR, "clustercheckd failed to reload: see its log"
            )
            outcome.complaints = [outcome.failure.detail]
        self._sources.last_reload = outcome
        for line in outcome.complaints:
            _log.error("not reloaded", extra={"detail": line})

    async def _try(self, settings: Settings) -> PollFailure | None:
        """Return why the node cannot be read with other settings.

        Raises `SettingsError` if a reload cannot use them.
        """
        current = self._sources.settings
        if any(getattr(settings, name) != getattr(current, name) for name in LISTENING):
            raise SettingsError(
                "CLUSTERCHECK_HOST and CLUSTERCHECK_PORT need: systemctl restart clustercheckd"
            )
        prepare_for(settings.target())
        poller, seconds = self._sources.poller, settings.clustercheck_deadline
        return await self._monitor.trial(lambda: poller.trial(settings, seconds))

    async def _take(self, settings: Settings) -> None:
        """Use other settings."""
        sources = self._sources
        sources.settings = settings
        is_another = sources.poller.take(settings, _pace(settings))
        polling = _polling(settings, sources.poller)
        self._monitor.take(polling, forget=is_another)
        self._log.format_as(
            settings.clustercheck_log_level, settings.clustercheck_log_format
        )
        self._tell("reloaded")
        # The outcome is shown with the verdict that it has led to.
        with suppress(TimeoutError):
            async with asyncio.timeout(polling.max_age_seconds):
                await self._monitor.next_verdict()


def _tell_ignored(warnings: Sequence[str]) -> None:
    for line in warnings:
        _log.warning("setting ignored", extra={"detail": line})


def _pace(settings: Settings) -> Pace:
    return Pace(
        settings.clustercheck_deadline,
        settings.clustercheck_login_interval,
        max(IDLE_SECONDS, settings.clustercheck_poll_interval),
    )


def _polling(settings: Settings, poller: Poller) -> Polling:
    pace = settings.clustercheck_poll_interval, settings.clustercheck_deadline
    return Polling(
        poller.poll,
        *pace,
        oldest_usable_seconds(*pace),
        settings.policy(),
    )
