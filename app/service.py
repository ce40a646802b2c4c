"""The composition root of the service: what runs without a command."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import asdict

import uvloop

from app import __version__
from app.database.poller import Poller
from app.http.api import create_application
from app.http.guard import ConnectionRegister
from app.http.health_checks import HealthChecks, no_health_checks
from app.http.metrics import ServiceMetrics
from app.http.server import Server, address_of, execute_again, inherited_socket, listening_socket
from app.log import Log, set_up_log
from app.monitor import IDLE_SECONDS, Monitor
from app.node_state import PollFailure
from app.settings import Settings
from app.settings_error import SettingsError
from app.switches import ManualSwitches
from app.systemd import Systemd

_log = logging.getLogger(__name__)


Load = Callable[[], tuple[Settings, list[str]]]


def serve(load: Load) -> int:
    """Run the service until a signal stops it, and return the exit status.

    load: reads the settings, and returns them with warnings to log. Raises `SettingsError` if a setting cannot be used.

    SIGHUP reads the settings again. If they can be used, the process executes itself, with its listening socket.
    """
    # Until the server sets its own handlers, there is nothing to shut down, and a reload waits.
    signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    settings, warnings = load()
    settings.require_login()
    log = set_up_log(settings.clustercheck_log_level, settings.clustercheck_log_format, os.environ)
    for line in warnings:
        _log.warning("setting ignored", extra={"detail": line})
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        successor = runner.run(_serve(settings, log, load))
    if successor is not None:
        log.flush()
        execute_again(successor)
    # The interpreter drops its signal handlers as it exits. A second signal at that moment would turn the exit
    # status into a failure.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    return 0


async def _serve(settings: Settings, log: Log, load: Load) -> socket.socket | None:
    """Serve until a signal. Return the socket of the next process if that is to go on."""
    poller = Poller(
        settings.database(),
        settings.clustercheck_deadline,
        login_interval_seconds=settings.clustercheck_login_interval,
        poll_interval_seconds=max(IDLE_SECONDS, settings.clustercheck_poll_interval),
    )
    switches = ManualSwitches(settings.clustercheck_disabled_file)
    systemd = Systemd(os.environ)
    monitor = Monitor(
        poller.poll,
        interval_seconds=settings.clustercheck_poll_interval,
        deadline_seconds=settings.clustercheck_deadline,
        policy=settings.policy(),
        switches=switches,
        on_verdict=lambda verdict: systemd.show(verdict, poller.login_failure),
    )
    register = ConnectionRegister(settings.clustercheck_allow_from)
    counts = no_health_checks(settings)
    metrics = ServiceMetrics(settings, monitor, poller, register, counts, lambda: log.dropped)
    health_checks = HealthChecks(settings, monitor, create_application(metrics), counts)
    listening = listening_socket(settings, inherited_socket(), systemd.keep)
    successor: socket.socket | None = None
    _say_what_is_watched(settings, address_of(listening))
    polling = asyncio.create_task(monitor.run())
    feeding = asyncio.create_task(systemd.feed_watchdog(lambda: monitor.alive))

    def give_up() -> None:
        switches.shutting_down = True
        polling.cancel()

    async def try_to_poll(coming: Settings) -> None:
        async with aclosing(Poller(coming.database(), coming.clustercheck_deadline)) as trial:
            seen = await trial.poll()
        if isinstance(seen, PollFailure) and monitor.verdict().available:
            raise SettingsError(f"the node is available, and would not be: {seen.reason}: {seen.detail}")

    async def prepare_reload() -> bool:
        nonlocal successor
        try:
            coming, _ = load()
            coming.require_login()
            await try_to_poll(coming)
            # A duplicate, because the server closes its own.
            successor = listening_socket(coming, listening, systemd.keep).dup()
        except SettingsError as fault:
            for line in str(fault).splitlines():
                _log.error("not reloaded", extra={"detail": line})
            return False
        return True

    server = Server(
        settings,
        health_checks,
        register,
        switches,
        give_up=give_up,
        on_stop=systemd.stopping,
        on_reload=prepare_reload,
    )
    try:
        await server.serve([listening])
    finally:
        feeding.cancel()
        polling.cancel()
        await asyncio.wait([polling, feeding])
        await poller.aclose()
    return successor if server.reloading else None


def _say_what_is_watched(settings: Settings, address: str) -> None:
    _log.info(
        "started",
        extra={
            "version": __version__,
            "database": str(settings.database()),
            "listen": address,
            "poll_interval_seconds": settings.clustercheck_poll_interval,
            "login_interval_seconds": settings.clustercheck_login_interval,
            "deadline_seconds": settings.clustercheck_deadline,
            **asdict(settings.policy()),
        },
    )
