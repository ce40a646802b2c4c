"""`clustercheckd watch`: a row every second, in the manner of myq_status."""

import asyncio
import shutil
import time

from app.commands.check import verdict_of
from app.commands.rows import number, painted, print_until_stopped
from app.commands.standard_streams import print_line
from app.database.poller import Poller
from app.node_state import NodeState, PollFailure
from app.settings import Settings
from app.verdict import Verdict, status_of

_ROW_SECONDS = 1.0
_ROWS_WITHOUT_TERMINAL = 20
_HEADER = ("time", "status", "reason", "state", "size", "index", "recvq", "flow")
_ROW = "{:<8}  {:<6}  {:<21}  {:<24}  {:>4}  {:>5}  {:>6}  {:<5}"


def watch(settings: Settings) -> int:
    """Print a row every second until Ctrl-C or until standard output closes; return the exit status."""
    return print_until_stopped(lambda: asyncio.run(_watch(settings)))


async def _watch(settings: Settings) -> OSError:
    """Print rows until standard output fails; return that failure."""
    poller = Poller(settings.database(), settings.clustercheck_deadline)
    printed = 0
    try:
        while True:
            began = time.monotonic()
            seen = await poller.poll()
            verdict = verdict_of(settings, seen)
            status = status_of(verdict, int(settings.clustercheck_drain_status))
            row = _row(seen, verdict, status)
            # Repeat the header on each screenful.
            rows = shutil.get_terminal_size((80, _ROWS_WITHOUT_TERMINAL)).lines - 1
            if printed % max(1, rows - 1) == 0:
                row = f"{_ROW.format(*_HEADER).rstrip()}\n{row}"
            fault = print_line(row)
            if fault is not None:
                return fault
            printed += 1
            await asyncio.sleep(max(0.0, began + _ROW_SECONDS - time.monotonic()))
    finally:
        await poller.close()


def _row(seen: NodeState | PollFailure, verdict: Verdict, status: int) -> str:
    node = seen if isinstance(seen, NodeState) else NodeState()
    cells = (
        time.strftime("%H:%M:%S"),
        str(status),
        verdict.reason.value,
        node.wsrep_local_state_comment or "-",
        number(node.wsrep_cluster_size),
        number(node.wsrep_local_index),
        number(node.wsrep_local_recv_queue),
        (node.wsrep_flow_control or "-").lower(),
    )
    return painted(_ROW.format(*cells).rstrip(), available=verdict.available)
