"""A share of a core for one process, as a container's limit of CPU gives it. Needs root."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean

from harness.waiting import wait_for

_CGROUPS = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000

_TRIES, _IDLE_SECONDS = 4, 0.5
_WORK = (sys.executable, "-I", "-c", "import asyncio, ssl, json, http.client")
_WORK_SECONDS = 0.095
"""The CPU time of this work on the machine on which the shares of tests were chosen."""


@contextmanager
def quota(pid: int, share: float) -> Iterator[None]:
    """Give a process at most this share of a core while the block runs. Raises OSError."""
    is_v2 = (_CGROUPS / "cgroup.controllers").exists()
    root = _CGROUPS if is_v2 else _CGROUPS / "cpu"
    if is_v2:
        (root / "cgroup.subtree_control").write_text("+cpu")
    group = root / f"clustercheckd-{os.getpid()}-{time.monotonic_ns()}"
    group.mkdir()
    allowed_us = round(share * _PERIOD_US)
    try:
        if is_v2:
            (group / "cpu.max").write_text(f"{allowed_us} {_PERIOD_US}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(allowed_us))
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        # A group with processes cannot be removed. One of them may have ended.
        for member in (group / "cgroup.procs").read_text().split():
            (root / "cgroup.procs").write_text(member)
        wait_for("the control group to be empty", lambda: _is_removed(group))


def share_like(share: float) -> float:
    """Return the share of a core that is worth as much here and now as this one was there.

    It is measured with the share given, after a pause: on a virtual machine whose neighbours take
    its caches, a process that runs a quarter of the time needs three times the CPU time for the
    same work, for some minutes. It takes 4 s on a quick machine.
    """
    seconds = mean(_work_seconds(share) for _ in range(_TRIES))
    return max(share, share * seconds * share / _WORK_SECONDS)


def _work_seconds(share: float) -> float:
    time.sleep(_IDLE_SECONDS)
    command = ("sh", "-c", 'read _; exec "$@"', "sh", *_WORK)
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as working,
        quota(working.pid, share),
    ):
        began = time.monotonic()
        working.communicate("\n")
        return time.monotonic() - began


def _is_removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:
        return False
    return True
