"""The composition root of the service: what runs without a command."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import asdict, replace

import uvloop

from app import __version__
from app.database.poller import Poller
from app.http.api import create_application
from app.http.guard import ConnectionRegister
from app.http.health_checks import HealthChecks, no_health_checks
from app.http.metrics import ServiceMetrics
from app.http.server import Server, address_of, listening_socket
from app.monitor.monitor import IDLE_SECONDS, Monitor, oldest_usable_seconds
from app.service.log import Log, set_up_log
from app.service.systemd import Systemd, execute_again, kept_socket
from app.settings.error import SettingsError
from app.settings.settings import Settings
from app.settings.switches import ManualSwitches
from app.verdict.node_state import PollFailure

_log = logging.getLogger(__name__)

Load = Callable[[], tuple[Settings, list[str]]]


def serve(load: Load) -> int:
    """Run the service until a signal stops it, and return the exit status.

    load: reads the settings, and returns them with warnings to log. Raises `SettingsError` if a
    setting cannot be used.

    SIGHUP reads the settings again. If they can be used, the process executes itself, with its
    listening socket.
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
    # The interpreter drops its signal handlers as it exits. A second signal at that moment would
    # turn the exit status into a failure.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    return 0


async def _serve(settings: Settings, log: Log, load: Load) -> socket.socket | None:
    """Serve until a signal.

    After SIGHUP, return the socket for this program with other settings.
    """
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
        policy=replace(
            settings.policy(),
            max_age_seconds=oldest_usable_seconds(
                settings.clustercheck_poll_interval, settings.clustercheck_deadline
            ),
        ),
        switches=switches,
        on_verdict=lambda verdict: systemd.show(verdict, poller.login_failure),
    )
    register = ConnectionRegister(settings.clustercheck_allow_from)
    counts = no_health_checks(settings)
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
            "listen": address_of(listening),
            "poll_interval_seconds": settings.clustercheck_poll_interval,
            "login_interval_seconds": settings.clustercheck_login_interval,
            "deadline_seconds": settings.clustercheck_deadline,
            **asdict(monitor.policy),
        },
    )

    loop = asyncio.get_running_loop()
    stopping = False

    def give_up() -> None:
        switches.shutting_down = True
        polling.cancel()

    def stop(signal_name: str) -> None:
        """After the first signal, drain. After a second one, stop at once."""
        nonlocal stopping
        seconds = 0.0 if stopping else settings.clustercheck_drain_seconds
        stopping = True
        reloading.cancel()
        systemd.stopping(seconds)
        if seconds:
            _log.info("draining", extra={"signal": signal_name, "seconds": seconds})
            switches.shutting_down = True
            loop.call_later(seconds, server.ended.set)
        else:
            _log.info("stopping", extra={"signal": signal_name})
            server.ended.set()

    async def reload() -> socket.socket:
        await _usable_settings(settings, load, monitor)
        # A duplicate, because the server closes its own.
        successor = listening.dup()
        server.ended.set()
        return successor

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


async def _usable_settings(settings: Settings, load: Load, monitor: Monitor) -> None:
    """Wait until a SIGHUP finds settings that can be used instead of these.

    Log why others cannot.
    """
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    signal.signal(signal.SIGHUP, lambda _number, _frame: loop.call_soon_threadsafe(asked.set))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])
    try:
        while await asked.wait():
            asked.clear()
            try:
                await _try(load()[0], settings, monitor)
            except SettingsError as fault:
                for line in str(fault).splitlines():
                    _log.error("not reloaded", extra={"detail": line})
            else:
                _log.info("reloading", extra={"signal": "SIGHUP"})
                return
    finally:
        # Also for the program that this process is about to execute, until that can handle it.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


async def _try(coming: Settings, settings: Settings, monitor: Monitor) -> None:
    """Raise `SettingsError` if a reload cannot use the settings, or if they would take an available
    node out.
    """
    for name in ("clustercheck_host", "clustercheck_port"):
        if getattr(coming, name) != getattr(settings, name):
            raise SettingsError(
                f"{name.upper()}: a reload keeps the address; run: systemctl restart clustercheckd"
            )
    coming.require_login()
    async with aclosing(Poller(coming.database(), coming.clustercheck_deadline)) as trial:
        seen = await trial.poll()
    if isinstance(seen, PollFailure) and monitor.verdict().available:
        raise SettingsError(
            f"the node is available, and would not be: {seen.reason}: {seen.detail}"
        )
