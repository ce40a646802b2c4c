"""How long the answer stays 200 after a server hangs, or takes no logins.

A 200 that arrives after the fault is false. Each fault begins at a random time relative to the
polls and logins.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from bench import load
from bench.rig import INTERVAL_SECONDS, Rig
from bench.table import Row, milliseconds
from harness.galera import Node
from harness.waiting import NotInTimeError, wait_for

GOAL_HUNG, GOAL_REFUSED = 0.35, 3.0

_HANGS, _REFUSALS = 30, 10
_PAUSE_SECONDS = 0.005
_LOGIN_INTERVAL_SECONDS = 2.0
_LONGEST_SECONDS = 20.0
_OK = b"HTTP/1.1 200 "


def rows(rig: Rig) -> list[Row]:
    """Cause each fault some times. The worst time counts."""
    hung = [
        _last_200(rig, lambda node: node.process.paused(), INTERVAL_SECONDS)
        for _ in range(_HANGS)
    ]
    refused = [
        _last_200(rig, _refusing, _LOGIN_INTERVAL_SECONDS) for _ in range(_REFUSALS)
    ]
    return [
        _row("a false 200 of a hung server", hung, GOAL_HUNG),
        _row(
            "a false 200 after the first refused login (error 1135)",
            refused,
            GOAL_REFUSED,
        ),
    ]


def _row(measured: str, times: list[float], goal: float) -> Row:
    worst = max(times)
    return Row(
        f"{measured}, worst of {len(times)}",
        milliseconds(worst),
        "",
        "",
        f"<= {milliseconds(goal)}",
        worst <= goal,
    )


def _last_200(
    rig: Rig,
    fault: Callable[[Node], AbstractContextManager[None]],
    phase_seconds: float,
) -> float:
    """Return how long after the fault the last 200 arrived."""
    until = time.monotonic() + random.uniform(0, phase_seconds)  # noqa: S311 (no secret)
    while time.monotonic() < until:
        load.ask(rig.service.port)
        time.sleep(_PAUSE_SECONDS)
    with fault(rig.node):
        began_at = last = time.monotonic()
        while load.ask(rig.service.port).startswith(_OK):
            last = time.monotonic()
            if last - began_at > _LONGEST_SECONDS:
                raise NotInTimeError(
                    f"the fault was not seen within {_LONGEST_SECONDS:g} s"
                )
            time.sleep(_PAUSE_SECONDS)
    rig.service.wait_for_verdict(200, "synced")
    return last - began_at


@contextmanager
def _refusing(node: Node) -> Iterator[None]:
    with node.without_threads():
        wait_for("a refused login", lambda: not node.commits())
        yield
