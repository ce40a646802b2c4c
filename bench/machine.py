"""The CPU time of child processes, the cores to pin processes to, and a description of the machine."""

import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness.process import Process

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_UTIME = 11  # the fields of /proc/PID/stat after the name and state, see proc(5)


def cpu_seconds_of_children(process: Process) -> float:
    """Return the CPU time of the descendants that were waited for (cutime and cstime in proc(5))."""
    fields = _stat(process)
    return (int(fields[_UTIME + 2]) + int(fields[_UTIME + 3])) / _TICKS_PER_SECOND


def has_children(process: Process) -> bool:
    """Return whether a process has children that it has not waited for."""
    return bool(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())


def cores() -> list[int]:
    """Return the numbers of the cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


@contextmanager
def on_cores_of_their_own(servers: Sequence[Process]) -> Iterator[None]:
    """Pin the servers to one core and this process, the load generator, to another, if there are two."""
    allowed = cores()
    with ExitStack() as exits:
        if len(allowed) > 1:
            for pid, core in [(0, allowed[1]), *((server.pid, allowed[0]) for server in servers)]:
                os.sched_setaffinity(pid, {core})
                exits.callback(os.sched_setaffinity, pid, set(allowed))
        yield


def description() -> str:
    """Return the machine's CPU, cores, kernel and load average, as one line."""
    models = [line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith("model name")]
    model = models[0] if models else platform.machine()
    return f"{model}, {len(cores())} cores, Linux {platform.release()}, load average {os.getloadavg()[2]:.1f}"


def _cpuinfo() -> list[str]:
    return Path("/proc/cpuinfo").read_text().splitlines()


def _stat(process: Process) -> list[str]:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
