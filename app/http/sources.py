"""What /status and /metrics tell from."""

from collections.abc import Callable
from dataclasses import dataclass

from app.http.guard import ConnectionRegister
from app.http.probe import ProbeCounts
from app.monitor import Monitor
from app.switches import ManualSwitches


@dataclass(frozen=True, slots=True)
class Sources:
    """The objects that keep what is told; each counts for itself.

    log_lines_dropped returns how many lines the log has lost.
    """

    monitor: Monitor
    register: ConnectionRegister
    counts: ProbeCounts
    switches: ManualSwitches
    interval_seconds: float
    deadline_seconds: float
    log_lines_dropped: Callable[[], int]
