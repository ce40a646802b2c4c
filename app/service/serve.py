"""The composition root of the service: what runs without a command."""

import asyncio
import logging
import os
import signal
import socket
from dataclasses import asdict, replace

import uvloop

from app import __version__
from app.database.poller import Poller
from app.http.api import create_application
from app.http.guard import ConnectionRegister
from app.http.health_checks import HealthCheckCounts, HealthChecks
from app.http.metrics import ServiceMetrics
from app.http.server import Server, listening_socket
from app.monitor.monitor import IDLE_SECONDS, Monitor, oldest_usable_seconds
from app.service.log import Log, set_up_log
from app.service.reload import Load, usable_settings
from app.service.systemd import Systemd, execute_again, kept_socket
from app.settings.settings import Settings
from app.settings.switches import ManualSwitches
from app.text import host_and_port
from app.verdict.rules import Switches

_log = logging.getLogger(__name__)


def serve(load: Load) -> int:
    """Run the service until a signal stops it, and return the exit status.

    Raises `SettingsError` if the settings cannot be used.
    """
    # Until the server sets its own handlers, there is nothing to shut down, and a reload waits.
    signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
    settings, warnings = load()
    settings.require_login()
    log = set_up_log(settings.clustercheck_log_level, settings.clustercheck_log_format)
    for line in warnings:
        _log.warning("setting ignored", extra={"detail": line})
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        successor = runner.run(_serve(settings, log, load))
    if successor is not None:
        log.flush()
        execute_again(successor)
    # The interpreter drops its signal handlers as it exits. A second signal at that moment would
    # turn the exit status into a failure.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    return 0


async def _serve(settings: Settings, log: Log, load: Load) -> socket.socket | None:
    """Serve until a signal. After a reload, return the socket for the next program."""
    poller = Poller(
        settings.database(),
        settings.clustercheck_deadline,
        login_interval_seconds=settings.clustercheck_login_interval,
        poll_interval_seconds=max(IDLE_SECONDS, settings.clustercheck_poll_interval),
    )
    switches = ManualSwitches(settings.clustercheck_disabled_file)
    systemd = Systemd(os.environ.get("NOTIFY_SOCKET"))
    monitor = Monitor(
        poller.poll,
        interval_seconds=settings.clustercheck_poll_interval,
        deadline_seconds=settings.clustercheck_deadline,
        policy=replace(
            settings.policy(),
            max_age_seconds=oldest_usable_seconds(
                settings.clustercheck_poll_interval, settings.clustercheck_deadline
            ),
        ),
        switches=switches,
        on_verdict=systemd.show,
    )
    register = ConnectionRegister(settings.clustercheck_allow_from)
    counts = HealthCheckCounts()
    metrics = ServiceMetrics(settings, monitor, poller, register, counts, lambda: log.dropped)
    health_checks = HealthChecks(settings, monitor, create_application(metrics), counts)
    kept = kept_socket()
    listening = listening_socket(settings, kept)
    if listening is not kept:
        systemd.keep(listening)
    _log.info(
        "started",
        extra={
            "version": __version__,
            "database": str(settings.database()),
            "listen": host_and_port(*listening.getsockname()[:2]),
            **asdict(monitor.policy),
        },
    )

    loop = asyncio.get_running_loop()
    stopping = False

    def give_up() -> None:
        switches.without_file = Switches(shutting_down=True)
        polling.cancel()

    def stop(signal_name: str) -> None:
        """After the first signal, drain. After a second one, stop at once."""
        nonlocal stopping
        drain_seconds = 0.0 if stopping else settings.clustercheck_drain_seconds
        stopping = True
        reloading.cancel()
        if drain_seconds:
            switches.without_file = Switches(shutting_down=True)
        systemd.stopping(drain_seconds + settings.clustercheck_deadline)
        event = "draining" if drain_seconds else "stopping"
        _log.info(event, extra={"signal": signal_name, "seconds": drain_seconds or None})
        loop.call_later(drain_seconds, server.ended.set)

    async def reload() -> socket.socket:
        await usable_settings(load, settings, monitor)
        server.ended.set()
        # A duplicate, because the server closes its own.
        return listening.dup()

    server = Server(
        health_checks,
        register,
        settings.clustercheck_deadline,
        give_up=give_up,
        on_signal=stop,
    )
    polling = asyncio.create_task(monitor.run())
    feeding = asyncio.create_task(systemd.feed_watchdog(lambda: monitor.alive))
    reloading = asyncio.create_task(reload())
    try:
        await server.serve([listening])
    finally:
        feeding.cancel()
        polling.cancel()
        await asyncio.wait([polling, feeding])
        await poller.aclose()
    return None if stopping else await reloading
