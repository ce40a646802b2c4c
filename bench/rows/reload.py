"""Reloads and restarts, and what clients see: on an idle machine, on a busy one, by hundreds."""

import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

from app.settings.listening import BACKLOG
from bench import load
from bench.rig import Rig
from bench.table import Row, milliseconds
from harness.haproxy import HAProxy, Server
from harness.ports import LOOPBACK
from harness.process import Process
from harness.quota import quota, share_like
from harness.service import Service
from harness.waiting import wait_for

GOAL_LONGER_SECONDS = 0.1
GOAL_GROWTH_MIB = 2.0

_BUSY_LOOPS, _BUSY = 8, ("timeout", "900", sys.executable, "-c", "while True: pass")
_RELOADS = 20
_SECONDS, _RATE = 5.0, 100.0
_MANY, _MANY_SECONDS, _MANY_RATE = 200, 20.0, 500.0


def rows(rig: Rig) -> list[Row]:
    """Measure what clients see."""
    measured = [_idle(rig), many(rig)]
    # A quota needs root.
    if os.geteuid() == 0:
        measured += [with_little_cpu(rig), restarts(rig)]
    return [*measured, beside_busy_loops(rig)]


def _idle(rig: Rig) -> Row:
    without = max(load.at_rate(rig.service.port, _RATE, _SECONDS).latencies)
    with _reloads(rig, _RELOADS, _SECONDS):
        during = max(load.at_rate(rig.service.port, _RATE, _SECONDS).latencies)
    return Row(
        f"longest answer in {_SECONDS:g} s with {_RELOADS} reloads",
        milliseconds(during),
        f"without {milliseconds(without)}",
        f"{milliseconds(during - without)} longer",
        f"< {milliseconds(GOAL_LONGER_SECONDS)}",
        during - without < GOAL_LONGER_SECONDS,
    )


def with_little_cpu(rig: Rig) -> Row:
    """Reload at a quarter of a core."""
    with _at_a_quarter(rig.service) as where:
        return _seen_by_haproxy(
            rig, rig.service, lambda: _reload(rig), f"reloads, {where}"
        )


def beside_busy_loops(rig: Rig) -> Row:
    """Reload where other programs leave no core idle."""
    log = rig.installation.directory / "busy.log"
    with ExitStack() as exits:
        for _ in range(_BUSY_LOOPS):
            exits.callback(Process("busy", _BUSY, log).kill)
        where = f"{_BUSY_LOOPS} busy loops beside it"
        return _seen_by_haproxy(
            rig, rig.service, lambda: _reload(rig), f"reloads, {where}"
        )


@contextmanager
def _at_a_quarter(service: Service) -> Iterator[str]:
    """Give the service a quarter of a core; yield how a row says that."""
    share = share_like(0.25)
    with quota(service.process.pid, share):
        yield f"the service at {share:.2f} of a core"


def restarts(rig: Rig) -> Row:
    """Restart a service whose socket stays open, at a quarter of a core."""
    with ExitStack() as exits:
        held = exits.enter_context(socket.create_server((LOOPBACK, 0), backlog=BACKLOG))
        service = exits.enter_context(rig.beside(held))
        # What the shell starts from now on is in the same group.
        where = exits.enter_context(_at_a_quarter(service))

        def restart() -> None:
            # It answers once FastAPI is imported, which is what a start does last.
            service.status()
            count = _starts(service)
            service.process.send_to_session("python", signal.SIGTERM)
            wait_for("the start", lambda: _starts(service) > count)

        restart()
        return _seen_by_haproxy(rig, service, restart, f"restarts, {where}")


def _starts(service: Service) -> int:
    return service.log.read_text().count(" started ")


def _seen_by_haproxy(
    rig: Rig, service: Service, act: Callable[[], None], what: str
) -> Row:
    """Count the failed checks of HAProxy, with the example's timers, in all six server lines.

    If lines go down, as long without an act shows whether this machine can tell.
    """
    installation = rig.installation
    servers = [Server(f"node{n}", rig.node.port, service.port) for n in (1, 2, 3)]
    haproxy = HAProxy(installation.directory, installation.ports, servers)
    haproxy.start()
    try:
        wait_for("HAProxy to check", lambda: _states(haproxy) == {"UP"}, seconds=30)
        began_at, before = time.monotonic(), _faults(haproxy)
        for _ in range(_RELOADS):
            act()
            # The next one meets HAProxy's checks at another moment.
            time.sleep(0.5)
        during = _faults(haproxy) - before
        met: bool | None = not during["chkdown"] and _states(haproxy) == {"UP"}
        after = ""
        if not met:
            lasted, before = time.monotonic() - began_at, _faults(haproxy)
            time.sleep(lasted)
            failed = (_faults(haproxy) - before)["chkfail"]
            met, after = None if failed else False, f", then as long without {failed}"
    finally:
        haproxy.kill()
    return Row(
        f"server lines down in HAProxy in {_RELOADS} {what}",
        f"{during['chkdown']}",
        f"{during['chkfail']} checks failed{after}",
        "",
        "0",
        met,
    )


def many(rig: Rig) -> Row:
    """Send health checks at a rate, whose answers must all be equal, during hundreds of reloads."""
    # Thousands of answers, and reloads beside them, take memory once.
    with _reloads(rig, _RELOADS, _SECONDS):
        load.at_rate(rig.service.port, _MANY_RATE, _SECONDS)
    _reload(rig)
    process = rig.service.process
    memory, descriptors = process.resident_kib / 1024, process.descriptors
    before = _count(rig)
    with _reloads(rig, _MANY, _MANY_SECONDS):
        done = load.at_rate(rig.service.port, _MANY_RATE, _MANY_SECONDS)
    _reload(rig)
    process = rig.service.process
    wait_for("old sessions to end", lambda: process.descriptors <= descriptors)
    growth = process.resident_kib / 1024 - memory
    return Row(
        f"{_MANY} SIGHUPs in {_MANY_SECONDS:g} s under {_MANY_RATE:g} health checks a second",
        f"{_count(rig) - before} reloads, {done.checks:,} answers, none wrong",
        f"longest {milliseconds(max(done.latencies))}",
        f"memory {growth:+.1f} MiB, descriptors +0",
        f"growth < {GOAL_GROWTH_MIB:g} MiB",
        growth < GOAL_GROWTH_MIB,
    )


def _count(rig: Rig) -> int:
    """Count the reloads so far. Signals that arrive during one cause one more together."""
    return rig.service.log.read_text().count(" reloaded ")


def _reload(rig: Rig) -> None:
    """Reload, and wait until that has ended."""
    sent_at = datetime.now(UTC)
    rig.service.process.send(signal.SIGHUP)
    wait_for("the reload", lambda: _reloaded_at(rig) >= sent_at, seconds=60)
    if rig.service.status()["last_reload"]["complaints"]:
        raise load.WrongAnswerError(str(rig.service.status()["last_reload"]))


def _reloaded_at(rig: Rig) -> datetime:
    return datetime.fromisoformat(rig.service.status()["last_reload"]["at"])


@contextmanager
def _reloads(rig: Rig, count: int, seconds: float) -> Iterator[None]:
    """Send so many SIGHUPs, spread over so many seconds, while the block runs."""
    ended = threading.Event()

    def send() -> None:
        for _ in range(count):
            rig.service.process.send(signal.SIGHUP)
            if ended.wait(seconds / count):
                return

    sending = threading.Thread(target=send)
    sending.start()
    try:
        yield
    finally:
        ended.set()
        sending.join()


def _column(haproxy: HAProxy, name: str) -> list[str]:
    return [
        row[name]
        for row in haproxy.servers().values()
        if row["svname"].startswith("node")
    ]


def _states(haproxy: HAProxy) -> set[str]:
    return set(_column(haproxy, "status"))


def _faults(haproxy: HAProxy) -> Counter[str]:
    """Count the checks that have failed and the times that lines went down, in all lines."""
    return Counter(
        {
            name: sum(int(count or 0) for count in _column(haproxy, name))
            for name in ("chkfail", "chkdown")
        }
    )
