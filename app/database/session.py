"""A session on the server, and its statements, for which USAGE is enough.

A node that is not ready answers SHOW and SET, Percona XtraDB Cluster no SELECT (error 1047).

For the system variables, SHOW costs the server far more than `SELECT @@global.a, ...`, which fails
if the server lacks one (error 1193). So a session remembers which it has.
"""

import asyncio
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from pymysql.err import MySQLError

from app.database.connection import Connection
from app.database.faults import error_number
from app.database.rows import Rows, parse_node_state
from app.deadline import deadline
from app.verdict.node_state import (
    STATUS_VARIABLES,
    SYSTEM_VARIABLES,
    PollResult,
)

_UNKNOWN_SYSTEM_VARIABLE = 1193
_OUT_OF_SYNC = (1047, 1205)
"""The node cannot be read in sync. Any other error concerns the account or the session."""

# The server's wait_timeout is eight hours. The rest undoes what would hide rows.
_SETTINGS = (
    "SET SESSION wait_timeout={}, sql_select_limit=18446744073709551615,"
    " sql_big_selects=1, character_set_results=NULL"
)
# With the server's wsrep_sync_wait, a SHOW may wait 30 s. With wsrep_dirty_reads, no read in sync
# would wait. A server may lack the second, or both.
_GALERA_SETTINGS = (
    ", wsrep_sync_wait=0, wsrep_dirty_reads=OFF",
    ", wsrep_sync_wait=0",
    "",
)
# Bit 1 is for SELECT, on all servers.
_READ_IN_SYNC = ("SET SESSION wsrep_sync_wait=1", "SELECT 1")
# In global scope, MySQL 8 and PXC lock the list of all threads.
_SHOW_STATUS = f"SHOW STATUS WHERE Variable_name IN {STATUS_VARIABLES}"
_SHOWN = (
    *SYSTEM_VARIABLES,
    "wsrep_provider_options",
    "datadir",
    "log_bin_basename",
)
_SHOW_VARIABLES = f"SHOW GLOBAL VARIABLES WHERE Variable_name IN {_SHOWN}"
# See `counters_of`. In session scope, Handler_ would be those of the session. An applier's count
# row by row, and no read moves them.
SHOW_COUNTERS = (
    "SHOW GLOBAL STATUS WHERE Variable_name IN"
    " ('Handler_delete', 'Handler_update', 'Handler_write', 'Innodb_data_pending_reads')"
)
_SUSPECT_SECONDS = 5.0  # Galera's default
# As Galera writes a period (ISO 8601), such as P1D or PT1M30S. It takes either as the longer one,
# and excludes a node after the shorter.
_TIMEOUT = re.compile(
    rb"evs\.(?:suspect|inactive)_timeout = P(?:(\d+)D)?T?(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?"
)
_UNIT_SECONDS = (86400, 3600, 60, 1)
_SHOWN_SECONDS = 60.0
"""How often to look for what a server seldom changes."""

SYNC_SECONDS = 60.0
"""The limit of a read in sync. The server itself gives up after 30 s."""


class Session(Connection):
    """A connection whose account has logged in.

    can_read_in_sync: known after `prepare`. suspect_seconds: the shorter of the server's
    evs.suspect_timeout and evs.inactive_timeout. reading: what has got no answer yet. counted: what
    the latest read has counted, if it was to.
    """

    can_read_in_sync = True
    suspect_seconds = _SUSPECT_SECONDS
    reading: asyncio.Task[Any] | None = None
    phase = "reading the node's state"
    counted: Mapping[str, int] = MappingProxyType({})
    variables: Mapping[bytes, bytes] = MappingProxyType({})
    _names: Sequence[str] = ()
    _show_at = 0.0

    async def prepare(self, idle_seconds: int, *, tries_read: bool) -> None:
        """Prepare the session. Raises anything. tries_read: try what a poll asks too."""
        for galera_settings in _GALERA_SETTINGS:
            statement = _SETTINGS.format(idle_seconds) + galera_settings
            (answer,) = await self.answers(statement)
            if error_number(answer) != _UNKNOWN_SYSTEM_VARIABLE:
                break
        _rows(answer)
        if tries_read:
            _rows(*await self.answers(_SHOW_STATUS))
        self.can_read_in_sync = galera_settings != ""

    async def read(self, *, counts: bool = False) -> PollResult:
        """Read the node's state. Raises any exception. counts: whether to count too."""
        at = asyncio.get_running_loop().time()
        names = self._names if at < self._show_at else ()
        select = "SELECT " + ", ".join(f"@@global.{name}" for name in names)
        more = [SHOW_COUNTERS] if counts else []
        status, answer, *counted = await self.answers(
            _SHOW_STATUS, select if names else _SHOW_VARIABLES, *more
        )
        if names and isinstance(answer, MySQLError):
            self._show_at = 0.0
            return await self.read(counts=counts)
        self.counted = counters_of(counted)
        shown = _rows(answer)
        if names:
            (values,) = shown
            shown = tuple(zip(names, values, strict=True))
        else:
            self._remember(shown)
            self._show_at = at + _SHOWN_SECONDS
        return parse_node_state((*_rows(status), *shown))

    async def read_in_sync(self, unless: Callable[[], bool]) -> bool:
        """Wait until the node has applied all that its group had ordered; False if it refuses.

        unless: whether to wait longer than `SYNC_SECONDS`. Raises any exception.
        """
        self.phase = "reading in sync"
        async with deadline(SYNC_SECONDS, unless=unless):
            waiting, answer = await self.answers(*_READ_IN_SYNC)
        _rows(waiting)
        if error_number(answer) in _OUT_OF_SYNC:
            return False
        _rows(answer)
        return True

    def _remember(self, shown: Rows) -> None:
        self.variables = values = {
            name.lower(): value
            for name, value in shown
            if isinstance(name, bytes) and isinstance(value, bytes)
        }
        # A name from a server must not become part of a statement.
        self._names = [name for name in SYSTEM_VARIABLES if name.encode() in values]
        options = values.get(b"wsrep_provider_options", b"")
        self.suspect_seconds = suspect_seconds_in(options)


def counters_of(answers: Iterable[Any]) -> Mapping[str, int]:
    """Return the sums of what the server shows; none if it does not show each as a number."""
    sums = Counter[str]()
    try:
        for name, value in itertools.chain(*answers):
            sums[name.decode().lower().partition("_")[0]] += int(value)
    except (ValueError, TypeError, AttributeError):
        # What no node needs to be available cannot make it unavailable.
        return {}
    return sums


def suspect_seconds_in(options: bytes) -> float:
    """Return the shorter evs timeout of the provider's options; without one, Galera's default."""
    periods = [
        sum(
            float(number) * unit
            for number, unit in zip(found, _UNIT_SECONDS, strict=True)
        )
        for found in (one.groups(b"0") for one in _TIMEOUT.finditer(options))
    ]
    return min(periods, default=_SUSPECT_SECONDS)


def _rows(answer: Rows | MySQLError) -> Rows:
    if isinstance(answer, MySQLError):
        raise answer
    return answer
