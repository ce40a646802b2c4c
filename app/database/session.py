"""What is asked of a node over one connection: two statements an observation, at the lowest price that loses no reason.

A node that is not ready answers a SHOW on every server. MariaDB refuses BEGIN, COMMIT and prepared statements there,
Percona XtraDB Cluster even a SELECT without a table (error 1047). An account with USAGE only may run all of these.

The status variables come from a SHOW STATUS: nothing cheaper has them. For the system variables a SHOW costs the server
about ten times what a `SELECT @@global.a, @@global.b, ...` costs, but a SELECT fails as a whole where the server lacks
one of them (error 1193). So:

- The first reading on a connection is a SHOW, which tells which variables this server has.
- Each further reading is a SELECT of those. Where the server refuses it, the same reading falls back to the SHOW.
- After a refusal the next `SHOWS_AFTER_REFUSAL` readings are SHOWs, and each of them tells again which variables the
  server has. Then the SELECT gets its next chance.
"""

from typing import Protocol

from pymysql.err import MySQLError

from app.database.faults import error_number, is_error_of_server
from app.node_state import STATUS_VARIABLES, SYSTEM_VARIABLES, Cell

SHOWS_AFTER_REFUSAL = 20
"""How many readings the SELECT is left out for once the server has refused it: 5 s at the default interval."""

# SHOW itself may wait for the applier (up to 30 s) or fail outside a primary component when the server's
# wsrep_sync_wait has the bit for it. It is sent as a statement of its own: aiomysql's init_command is followed by a
# COMMIT, which every node that is not ready refuses.
_NO_SYNC_WAIT = "SET SESSION wsrep_sync_wait=0"
_UNKNOWN_SYSTEM_VARIABLE = 1193  # the server has no wsrep at all; the SHOWs will tell
# In session scope: the global one takes a lock over all threads on MySQL 8 and PXC.
_SHOW_STATUS = f"SHOW STATUS WHERE Variable_name IN ({', '.join(map(repr, STATUS_VARIABLES))})"
_SHOW_VARIABLES = f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({', '.join(map(repr, SYSTEM_VARIABLES))})"

Rows = list[tuple[Cell, ...]]


class RunsStatements(Protocol):
    """What is asked through: a connection to the server."""

    async def rows(self, statement: str) -> Rows:
        """Run a statement and return its rows; raise `MySQLError` with the server's error number."""


class Session:
    """The statements over one connection. Every method raises what the connection raises."""

    def __init__(self, connection: RunsStatements) -> None:
        self._connection = connection
        self._known: tuple[str, ...] = ()
        self._shows_left = 0

    async def begin(self) -> None:
        """Prepare the session; once, before the first reading."""
        try:
            await self._connection.rows(_NO_SYNC_WAIT)
        except MySQLError as fault:
            if error_number(fault) != _UNKNOWN_SYSTEM_VARIABLE:
                raise

    async def read(self) -> Rows:
        """Return rows of name and value, as `parse_node_state` takes them."""
        return await self._connection.rows(_SHOW_STATUS) + await self._system_variables()

    async def _system_variables(self) -> Rows:
        if self._known and not self._shows_left:
            selected = await self._select()
            if selected is not None:
                return selected
            self._shows_left = SHOWS_AFTER_REFUSAL
        else:
            self._shows_left = max(0, self._shows_left - 1)
        return await self._show()

    async def _show(self) -> Rows:
        rows = await self._connection.rows(_SHOW_VARIABLES)
        sent = {row[0].lower() for row in rows if row and isinstance(row[0], bytes)}
        # Only what was asked for: names from a server do not go into our statements.
        self._known = tuple(name for name in SYSTEM_VARIABLES if name.encode() in sent)
        return rows

    async def _select(self) -> Rows | None:
        """Return the same rows by way of the SELECT; None where the server refuses it."""
        try:
            rows = await self._connection.rows(f"SELECT {', '.join(f'@@global.{name}' for name in self._known)}")
        except MySQLError as fault:
            if not is_error_of_server(fault):
                raise
            return None
        # Nothing comes, for one, where the server's sql_select_limit is 0.
        if len(rows) != 1 or len(rows[0]) != len(self._known):
            return None
        return list(zip(self._known, rows[0], strict=True))
