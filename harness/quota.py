"""A share of a core for one process, as a container's limit of CPU gives it. Needs root."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from harness.waiting import wait_for

_CGROUPS = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000

_TRIES, _WORK = 5, 1_000_000
_WORK_SECONDS = 0.045
"""How long this work takes on the machine on which the shares of tests were chosen."""


@cache
def slowness() -> float:
    """Return how many times longer a core of this machine takes than that one; 1 at least."""

    def work() -> float:
        began = time.thread_time()
        sum(number * number for number in range(_WORK))
        return time.thread_time() - began

    return max(1.0, min(work() for _ in range(_TRIES)) / _WORK_SECONDS)


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


def _is_removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:
        return False
    return True
