"""The reasons: one stable word for each verdict. Pure, and imports nothing of the project."""

from enum import StrEnum


class Reason(StrEnum):
    """The stable word that explains a verdict. Users match on these words, so they never change."""

    DISABLED = "disabled"
    SHUTTING_DOWN = "shutting-down"
    STARTING = "starting"
    STALE = "stale"
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    TOO_MANY_CONNECTIONS = "too-many-connections"
    ACCESS_DENIED = "access-denied"
    HOST_BLOCKED = "host-blocked"
    OFFLINE = "offline"
    CONNECTION_LOST = "connection-lost"
    ERROR = "error"
    REJECTS_LOGINS = "rejects-logins"
    BLOCKED = "blocked"
    NOT_GALERA = "not-galera"
    INCONSISTENT = "inconsistent"
    JOINING = "joining"
    DISCONNECTED = "disconnected"
    NON_PRIMARY = "non-primary"
    NOT_READY = "not-ready"
    REJECTS_QUERIES = "rejects-queries"
    NO_NETWORKING = "no-networking"
    MAINTENANCE = "maintenance"
    DESYNCED = "desynced"
    DONOR = "donor"
    JOINED = "joined"
    UNKNOWN_STATE = "unknown-state"
    READ_ONLY = "read-only"
    LAGGING = "lagging"
    FULL = "full"
    SYNCED = "synced"


POLL_FAILURES = (
    Reason.UNREACHABLE,
    Reason.TIMEOUT,
    Reason.TOO_MANY_CONNECTIONS,
    Reason.ACCESS_DENIED,
    Reason.HOST_BLOCKED,
    Reason.OFFLINE,
    Reason.CONNECTION_LOST,
    Reason.ERROR,
    Reason.REJECTS_LOGINS,
)
"""The reasons that a failed poll may have."""

PLANNED = (
    Reason.DISABLED,
    Reason.SHUTTING_DOWN,
    Reason.MAINTENANCE,
    Reason.DESYNCED,
    Reason.DONOR,
    # A donor passes through this state before it is synced again, and its sessions must survive
    # both states. A joiner in state 3 gets not-ready, because rule 10 comes first.
    Reason.JOINED,
    Reason.FULL,
)
"""The planned reasons: an unavailable node takes no new sessions, but its existing sessions may
finish."""
