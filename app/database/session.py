"""One session on the server, and its statements.

A node that is not ready answers SHOW and SET. MariaDB refuses BEGIN, COMMIT and prepared statements
on it, Percona XtraDB Cluster even a SELECT without a table (error 1047). USAGE is enough for all.

Nothing cheaper than SHOW STATUS has the status variables. For the system variables, SHOW costs the
server far more than `SELECT @@global.a, ...`, which fails as a whole if the server lacks one
(error 1193). So `Server` remembers which it has, and a poll whose SELECT is refused uses SHOW.
"""

import asyncio
import re
from dataclasses import dataclass

from pymysql.err import MySQLError

from app.database.connection import Connection
from app.database.faults import error_number
from app.verdict.node_state import (
    STATUS_VARIABLES,
    SYSTEM_VARIABLES,
    NodeState,
    PollFailure,
    Rows,
    parse_node_state,
)

_UNKNOWN_SYSTEM_VARIABLE = 1193
# A session left behind must not count towards the account's limit for the server's eight hours.
# sql_select_limit=0 would hide every row, and DEFAULT is the server's own value.
_SETTINGS = "SET SESSION wait_timeout={}, sql_select_limit=18446744073709551615"
# With the server's wsrep_sync_wait, a SHOW may wait 30 s, or fail outside a primary component.
# With wsrep_dirty_reads, no read in sync would wait. A server may lack the second, or both.
# aiomysql's init_command also sends COMMIT, which a node that is not ready refuses.
_GALERA_SETTINGS = (
    ", wsrep_sync_wait=0, wsrep_dirty_reads=OFF",
    ", wsrep_sync_wait=0",
    "",
)
# Bit 1 is for SELECT, on all servers, which is cheaper than a SHOW STATUS in sync.
_READ_IN_SYNC = ("SET SESSION wsrep_sync_wait=1", "SELECT 1")
# In session scope: in global scope, MySQL 8 and PXC lock the list of all threads.
# Python writes a tuple of names as SQL writes a list of strings.
_SHOW_STATUS = f"SHOW STATUS WHERE Variable_name IN {STATUS_VARIABLES}"
_PROVIDER_OPTIONS = "wsrep_provider_options"
_SHOWN = (*SYSTEM_VARIABLES, _PROVIDER_OPTIONS)
_SHOW_VARIABLES = f"SHOW GLOBAL VARIABLES WHERE Variable_name IN {_SHOWN}"
_SUSPECT_SECONDS = 5.0  # Galera's default
_SUSPECT_TIMEOUT = re.compile(rb"evs\.suspect_timeout = PT([\d.]+)S")


@dataclass
class Server:
    """What a server seldom changes while it runs.

    variables: the system variables that it has; empty until it has shown them. suspect_seconds: its
    evs.suspect_timeout, or Galera's default.
    """

    variables: tuple[str, ...] = ()
    suspect_seconds: float = _SUSPECT_SECONDS

    def show(self, rows: Rows) -> None:
        """Remember what SHOW GLOBAL VARIABLES has shown."""
        values = {
            name.lower(): value for name, value in rows if isinstance(name, bytes)
        }
        # A name from a server must not become part of a statement.
        self.variables = tuple(
            name for name in SYSTEM_VARIABLES if name.encode() in values
        )
        options = values.get(_PROVIDER_OPTIONS.encode())
        found = _SUSPECT_TIMEOUT.search(options) if isinstance(options, bytes) else None
        self.suspect_seconds = float(found[1]) if found else _SUSPECT_SECONDS


class Session:
    """A session that has logged in.

    can_read_in_sync: whether the server has wsrep_sync_wait, known after `begin`.
    """

    def __init__(self, connection: Connection, server: Server) -> None:
        self.can_read_in_sync = True
        self.peer = connection.peer
        self._connection = connection
        self._server = server
        self._reading: asyncio.Task[NodeState | PollFailure] | None = None

    @property
    def reading(self) -> asyncio.Task[NodeState | PollFailure] | None:
        """A `read` that the server has not answered yet."""
        return None if self._reading is None or self._reading.done() else self._reading

    async def begin(self, idle_seconds: int) -> None:
        """Prepare the session, which the server ends after so long without a statement.

        Raises as `read`.
        """
        for galera_settings in _GALERA_SETTINGS:
            statement = _SETTINGS.format(idle_seconds) + galera_settings
            (answer,) = await self._connection.answers(statement)
            if not _is_error(answer, _UNKNOWN_SYSTEM_VARIABLE):
                break
        _rows(answer)
        self.can_read_in_sync = galera_settings != ""

    async def read(self) -> NodeState | PollFailure:
        """Read the node's state once. Raises whatever the driver raises.

        If this call is cancelled, the server keeps the statements: `reading` waits for the answer.
        """
        self._reading = reading = asyncio.create_task(self._read())
        # For a caller that was cancelled, nobody else retrieves the exception.
        reading.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait([reading])
        if reading.cancelled():
            # By `close`. The caller was not.
            raise ConnectionAbortedError
        return reading.result()

    async def read_in_sync(self) -> bool:
        """Wait until the node has applied all that its group had ordered.

        Return False if the server refuses the wait, at the latest after its
        repl.causal_read_timeout, 30 s by default. Raises whatever the driver raises.
        """
        waiting, answer = await self._connection.answers(*_READ_IN_SYNC)
        _rows(waiting)
        return not isinstance(answer, MySQLError)

    async def quit(self) -> None:
        """Log out, within 0.5 s; close at once if an answer is awaited."""
        if self.reading is not None:
            self.close()
        else:
            await self._connection.quit()

    def close(self) -> None:
        """Close the connection at once."""
        if self._reading is not None:
            self._reading.cancel()
        self._connection.close()

    async def _read(self) -> NodeState | PollFailure:
        names = self._server.variables
        if not names:
            status, variables = await self._connection.answers(
                _SHOW_STATUS, _SHOW_VARIABLES
            )
            return self._shown(status, variables)
        select = f"SELECT {', '.join(f'@@global.{name}' for name in names)}"
        status, selected = await self._connection.answers(_SHOW_STATUS, select)
        if isinstance(selected, MySQLError):
            (variables,) = await self._connection.answers(_SHOW_VARIABLES)
            return self._shown(status, variables)
        (values,) = selected
        return parse_node_state((*_rows(status), *zip(names, values, strict=True)))

    def _shown(
        self, status: Rows | MySQLError, variables: Rows | MySQLError
    ) -> NodeState | PollFailure:
        rows = _rows(variables)
        self._server.show(rows)
        return parse_node_state((*_rows(status), *rows))


def _is_error(answer: Rows | MySQLError, *numbers: int) -> bool:
    return isinstance(answer, MySQLError) and error_number(answer) in numbers


def _rows(answer: Rows | MySQLError) -> Rows:
    if isinstance(answer, MySQLError):
        raise answer
    return answer
