"""Where health checks, /status and /metrics take what they report."""

from collections import Counter
from dataclasses import dataclass, field

from app.database.poller import Poller
from app.http.connections import ConnectionRegister
from app.http.reload_outcome import ReloadOutcome
from app.monitor.monitor import Monitor
from app.settings.settings import Settings
from app.verdict.rules import Policy

HealthCheckCounts = Counter[str]
"""How many answers were sent, by "PATH STATUS". Requests can add only the paths in `asked`."""


@dataclass(eq=False)
class Sources:
    """The parts of a running service. A reload replaces settings and poller.

    asked: when each path with parameters was last asked for, and the policy that these make.
    """

    settings: Settings
    poller: Poller
    monitor: Monitor
    connections: ConnectionRegister
    health_checks: HealthCheckCounts
    last_reload: ReloadOutcome
    asked: dict[str, tuple[float, Policy]] = field(default_factory=dict)
