"""The commands beside the service: ask once, watch, drain."""

import asyncio
import dataclasses
import json
import os
import shutil
import sys
import time
from pathlib import Path

import uvloop

from app.database.observer import Observer, observe_once
from app.http.probe import status_of
from app.node_state import NodeState, Unobserved
from app.settings import Settings
from app.switches import ManualSwitches
from app.verdict import Verdict, decide

AVAILABLE, NOT_AVAILABLE = 0, 1
"""Exit codes of `check`; of `drain` and `undrain`, 1 means that the file could not be made or removed."""

_ROW_SECONDS = 1.0
_ROWS_WITHOUT_TERMINAL = 20
_HEADER = ("time", "verdict", "reason", "state", "size", "index", "recvq", "flow")
_ROW = "{:<8}  {:<7}  {:<21}  {:<24}  {:>4}  {:>5}  {:>6}  {:<5}"
_GREEN, _RED, _PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[0m"


def check(settings: Settings, *, as_json: bool) -> int:
    """Observe the node once, print the verdict, give the exit code."""
    # Unlike asyncio's own loop, uvloop leaves no thread of a name resolver behind that the exit would wait for.
    seen = observe_once(settings.database(), settings.clustercheck_deadline, uvloop.new_event_loop)
    verdict = _verdict(settings, seen)
    if as_json:
        document = {
            "available": verdict.available,
            "reason": verdict.reason,
            "detail": verdict.detail,
            "node": dataclasses.asdict(seen) if isinstance(seen, NodeState) else None,
        }
        print(json.dumps(document))
    else:
        print(f"{'available' if verdict.available else 'NOT available'} {verdict.reason}: {verdict.detail}")
    return AVAILABLE if verdict.available else NOT_AVAILABLE


def watch(settings: Settings) -> int:
    """Print a row a second until Ctrl-C."""
    try:
        asyncio.run(_watch(settings))
    except (KeyboardInterrupt, BrokenPipeError):
        # Nothing more can be written to a pipe that is gone, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return AVAILABLE


def drain(settings: Settings) -> int:
    """Make the disabled file, and say what that does."""
    path = Path(settings.clustercheck_disabled_file)
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        if not path.exists():
            print(f"clustercheckd: CLUSTERCHECK_DISABLED_FILE: {path} is a link to nowhere", file=sys.stderr)
            return NOT_AVAILABLE
        print(f"{path} exists already: this node takes no traffic")
    except OSError as fault:
        print(f"clustercheckd: CLUSTERCHECK_DISABLED_FILE: {path}: {fault.strerror}", file=sys.stderr)
        return NOT_AVAILABLE
    else:
        print(f"made {path}: this node takes no new traffic (clustercheckd undrain ends that)")
    return AVAILABLE


def undrain(settings: Settings) -> int:
    """Remove the disabled file, and say what that does."""
    path = Path(settings.clustercheck_disabled_file)
    try:
        path.unlink()
    except FileNotFoundError:
        print(f"there is no {path}: this node is not drained")
    except OSError as fault:
        print(f"clustercheckd: CLUSTERCHECK_DISABLED_FILE: {path}: {fault.strerror}", file=sys.stderr)
        return NOT_AVAILABLE
    else:
        print(f"removed {path}: this node takes traffic again as its state allows")
    return AVAILABLE


async def _watch(settings: Settings) -> None:
    observer = Observer(settings.database(), settings.clustercheck_deadline)
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    printed = 0
    try:
        while True:
            began = time.monotonic()
            seen = await observer.observe()
            # The header once a screen, as one scrolls.
            rows = shutil.get_terminal_size((80, _ROWS_WITHOUT_TERMINAL)).lines - 1
            if printed % max(1, rows - 1) == 0:
                print(_ROW.format(*_HEADER).rstrip())
            verdict = _verdict(settings, seen)
            status = status_of(verdict, int(settings.clustercheck_drain_status))
            print(_row(seen, verdict, status, coloured=coloured), flush=True)
            printed += 1
            await asyncio.sleep(max(0.0, began + _ROW_SECONDS - time.monotonic()))
    finally:
        await observer.close()


def _verdict(settings: Settings, seen: NodeState | Unobserved) -> Verdict:
    return decide(seen, 0.0, settings.policy(), ManualSwitches(settings.clustercheck_disabled_file)())


def _row(seen: NodeState | Unobserved, verdict: Verdict, status: int, *, coloured: bool) -> str:
    node = seen if isinstance(seen, NodeState) else NodeState()
    cells = (
        time.strftime("%H:%M:%S"),
        str(status),
        verdict.reason.value,
        node.wsrep_local_state_comment or "-",
        _number(node.wsrep_cluster_size),
        _number(node.wsrep_local_index),
        _number(node.wsrep_local_recv_queue),
        (node.wsrep_flow_control or "-").lower(),
    )
    row = _ROW.format(*cells).rstrip()
    if not coloured:
        return row
    return f"{_GREEN if verdict.available else _RED}{row}{_PLAIN}"


def _number(value: int | None) -> str:
    return "-" if value is None or value < 0 else str(value)
