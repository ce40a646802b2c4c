"""All settings: those of the database, of the policy, and of the service itself."""

from dataclasses import dataclass, fields
from ipaddress import IPv4Network, IPv6Network

from app.kinds import (
    BOOLEAN,
    HOST,
    MOST_PORT,
    NETWORKS,
    PATH,
    Row,
    choice,
    duration,
    row,
    whole,
)
from app.settings.database import Database
from app.settings.disabled_file import DISABLED_FILE
from app.settings.error import SettingsError
from app.verdict.rules import Policy

NOTHING_READS = "with CLUSTERCHECK_LOGIN_INTERVAL=0 nothing reads in sync"

Networks = list[IPv4Network | IPv6Network] | None


@dataclass(frozen=True)
class Settings(Policy, Database):
    """All settings; the environment variables have the fields' names."""

    clustercheck_disabled_file: str = row(
        "the node is drained while it exists", PATH, DISABLED_FILE
    )
    clustercheck_drain_status: str = row(
        "HTTP status for planned reasons", choice("404", "503"), "503"
    )
    clustercheck_drain_seconds: float = row(
        "how long to drain after SIGTERM", duration(0, 3600), "0"
    )
    clustercheck_poll_interval: float = row(
        "health checks use a poll this old at most", duration(0.05, 60), "0.25"
    )
    clustercheck_login_interval: float = row(
        "how often to log in again; 0 is never", duration(0, 3600), "2"
    )
    clustercheck_deadline: float = row(
        "time that one poll may take", duration(0.05, 60), "0.8"
    )
    clustercheck_host: str = row("the service's address; * is all", HOST, "*")
    clustercheck_port: int = row(
        "the service's port; 0 is any", whole(0, MOST_PORT), "9200"
    )
    clustercheck_allow_from: Networks = row(
        "clients, e.g. 10.0.0.0/8 (default: everybody)", NETWORKS
    )
    clustercheck_any_path: bool = row("return the verdict on every path", BOOLEAN, "0")
    clustercheck_log_level: str = row(
        "info, warning or error", choice("info", "warning", "error"), "info"
    )
    clustercheck_log_format: str = row("text or json", choice("text", "json"), "text")

    def __post_init__(self) -> None:
        """Raise `SettingsError` for settings that exclude each other."""
        if self.mysql_password and self.mysql_password_file:
            raise SettingsError(
                "MYSQL_PASSWORD and MYSQL_PASSWORD_FILE are both set: set one"
            )
        if self.max_sync_wait and not self.clustercheck_login_interval:
            raise SettingsError(f"MAX_SYNC_WAIT: {NOTHING_READS}")

    def policy(self) -> Policy:
        """Return the policy for health checks that do not override it."""
        return Policy(**{name: getattr(self, name) for name in POLICY})


DATABASE = [one.name for one in fields(Database)]
POLICY = [one.name for one in fields(Policy)]
"""A query overrides them by the same names."""

LISTENING = ["clustercheck_host", "clustercheck_port"]

TABLE = {one.name: Row(one.name, **one.metadata) for one in fields(Settings)}
"""The row of each setting."""
