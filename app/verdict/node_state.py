"""What a poll read: the type of a variable says how `app.database.rows` parses its value."""

from dataclasses import dataclass
from typing import Annotated

from app.verdict.reason import Reason

NOT_A_NUMBER = -1
"""The value of a `Number` if the server sent no non-negative whole number."""


Number = Annotated[int | None, "number"]
Word = Annotated[str | None, "word"]
Text = Annotated[str | None, "text"]
LongText = Annotated[str | None, "long text"]
"""None if the server sent no such row. Text is short and printable ASCII."""


@dataclass(frozen=True)
class PollFailure:
    """A poll that failed. detail: in our words, without a credential."""

    reason: Reason
    detail: str


@dataclass(frozen=True)
class StatusVariables:
    """The status variables that a poll reads."""

    wsrep_local_state: Number = None
    wsrep_local_state_comment: Word = None
    wsrep_cluster_status: Word = None
    wsrep_ready: Word = None
    wsrep_connected: Word = None
    wsrep_cluster_size: Number = None
    wsrep_cluster_conf_id: Number = None
    wsrep_cluster_state_uuid: Word = None
    wsrep_local_index: Number = None
    wsrep_incoming_addresses: LongText = None
    wsrep_last_committed: Number = None
    wsrep_local_recv_queue: Number = None
    wsrep_flow_control_sent: Number = None
    wsrep_flow_control_recv: Number = None
    wsrep_flow_control_active: Word = None
    wsrep_flow_control_status: Word = None
    threads_connected: Number = None
    uptime: Number = None


@dataclass(frozen=True)
class SystemVariables:
    """The global system variables that a poll reads."""

    wsrep_on: Word = None
    wsrep_provider: Word = None
    wsrep_desync: Word = None
    wsrep_osu_method: Word = None
    wsrep_reject_queries: Word = None
    wsrep_node_name: Text = None
    read_only: Word = None
    super_read_only: Word = None
    offline_mode: Word = None
    tx_read_only: Word = None
    transaction_read_only: Word = None
    skip_networking: Word = None
    pxc_maint_mode: Word = None
    max_connections: Number = None
    max_user_connections: Text = None  # may be -1
    version: Text = None


@dataclass(frozen=True)
class NodeState(SystemVariables, StatusVariables):
    """The variables, and what the poller found in other ways.

    rejects_logins: why the server takes no logins. returning: whether it hung, and answered no read
    in sync since. sync_wait_seconds: None if nothing is known. stall: see `alone`. elsewhere:
    whether the server is on another host than clustercheckd.
    """

    rejects_logins: str | None = None
    returning: bool = False
    sync_wait_seconds: float | None = None
    sync_refused: bool = False
    stall: str | None = None
    stall_seconds: float = 0.0
    elsewhere: bool = False


ELSEWHERE = "MYSQL_HOST leads to another host: the verdict is about the server there"

PollResult = NodeState | PollFailure


KINDS = {
    name: annotation.__metadata__[0]
    for variables in (StatusVariables, SystemVariables)
    for name, annotation in variables.__annotations__.items()
}
"""How the value of a variable is parsed."""

STATUS_VARIABLES = tuple(StatusVariables.__annotations__)
SYSTEM_VARIABLES = tuple(SystemVariables.__annotations__)
"""What a poll asks for. A server takes names in either case."""
