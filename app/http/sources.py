"""Where health checks, /status and /metrics take what they report."""

from collections import Counter
from dataclasses import dataclass

from app.database.poller import Poller
from app.http.connections import ConnectionRegister
from app.http.reload_outcome import ReloadOutcome
from app.monitor.monitor import Monitor
from app.settings.settings import Settings
from app.settings.source import Loaded

HealthCheckCounts = Counter[str]
"""How many answers were sent, by "PATH STATUS". No request can add a path."""


@dataclass(eq=False)
class Sources:
    """The parts of a running service."""

    loaded: Loaded
    poller: Poller
    monitor: Monitor
    connections: ConnectionRegister
    health_checks: HealthCheckCounts
    last_reload: ReloadOutcome

    @property
    def settings(self) -> Settings:
        """Return those in use."""
        return self.loaded.settings
