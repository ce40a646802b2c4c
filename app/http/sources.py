"""Where health checks, /status and /metrics take what they report."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from app.database.poller import Poller
from app.http.register import ConnectionRegister
from app.monitor.monitor import Monitor
from app.settings.settings import Settings
from app.verdict.node_state import PollFailure

HealthCheckCounts = Counter[str]
"""How many answers were sent, by "PATH STATUS". No request can add a path."""


@dataclass
class Reload:
    """How the latest reload ended; the start counts as one.

    at: when it began. complaints: why it was refused, one line each. failure: why the node, which
    can be read, could not be read with the new settings, if that is why. shut_out: who asked in the
    minute before, and may not with the new settings. warnings: what was ignored.
    """

    at: datetime
    complaints: Sequence[str] = ()
    failure: PollFailure | None = None
    shut_out: Sequence[str] = ()
    warnings: Sequence[str] = ()


@dataclass(eq=False)
class Sources:
    """The parts of a running service. A reload replaces settings and poller."""

    settings: Settings
    poller: Poller
    monitor: Monitor
    connections: ConnectionRegister
    health_checks: HealthCheckCounts
    last_reload: Reload
