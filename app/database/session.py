"""One session on the server, and the statements of a poll.

They are the two cheapest ones that read what the verdict needs.

A node that is not ready answers SHOW and SET, whatever the server. MariaDB refuses BEGIN, COMMIT
and prepared statements on such a node; Percona XtraDB Cluster refuses even a SELECT without a table
(error 1047). An account with USAGE may run all statements here.

The status variables come from SHOW STATUS: nothing cheaper has them. For the system variables, SHOW
costs the server about ten times as much as `SELECT @@global.a, @@global.b, ...`. But the whole
SELECT fails if the server lacks one of the variables (error 1193). Therefore a session reads them
with SHOW until it knows which of them this server has. If the server refuses the SELECT, the same
poll uses SHOW again.
"""

import asyncio

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

_UNKNOWN_SYSTEM_VARIABLE = 1193  # the server has no wsrep at all, which the poll will show
# A session that nobody uses any more, because the network was cut or this process was killed, must
# not count towards the account's limit for the server's usual eight hours. sql_select_limit=0 would
# hide every row, and DEFAULT would be the server's own value.
_SESSION_SETTINGS = "SET SESSION wait_timeout={}, sql_select_limit=18446744073709551615"
# If the server's wsrep_sync_wait includes SHOW, a SHOW may wait up to 30 s for the applier, or fail
# outside a primary component. aiomysql's init_command is no alternative: it also sends COMMIT,
# which a node that is not ready refuses.
_NO_SYNC_WAIT = "SET SESSION wsrep_sync_wait=0"
# All that may wait: MariaDB's bit for SHOW is 8, that of Percona XtraDB Cluster is 1.
_SYNC_WAIT = "SET SESSION wsrep_sync_wait=15"
_READ_IN_SYNC = "SHOW STATUS LIKE 'wsrep_local_state'"
_NOT_IN_SYNC = (1205, 1047)  # ER_LOCK_WAIT_TIMEOUT, ER_UNKNOWN_COM_ERROR: the node is not ready
# In session scope: in global scope, MySQL 8 and PXC lock the list of all threads.
# Python writes a tuple of names as SQL writes a list of strings.
_SHOW_STATUS = f"SHOW STATUS WHERE Variable_name IN {STATUS_VARIABLES}"
_SHOW_VARIABLES = f"SHOW GLOBAL VARIABLES WHERE Variable_name IN {SYSTEM_VARIABLES}"


class Session:
    """A session that has logged in.

    can_read_in_sync: whether the server has wsrep_sync_wait, known after `begin`.
    """

    def __init__(self, connection: Connection) -> None:
        self.can_read_in_sync = True
        self._connection = connection
        # The system variables that this server has; empty until it has shown them.
        self._known: tuple[str, ...] = ()
        self._reading: asyncio.Task[NodeState | PollFailure] | None = None

    @property
    def reading(self) -> asyncio.Task[NodeState | PollFailure] | None:
        """A `read` that the server has not answered yet."""
        return None if self._reading is None or self._reading.done() else self._reading

    async def begin(self, idle_seconds: int) -> None:
        """Prepare the session.

        The server ends it if no statement arrives for so long. Raises as `read`.
        """
        # Not together: a server whose init_connect fails answers the first statement with the
        # error, and closes.
        for statement in (_SESSION_SETTINGS.format(idle_seconds), _NO_SYNC_WAIT):
            (answer,) = await self._connection.answers(statement)
            if isinstance(answer, MySQLError):
                if error_number(answer) != _UNKNOWN_SYSTEM_VARIABLE:
                    raise answer
                self.can_read_in_sync = False

    async def read(self) -> NodeState | PollFailure:
        """Read the node's state once. Raises whatever the driver raises.

        If this call is cancelled, the statements are not: the server would keep them, and the
        caller would send the same ones over another session. `reading` then waits for their answer.
        """
        self._reading = reading = asyncio.create_task(self._read())
        # For a caller that was cancelled, nobody else retrieves the exception.
        reading.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait([reading])
        return reading.result()

    async def read_in_sync(self) -> bool:
        """Wait until the node has applied all that its group had ordered.

        Return False if the server refuses the wait.

        The server itself gives up after repl.causal_read_timeout, 30 s by default. Raises whatever
        the driver raises.
        """
        waiting, state = await self._connection.answers(_SYNC_WAIT, _READ_IN_SYNC)
        _rows(waiting)
        if isinstance(state, MySQLError) and error_number(state) in _NOT_IN_SYNC:
            return False
        _rows(state)
        return True

    async def quit(self) -> None:
        """Log out, within 0.5 s. If the server has not answered yet, close at once."""
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
        if not self._known:
            status, variables = await self._connection.answers(_SHOW_STATUS, _SHOW_VARIABLES)
            return self._shown(status, variables)
        select = f"SELECT {', '.join(f'@@global.{name}' for name in self._known)}"
        status, selected = await self._connection.answers(_SHOW_STATUS, select)
        if isinstance(selected, MySQLError):
            (variables,) = await self._connection.answers(_SHOW_VARIABLES)
            return self._shown(status, variables)
        (values,) = selected
        return parse_node_state((*_rows(status), *zip(self._known, values, strict=True)))

    def _shown(
        self, status: Rows | MySQLError, variables: Rows | MySQLError
    ) -> NodeState | PollFailure:
        """Parse what both SHOWs returned, and remember which system variables this server has."""
        rows = _rows(variables)
        sent = {row[0].lower() for row in rows if row and isinstance(row[0], bytes)}
        # Use only names that were asked for: a name from a server must not become part of a
        # statement.
        self._known = tuple(name for name in SYSTEM_VARIABLES if name.encode() in sent)
        return parse_node_state((*_rows(status), *rows))


def _rows(answer: Rows | MySQLError) -> Rows:
    if isinstance(answer, MySQLError):
        raise answer
    return answer
