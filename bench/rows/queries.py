"""The load on the node: statements, new connections and open sessions, at several rates of health checks."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pymysql

from bench import load
from bench.rig import INTERVAL_SECONDS, Rig
from bench.table import Row

_SECONDS = 5.0
_CONNECTIONS = 64
_SCRIPT_CONNECTIONS = 4
_STATEMENTS_EACH = 2
_TOLERANCE = 0.1
_COUNTERS = ("Questions", "Com_show_status", "Com_show_variables", "Connections", "Threads_connected")
_SHOW = f"SHOW GLOBAL STATUS WHERE Variable_name IN ({', '.join(map(repr, _COUNTERS))})"


@dataclass(frozen=True)
class _Seen:
    """What the node counted, without the measuring session."""

    statements_per_second: float
    shows_per_second: float
    new_connections: int
    held: int
    checks_per_second: float


def rows(rig: Rig) -> list[Row]:
    """Measure each rate once: these are counts, which other load on the machine does not change."""
    session = rig.node.connect()
    try:
        return [_row(rig, session, rate) for rate in (0, 10, 1000, None)]
    finally:
        session.close()


def _row(rig: Rig, session: "pymysql.Connection[Any]", per_second: int | None) -> Row:
    ours = _seen(session, _probing(rig.service.port, per_second, _CONNECTIONS))
    wanted = _STATEMENTS_EACH / INTERVAL_SECONDS
    flat = abs(ours.statements_per_second - wanted) <= wanted * _TOLERANCE
    # The script cannot answer 1,000 health checks a second. Its row at full speed shows how many it can.
    script = None
    if per_second is None or per_second <= 10:  # noqa: PLR2004
        with rig.service_paused():
            script = _seen(session, _probing(rig.shell_check.port, per_second, _SCRIPT_CONNECTIONS))
    speed = "full speed" if per_second is None else f"{per_second:,} checks/s"
    return Row(
        f"statements and new connections the node sees at {speed}",
        f"{_cell(ours)}, {ours.held} session held",
        f"script {_cell(script)}" if script else "script cannot",
        f"at {ours.checks_per_second:,.0f} checks/s"
        + (f", script at {script.checks_per_second:,.0f}" if script else ""),
        f"{wanted:.0f}/s, 0 new, 1 held",
        flat and ours.new_connections == 0 and ours.held == 1,
    )


def _seen(session: "pymysql.Connection[Any]", probing: Callable[[], int]) -> _Seen:
    before, begun = _counters(session), time.monotonic()
    checks = probing()
    seconds = time.monotonic() - begun
    after = _counters(session)
    own = 1  # the counters include the second of our two own statements
    return _Seen(
        (after["Questions"] - before["Questions"] - own) / seconds,
        (
            after["Com_show_status"]
            + after["Com_show_variables"]
            - before["Com_show_status"]
            - before["Com_show_variables"]
            - own
        )
        / seconds,
        after["Connections"] - before["Connections"],
        after["Threads_connected"] - 1,
        checks / seconds,
    )


def _probing(port: int, per_second: int | None, connections: int) -> Callable[[], int]:
    if per_second is None:
        return lambda: load.at_full_speed(port, connections, seconds=_SECONDS).checks
    if per_second:
        return lambda: load.at_rate(port, per_second, _SECONDS).checks
    return _nobody


def _nobody() -> int:
    time.sleep(_SECONDS)
    return 0


def _counters(session: "pymysql.Connection[Any]") -> dict[str, int]:
    with session.cursor() as cursor:
        cursor.execute(_SHOW)
        return {name: int(value) for name, value in cursor.fetchall()}


def _cell(seen: _Seen) -> str:
    return f"{seen.statements_per_second:,.1f}/s ({seen.shows_per_second:,.1f} SHOW), {seen.new_connections:,} new"
