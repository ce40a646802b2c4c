"""The objects that /status and /metrics report on."""

from collections.abc import Callable
from dataclasses import dataclass

from app.http.guard import ConnectionRegister
from app.http.health_checks import HealthCheckCounts
from app.monitor import Monitor
from app.switches import ManualSwitches


@dataclass(frozen=True, slots=True)
class Sources:
    """The objects that /status and /metrics report on. Each keeps its own counts.

    log_lines_dropped: returns how many log lines were dropped.
    """

    monitor: Monitor
    register: ConnectionRegister
    counts: HealthCheckCounts
    switches: ManualSwitches
    interval_seconds: float
    deadline_seconds: float
    log_lines_dropped: Callable[[], int]
