"""What a poll read: the type of a variable says how its value is parsed."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from app.verdict.reason import Reason

Cell = str | bytes | int | float | None
"""A value of a MySQL driver."""

Rows = tuple[tuple[Cell, ...], ...]

# As SHOW STATUS prints -1, for example wsrep_local_index outside any component.
_UNSIGNED_MINUS_ONE = 2**64 - 1
# Terminals show these texts.
_UNSAFE = re.compile(r"[^A-Za-z0-9 _/:,.()+\[\]-]")
_TEXT_LIMIT = 60
_LIST_LIMIT = 2048  # as much as a server sends of a status variable
# As SELECT has them.
_SWITCH_POSITIONS = {"1": "ON", "0": "OFF"}

NOT_A_NUMBER = -1
"""The value of a `Number` if the server sent no non-negative whole number."""


def _text(cell: Cell, limit: int = _TEXT_LIMIT) -> str:
    if cell is None:
        return ""
    text = cell.decode("ascii", "replace") if isinstance(cell, bytes) else str(cell)
    return _UNSAFE.sub("?", text.strip()[:limit])


def _word(cell: Cell) -> str:
    text = _text(cell)
    return _SWITCH_POSITIONS.get(text, text)


def _integer(cell: Cell) -> int:
    text = _text(cell)
    # _text removed digits outside ASCII.
    number = int(text) if text.isdecimal() else NOT_A_NUMBER
    return number if number < _UNSIGNED_MINUS_ONE else NOT_A_NUMBER


Number = Annotated[int | None, _integer]
Word = Annotated[str | None, _word]
Text = Annotated[str | None, _text]
LongText = Annotated[str | None, partial(_text, limit=_LIST_LIMIT)]
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


_PARSERS = {
    name: annotation.__metadata__[0]
    for variables in (StatusVariables, SystemVariables)
    for name, annotation in variables.__annotations__.items()
}

STATUS_VARIABLES = tuple(StatusVariables.__annotations__)
SYSTEM_VARIABLES = tuple(SystemVariables.__annotations__)
"""What a poll asks for. A server takes names in either case."""


def parse_node_state(rows: Iterable[tuple[Cell, ...]]) -> PollResult:
    """Parse rows of name and value.

    Two values of a name are a failure: to guess which is true would risk a false 200.
    """
    values: dict[str, int | str] = {}
    for row in rows:
        if len(row) != 2:  # noqa: PLR2004 (a name and a value)
            return PollFailure(
                Reason.ERROR, "the server sent a row that is not a name and a value"
            )
        name = _text(row[0]).lower()
        if name not in _PARSERS:
            continue
        value = _PARSERS[name](row[1])
        if values.setdefault(name, value) != value:
            return PollFailure(
                Reason.ERROR, f"the server sent two different values for {name}"
            )
    return NodeState(**values)  # type: ignore[arg-type]
