"""Where health checks, /status and /metrics take what they report."""

from collections import Counter
from dataclasses import dataclass, field

from app.database.poller import Poller
from app.http.connections import ConnectionRegister
from app.http.reload_outcome import ReloadOutcome
from app.monitor.monitor import Monitor
from app.settings.settings import Settings
from app.settings.source import Loaded
from app.verdict.rules import Verdict

HealthCheckCounts = Counter[str]
"""How many answers were sent, by "PATH STATUS". Requests can add only the paths in `answered`."""


@dataclass(eq=False)
class Sources:
    """The parts of a running service.

    answered: when the verdict was last sent for each path with its parameters, and the verdict.
    """

    loaded: Loaded
    poller: Poller
    monitor: Monitor
    connections: ConnectionRegister
    health_checks: HealthCheckCounts
    last_reload: ReloadOutcome
    answered: dict[str, tuple[float, Verdict]] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        """Return those in use."""
        return self.loaded.settings
