"""The result of a poll: a `NodeState`, or a `PollFailure` that says why the node could not be read.

Pure: no socket, no clock, no setting. The poller passes the server's rows to `parse_node_state`,
and `verdict.decide` takes the result.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields

from app.verdict.reason import Reason

# SHOW STATUS prints -1 as an unsigned 64-bit number, for example wsrep_local_index of a node
# outside any component.
_UNSIGNED_MINUS_ONE = 2**64 - 1
# Text from the server is written to bodies, logs and terminals: keep it short and printable.
_UNSAFE = re.compile(r"[^A-Za-z0-9 _/:,.()+-]")
_TEXT_LIMIT = 60

NOT_A_NUMBER = -1
"""The value of an integer field if the server sent anything but a non-negative whole number."""


@dataclass(frozen=True)
class PollFailure:
    """A poll that failed.

    detail: clustercheckd's own words, formatted by `text.one_line`; never driver text, never a
    credential.
    """

    reason: Reason
    detail: str


@dataclass(frozen=True)
class StatusVariables:
    """The status variables that a poll reads. A server omits those it does not have."""

    wsrep_local_state: int | None = None
    wsrep_local_state_comment: str | None = None
    wsrep_cluster_status: str | None = None
    wsrep_ready: str | None = None
    wsrep_connected: str | None = None
    wsrep_cluster_size: int | None = None
    wsrep_local_index: int | None = None
    wsrep_last_committed: int | None = None
    wsrep_local_recv_queue: int | None = None
    wsrep_flow_control_active: str | None = None
    wsrep_flow_control_status: str | None = None
    threads_connected: int | None = None


@dataclass(frozen=True)
class SystemVariables:
    """The global system variables that a poll reads. A server omits those it does not have."""

    wsrep_on: str | None = None
    wsrep_provider: str | None = None
    wsrep_desync: str | None = None
    wsrep_reject_queries: str | None = None
    wsrep_node_name: str | None = None
    read_only: str | None = None
    super_read_only: str | None = None
    offline_mode: str | None = None
    tx_read_only: str | None = None
    transaction_read_only: str | None = None
    skip_networking: str | None = None
    pxc_maint_mode: str | None = None
    max_connections: int | None = None
    version: str | None = None


@dataclass(frozen=True)
class NodeState(SystemVariables, StatusVariables):
    """What one poll read from a node: the variables, and what the poller found in other ways.

    The names are in lower case. A variable is None if the server sent no such row. Integers are
    non-negative, or `NOT_A_NUMBER` if the value was anything else. Text is stripped, shortened and
    printable ASCII.

    rejects_logins: why the server takes no logins, None if it does. returning: whether the server
    hung, and no read in sync has been answered since. sync_wait_seconds: for how long no read in
    sync has been answered: 0 if the latest was, None if nothing is known. sync_refused: whether
    the server refused a read in sync since then.
    """

    rejects_logins: str | None = None
    returning: bool = False
    sync_wait_seconds: float | None = None
    sync_refused: bool = False


STATUS_VARIABLES = tuple(field.name for field in fields(StatusVariables))
SYSTEM_VARIABLES = tuple(field.name for field in fields(SystemVariables))
"""The names that a poll asks for. To a server, upper and lower case are the same."""

_INTEGER_FIELDS = {field.name for field in fields(NodeState) if field.type == int | None}
_TEXT_FIELDS = {*STATUS_VARIABLES, *SYSTEM_VARIABLES} - _INTEGER_FIELDS
_FREE_TEXT = ("wsrep_node_name", "version")
# A switch is 1 or 0 if it was read with SELECT.
_SWITCH_POSITIONS = {"1": "ON", "0": "OFF"}

Cell = str | bytes | int | float | None
"""A value as a MySQL driver may return it; bytes if it is not valid text."""

Rows = tuple[tuple[Cell, ...], ...]
"""Rows as a MySQL driver returns them."""


def parse_node_state(rows: Iterable[tuple[Cell, ...]]) -> NodeState | PollFailure:
    """Parse rows of name and value into a `NodeState`. SHOW and SELECT give the same result.

    Names are compared in lower case, unknown names are ignored, and a text of 1 or 0 becomes ON or
    OFF.

    Return a `PollFailure` if a row is not a pair, or if a name comes twice with different values:
    to guess which value is true would be to risk a false 200.
    """
    values: dict[str, int | str] = {}
    for row in rows:
        if len(row) != 2:  # noqa: PLR2004 (a name and a value)
            return PollFailure(Reason.ERROR, "the server sent a row that is not a name and a value")
        name = _text(row[0]).lower()
        value: int | str
        if name in _INTEGER_FIELDS:
            value = _integer(row[1])
        elif name in _TEXT_FIELDS:
            value = _text(row[1])
            if name not in _FREE_TEXT:
                value = _SWITCH_POSITIONS.get(value, value)
        else:
            continue
        if values.setdefault(name, value) != value:
            return PollFailure(Reason.ERROR, f"the server sent two different values for {name}")
    return NodeState(**values)  # type: ignore[arg-type]


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    text = cell.decode("ascii", "replace") if isinstance(cell, bytes) else str(cell)
    return _UNSAFE.sub("?", text.strip()[:_TEXT_LIMIT])


def _integer(cell: Cell) -> int:
    text = _text(cell)
    # 20 digits are enough for every 64-bit number. isdecimal also accepts digits outside ASCII;
    # _text removed those.
    if not text.isdecimal() or len(text) > 20:  # noqa: PLR2004
        return NOT_A_NUMBER
    number = int(text)
    return NOT_A_NUMBER if number >= _UNSIGNED_MINUS_ONE else number
