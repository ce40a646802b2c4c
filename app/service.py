"""The composition root of the service: what runs without a command."""

import asyncio
import logging
import os
import signal
from collections.abc import Sequence

import uvloop

from app import __version__
from app.database.poller import Poller
from app.http.api import PATHS, create_application
from app.http.guard import ConnectionRegister
from app.http.health_checks import HealthChecks, no_health_checks
from app.http.metrics import ServiceMetrics
from app.http.server import Server, address_of, listening_socket
from app.log import Log, set_up_log
from app.monitor import IDLE_SECONDS, Monitor
from app.settings import Settings
from app.switches import ManualSwitches
from app.systemd import Systemd

_log = logging.getLogger(__name__)


def serve(settings: Settings, warnings: Sequence[str]) -> int:
    """Run the service until a signal stops it, and return the exit status.

    warnings: what to log about the settings. Raises `SettingsError` if a setting cannot be used.
    """
    settings.require_login()
    # Until the server sets its own handlers, there is nothing to shut down.
    signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    log = set_up_log(settings.clustercheck_log_level, settings.clustercheck_log_format, os.environ)
    for line in warnings:
        _log.warning("setting ignored", extra={"detail": line})
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(settings, log))
    # The interpreter drops its signal handlers as it exits. A second signal at that moment would turn the exit
    # status into a failure.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    return 0


async def _serve(settings: Settings, log: Log) -> None:
    deadline_seconds = settings.clustercheck_deadline
    poller = Poller(
        settings.database(),
        deadline_seconds,
        login_interval_seconds=settings.clustercheck_login_interval,
        poll_interval_seconds=max(IDLE_SECONDS, settings.clustercheck_poll_interval),
    )
    switches = ManualSwitches(settings.clustercheck_disabled_file)
    systemd = Systemd(os.environ)
    monitor = Monitor(
        poller.poll,
        interval_seconds=settings.clustercheck_poll_interval,
        deadline_seconds=deadline_seconds,
        policy=settings.policy(),
        switches=switches,
        on_verdict=systemd.show,
    )
    register = ConnectionRegister(settings.clustercheck_allow_from)
    drain_status, any_path = int(settings.clustercheck_drain_status), settings.clustercheck_any_path
    counts = no_health_checks(drain_status, any_path=any_path)
    metrics = ServiceMetrics(settings, monitor, poller, register, counts, switches, lambda: log.dropped)
    application = create_application(monitor, poller, register, switches, metrics.registry())
    health_checks = HealthChecks(monitor, application, PATHS, counts, drain_status=drain_status, any_path=any_path)
    listening = listening_socket(settings.clustercheck_host, settings.clustercheck_port, systemd.keep)
    _say_what_is_watched(settings, address_of(listening))
    polling = asyncio.create_task(monitor.run())
    feeding = asyncio.create_task(systemd.feed_watchdog(lambda: monitor.alive))

    def give_up() -> None:
        switches.shutting_down = True
        polling.cancel()

    server = Server(
        health_checks,
        register,
        switches,
        settings.clustercheck_drain_seconds,
        deadline_seconds,
        give_up=give_up,
        on_stop=systemd.stopping,
    )
    try:
        await server.serve([listening])
    finally:
        feeding.cancel()
        polling.cancel()
        await asyncio.wait([polling, feeding])
        await poller.close()


def _say_what_is_watched(settings: Settings, address: str) -> None:
    policy = settings.policy()
    _log.info(
        "started",
        extra={
            "version": __version__,
            "database": str(settings.database()),
            "listen": address,
            "poll_interval_seconds": settings.clustercheck_poll_interval,
            "login_interval_seconds": settings.clustercheck_login_interval,
            "deadline_seconds": settings.clustercheck_deadline,
            "available_when_donor": policy.available_when_donor,
            "available_when_readonly": policy.available_when_readonly,
            "available_when_full": policy.available_when_full,
            "max_recv_queue": policy.max_recv_queue,
        },
    )
