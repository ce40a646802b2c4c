"""Percona XtraDB Cluster, of which no real one can be had here.

Rows that others have published, and a mock node.

pxc_rows.tsv has a line for each dump: the reason that its situation calls for, product, version,
situation, and its rows as NAME=VALUE. -NAME is a variable that the situation says the server lacks.
The rows come from public dumps, from Percona's own tests and pages, and, where no dump exists, from
the source of the server and of its provider.
"""

import csv
from pathlib import Path
from typing import NamedTuple

from app.verdict.reason import Reason
from tests.fake_mysql import SYNCED_STATUS, SYNCED_VARIABLES, Peer
from tests.real_rows import NON_PRIMARY

_DUMPS = Path(__file__).with_name("pxc_rows.tsv")

STATUS = {**SYNCED_STATUS, "wsrep_flow_control_status": "OFF"}
# 8.0 has wsrep_on for a session only.
VARIABLES = {
    name: value
    for name, value in SYNCED_VARIABLES.items()
    if name not in ("wsrep_on", "tx_read_only")
} | {
    "super_read_only": "OFF",
    "transaction_read_only": "OFF",
    "offline_mode": "OFF",
    "pxc_maint_mode": "DISABLED",
    "version": "8.4.10-10.1",
}


class Dump(NamedTuple):
    """What one server answered in a situation, and the reason that the situation calls for."""

    reason: Reason
    name: str
    rows: dict[str, str]

    def filled_in(self) -> dict[str, str]:
        """Return the rows of a healthy node, replaced by the dump's."""
        rows = STATUS | VARIABLES | self.rows
        return {name: value for name, value in rows.items() if f"-{name}" not in rows}


def dumps() -> list[Dump]:
    """Return all dumps."""
    found = []
    with _DUMPS.open(newline="") as file:
        for reason, product, version, situation, *cells in csv.reader(
            file, delimiter="\t"
        ):
            rows = dict(cell.partition("=")[::2] for cell in cells)
            found.append(
                Dump(Reason(reason), f"{product} {version}: {situation}", rows)
            )
    return found


class Node:
    """A mock node, as the server's source and the notes of others on PXC 8.4 describe it.

    A `Behaviour`.
    """

    def __init__(self) -> None:
        self._status = dict(STATUS)
        self._variables = dict(VARIABLES)

    def __call__(self, peer: Peer) -> None:
        """Serve one connection."""
        peer.log_in()
        # Outside a primary component, it refuses even a SELECT without a table.
        peer.answer_queries(self._status, self._variables)

    def set_maintenance(self) -> None:
        """SET GLOBAL pxc_maint_mode=MAINTENANCE, as an operator does to drain the node."""
        self._variables["pxc_maint_mode"] = "MAINTENANCE"

    def lose_majority(self) -> None:
        """Get a non-Primary view, which forces maintenance."""
        self._status |= {
            name: NON_PRIMARY[name] for name in STATUS if name in NON_PRIMARY
        }
        self._variables["pxc_maint_mode"] = "MAINTENANCE"

    def find_majority(self) -> None:
        """Get a Primary view, which ends maintenance, also that of an operator."""
        self._status |= STATUS
        self._variables["pxc_maint_mode"] = "DISABLED"
