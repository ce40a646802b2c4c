"""The composition root: `clustercheckd`, also as `python -m app`."""

import os
import signal

# The imports take most of the start. Process 1 of a container ignores SIGTERM unless it has a handler. 143 is the
# shell's status for SIGTERM; 0 would mean "available" to a program that stops a slow check.
signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(143))

import asyncio
import contextlib
import logging
import sys
from collections.abc import Sequence

import uvloop

from app import __version__
from app.commands.check import check
from app.commands.drain import drain, undrain
from app.commands.parser import MIGRATE, CommandLine, as_typed, parse
from app.commands.standard_streams import complain, open_missing_streams
from app.commands.status import status
from app.commands.watch import watch
from app.database.observer import Observer
from app.http.api import PATHS, create_application
from app.http.guard import ConnectionRegister
from app.http.probe import Probe, ProbeCounts
from app.http.server import ListenError, Server, address_of, listening_sockets
from app.http.sources import Sources
from app.log import Log, set_up_log
from app.monitor import Monitor, longest_silence_seconds
from app.settings import Settings, SettingsError, load_settings
from app.switches import ManualSwitches
from app.systemd import Systemd

_log = logging.getLogger(__name__)

_LONGEST_WAIT_SECONDS = 2.0

MISUSED = 2
"""Exit status for settings that cannot be used."""

INTERRUPTED = 130
"""Exit status for Ctrl-C before the service has started, as shells report it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    open_missing_streams()
    try:
        return _run(sys.argv[1:] if arguments is None else arguments)
    except SettingsError as fault:
        for line in str(fault).splitlines():
            complain(line)
        return MISUSED
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(arguments: Sequence[str]) -> int:
    typed = parse(arguments)
    if typed.command == MIGRATE:
        # Imported here, because it would delay the start of the service.
        from app.commands.migrate import migrate  # noqa: PLC0415

        return migrate(typed.rest)
    try:
        return _run_with_settings(typed)
    except (SettingsError, ListenError) as fault:
        raise SettingsError(as_typed(str(fault), typed)) from None


def _run_with_settings(typed: CommandLine) -> int:
    settings, warnings = load_settings(typed.settings, typed.env_file)
    as_json = "json" in typed.switches
    if typed.command == "serve":
        return _run_service(settings, warnings)
    for line in warnings:
        complain(line)
    match typed.command:
        case "drain":
            return drain(settings)
        case "undrain":
            return undrain(settings)
        case "status":
            return status(settings, typed.words, as_json=as_json, watching="watch" in typed.switches)
    settings.require_login()
    return watch(settings) if typed.command == "watch" else check(settings, as_json=as_json)


def _run_service(settings: Settings, warnings: Sequence[str]) -> int:
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
    observer = Observer(settings.database(), settings.clustercheck_deadline)
    switches = ManualSwitches(settings.clustercheck_disabled_file)
    policy = settings.policy()
    systemd = Systemd(os.environ, longest_silence_seconds(policy))
    monitor = Monitor(
        observer,
        interval_seconds=settings.clustercheck_poll_interval,
        policy=policy,
        switches=switches,
        on_observation=systemd.observed,
        on_change=systemd.changed,
    )
    register = ConnectionRegister(settings.allowed_networks())
    drain_status, any_path = int(settings.clustercheck_drain_status), settings.clustercheck_any_path
    counts = ProbeCounts(drain_status, any_path=any_path)
    sources = Sources(
        monitor,
        register,
        counts,
        switches,
        interval_seconds=settings.clustercheck_poll_interval,
        deadline_seconds=settings.clustercheck_deadline,
        log_lines_dropped=lambda: log.dropped,
    )
    application = create_application(sources)
    probe = Probe(monitor, application, PATHS, counts, drain_status=drain_status, any_path=any_path)
    sockets = listening_sockets(settings.clustercheck_host, settings.clustercheck_port)
    _say_what_is_watched(settings, [address_of(listening) for listening in sockets])
    observing = asyncio.create_task(monitor.run())

    def give_up() -> None:
        switches.shutting_down = True
        observing.cancel()

    try:
        # A health check that is already waiting gets a fresh verdict instead of `starting`.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(monitor.policy.max_age_seconds, _LONGEST_WAIT_SECONDS)):
                await monitor.observed.wait()
        server = Server(
            probe,
            register,
            switches,
            settings.clustercheck_drain_seconds,
            give_up=give_up,
            on_stop=systemd.stopping,
        )
        await server.serve(sockets)
    finally:
        observing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await observing
        await observer.close()


def _say_what_is_watched(settings: Settings, addresses: list[str]) -> None:
    policy = settings.policy()
    _log.info(
        "started",
        extra={
            "version": __version__,
            "database": str(settings.database()),
            "listen": " ".join(addresses),
            "poll_interval_seconds": settings.clustercheck_poll_interval,
            "deadline_seconds": settings.clustercheck_deadline,
            "available_when_donor": policy.available_when_donor,
            "available_when_readonly": policy.available_when_readonly,
            "available_when_full": policy.available_when_full,
            "max_recv_queue": policy.max_recv_queue,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
