"""The reasons: docs/reference/reasons.md says what each means."""

from enum import StrEnum


class Reason(StrEnum):
    """The word for a verdict. Users match on these words: they never change."""

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
    CLUSTER_TOO_SMALL = "cluster-too-small"
    REJECTS_QUERIES = "rejects-queries"
    NO_NETWORKING = "no-networking"
    MAINTENANCE = "maintenance"
    DESYNCED = "desynced"
    DONOR = "donor"
    JOINED = "joined"
    UNKNOWN_STATE = "unknown-state"
    READ_ONLY = "read-only"
    CUT_OFF = "cut-off"
    DISK_FULL = "disk-full"
    STALLED = "stalled"
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
    Reason.STALE,
)
"""Those of a failed poll; the last, of one that did not end."""

PLANNED = (
    Reason.DISABLED,
    Reason.SHUTTING_DOWN,
    Reason.MAINTENANCE,
    Reason.DESYNCED,
    Reason.DONOR,
    # A donor's next state. A joiner in it is not-ready: rule 10 comes first.
    Reason.JOINED,
    Reason.FULL,
)
"""Those after which the node's sessions may finish."""
