"""The objects that /status and /metrics report on."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.http.guard import ConnectionRegister
from app.http.health_checks import HealthCheckCounts
from app.monitor import Monitor
from app.node_state import PollFailure
from app.reason import Reason
from app.switches import ManualSwitches


class Logins(Protocol):
    """What a poller knows of its logins: see `Poller`."""

    logins: Counter[Reason | None]
    login_failure: PollFailure | None
    account_refused: bool


@dataclass(frozen=True, slots=True)
class Sources:
    """The objects that /status and /metrics report on. Each keeps its own counts.

    log_lines_dropped: returns how many log lines were dropped.
    """

    monitor: Monitor
    logins: Logins
    register: ConnectionRegister
    counts: HealthCheckCounts
    switches: ManualSwitches
    interval_seconds: float
    deadline_seconds: float
    log_lines_dropped: Callable[[], int]
