"""The statements of a poll: the two cheapest ones that read every variable the verdict needs.

A node that is not ready answers SHOW, whatever the server. MariaDB refuses BEGIN, COMMIT and prepared statements on
such a node; Percona XtraDB Cluster refuses even a SELECT without a table (error 1047). An account with USAGE may run
all of them.

The status variables come from SHOW STATUS: nothing cheaper has them. For the system variables, SHOW costs the server
about ten times as much as `SELECT @@global.a, @@global.b, ...`. But the whole SELECT fails if the server lacks one of
the variables (error 1193). Therefore:

- The first poll on a connection uses SHOW, which shows the variables that this server has.
- Each further poll uses SELECT with those variables. If the server refuses it, the same poll falls back to SHOW.
- After a refusal, the next `SHOWS_AFTER_REFUSAL` polls use SHOW, and update the list of variables. The poll after those
  tries SELECT again.
"""

from typing import Protocol

from pymysql.err import MySQLError

from app.database.faults import error_number, is_error_of_server
from app.node_state import STATUS_VARIABLES, SYSTEM_VARIABLES, Rows

SHOWS_AFTER_REFUSAL = 20
"""How many polls use SHOW after the server refused the SELECT: 5 s at the default interval."""

# If the server's wsrep_sync_wait includes SHOW, a SHOW may wait up to 30 s for the applier, or fail outside a primary
# component. aiomysql's init_command is no alternative: it also sends COMMIT, which a node that is not ready refuses.
_NO_SYNC_WAIT = "SET SESSION wsrep_sync_wait=0"
_UNKNOWN_SYSTEM_VARIABLE = 1193  # the server has no wsrep at all, which the SHOWs will show
# In session scope: in global scope, MySQL 8 and PXC lock the list of all threads.
_SHOW_STATUS = f"SHOW STATUS WHERE Variable_name IN ({', '.join(map(repr, STATUS_VARIABLES))})"
_SHOW_VARIABLES = f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({', '.join(map(repr, SYSTEM_VARIABLES))})"


class RunsStatements(Protocol):
    """A connection to the server."""

    async def send(self, *statements: str) -> None:
        """Send statements without waiting for their answers."""

    async def next_rows(self) -> Rows:
        """Return the rows of the next statement sent. Raises `MySQLError` with the server's error number."""

    async def rows(self, statement: str) -> Rows:
        """Send a statement and return its rows. Raises as `next_rows`."""


class Session:
    """Runs the statements over one connection. Every method raises what the connection raises."""

    def __init__(self, connection: RunsStatements) -> None:
        self._connection = connection
        self._known: tuple[str, ...] = ()
        self._select = ""
        self._shows_left = 0

    async def begin(self) -> None:
        """Prepare the session. Call this once, before the first `read`."""
        try:
            await self._connection.rows(_NO_SYNC_WAIT)
        except MySQLError as fault:
            if error_number(fault) != _UNKNOWN_SYSTEM_VARIABLE:
                raise

    async def read(self) -> Rows:
        """Return rows of name and value for `parse_node_state`."""
        if not self._known or self._shows_left:
            self._shows_left = max(0, self._shows_left - 1)
            return await self._connection.rows(_SHOW_STATUS) + await self._show()
        # Both at once: each statement that waits for the answer to the one before wakes both processes once more.
        await self._connection.send(_SHOW_STATUS, self._select)
        status = await self._connection.next_rows()
        selected = await self._selected()
        if selected is None:
            self._shows_left = SHOWS_AFTER_REFUSAL
            selected = await self._show()
        return status + selected

    async def _show(self) -> Rows:
        rows = await self._connection.rows(_SHOW_VARIABLES)
        sent = {row[0].lower() for row in rows if row and isinstance(row[0], bytes)}
        # Use only names that were asked for: a name from a server must not become part of a statement.
        self._known = tuple(name for name in SYSTEM_VARIABLES if name.encode() in sent)
        self._select = f"SELECT {', '.join(f'@@global.{name}' for name in self._known)}"
        return rows

    async def _selected(self) -> Rows | None:
        """Return what the SELECT selected, as rows of name and value; None if the server refuses it."""
        try:
            rows = await self._connection.next_rows()
        except MySQLError as fault:
            if not is_error_of_server(fault):
                raise
            return None
        # For example, there is no row if the server's sql_select_limit is 0.
        if len(rows) != 1 or len(rows[0]) != len(self._known):
            return None
        return tuple(zip(self._known, rows[0], strict=True))
