"""The composition root: `clustercheckd`, also as `python -m app`."""

import os
import signal

# Before the imports that make up most of the start: as process 1 of a container, SIGTERM would be ignored until then.
# 143 is what shells make of it; 0 would mean `available` to whoever ends a check that takes too long.
signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(143))

import argparse
import asyncio
import contextlib
import logging
import sys
from collections.abc import Sequence

import uvloop

from app import __version__
from app.commands import check as cli
from app.database.observer import Observer
from app.http.api import JSON_PATHS, create_application
from app.http.guard import ConnectionRegister
from app.http.probe import Probe
from app.http.server import ListenError, Server, address_of, listening_sockets
from app.log import set_up_log
from app.monitor import Monitor
from app.settings import Settings, SettingsError, load_settings, unknown_variables
from app.switches import ManualSwitches

_log = logging.getLogger(__name__)

_LONGEST_WAIT_SECONDS = 2.0

MISUSED = 2
"""The exit code for settings that cannot be used."""

INTERRUPTED = 130
"""The exit code for a Ctrl-C before the service has begun, as shells give it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; give back the exit code."""
    parser = argparse.ArgumentParser(
        prog="clustercheckd",
        description="Tells load balancers whether a Galera node may take traffic: 200 or 503, with the reason.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument(
        "command",
        nargs="?",
        choices=("serve", "check", "watch", "drain", "undrain"),
        default="serve",
        help="serve: answer probes (the default); check: ask the node once, exit code 0 available, 1 not; watch: a row"
        " a second; drain, undrain: make or remove the disabled file",
    )
    parser.add_argument("--json", action="store_true", help="check: print JSON")
    try:
        settings, given = load_settings(sys.argv[1:] if arguments is None else arguments, parser)
        if given.json and given.command != "check":
            parser.error("--json goes with check")
        match given.command:
            case "drain":
                return cli.drain(settings)
            case "undrain":
                return cli.undrain(settings)
        settings.require_login()
        match given.command:
            case "check":
                return cli.check(settings, as_json=given.json)
            case "watch":
                return cli.watch(settings)
        # Until the server has its own: nothing has begun that would have to be ended in good order.
        signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))
        set_up_log(settings.clustercheck_log_level)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings))
    except (SettingsError, ListenError) as fault:
        for line in str(fault).splitlines():
            print(f"clustercheckd: {line}", file=sys.stderr)
        return MISUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


async def _serve(settings: Settings) -> None:
    observer = Observer(settings.database(), settings.clustercheck_deadline)
    switches = ManualSwitches(settings.clustercheck_disabled_file)
    monitor = Monitor(
        observer,
        interval_seconds=settings.clustercheck_poll_interval,
        policy=settings.policy(),
        switches=switches,
    )
    register = ConnectionRegister(settings.allowed_networks())
    probe = Probe(
        monitor,
        create_application(monitor, register),
        drain_status=int(settings.clustercheck_drain_status),
        other_paths=JSON_PATHS if settings.clustercheck_any_path else None,
    )
    sockets = listening_sockets(settings.clustercheck_host, settings.clustercheck_port)
    _say_what_is_watched(settings, [address_of(listening) for listening in sockets])
    observing = asyncio.create_task(monitor.run())
    try:
        # A probe that is already waiting gets a true answer, not `starting`.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(monitor.policy.max_age_seconds, _LONGEST_WAIT_SECONDS)):
                await monitor.observed.wait()
        await Server(probe, register, switches, settings.clustercheck_drain_seconds).serve(sockets)
    finally:
        observing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await observing
        await observer.close()


def _say_what_is_watched(settings: Settings, addresses: list[str]) -> None:
    for line in unknown_variables(os.environ):
        _log.warning("%s", line)
    policy = settings.policy()
    _log.info(
        "clustercheckd %s watches %s every %g s (deadline %g s), answers on %s;"
        " AVAILABLE_WHEN_DONOR=%d AVAILABLE_WHEN_READONLY=%d AVAILABLE_WHEN_FULL=%d MAX_RECV_QUEUE=%s",
        __version__,
        settings.database(),
        settings.clustercheck_poll_interval,
        settings.clustercheck_deadline,
        " and ".join(addresses),
        policy.available_when_donor,
        policy.available_when_readonly,
        policy.available_when_full,
        "" if policy.max_recv_queue is None else policy.max_recv_queue,
    )


if __name__ == "__main__":
    sys.exit(main())
