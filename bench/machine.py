"""What is measured on: CPU time and memory of processes, cores to pin them to, and the machine in words."""

import os
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness.process import Process

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_CPUCLOCK_SCHED = 2
_UTIME = 11  # the fields of /proc/PID/stat after the name and state, see proc(5)


def cpu_seconds(process: Process) -> float:
    """CPU time of a process, ended threads included, to the nanosecond (clock_getcpuclockid(3))."""
    return time.clock_gettime((~process.pid << 3) | _CPUCLOCK_SCHED)


def cpu_seconds_of_children(process: Process) -> float:
    """CPU time of the children that a process has waited for, and of theirs (cutime and cstime of proc(5))."""
    fields = _stat(process)
    return (int(fields[_UTIME + 2]) + int(fields[_UTIME + 3])) / _TICKS_PER_SECOND


def has_children(process: Process) -> bool:
    """Whether a process has children that it has not waited for."""
    return bool(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())


def resident_bytes(process: Process) -> int:
    """Memory of a process that is in RAM (RSS)."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    message = f"{process.name} has no memory"
    raise RuntimeError(message)


def cores() -> list[int]:
    """Give the cores this process may use."""
    return sorted(os.sched_getaffinity(0))


@contextmanager
def on_cores_of_their_own(servers: Sequence[Process]) -> Iterator[None]:
    """Keep the servers on one core and this process, the load generator, on another, where there are two."""
    allowed = cores()
    with ExitStack() as exits:
        if len(allowed) > 1:
            for pid, core in [(0, allowed[1]), *((server.pid, allowed[0]) for server in servers)]:
                os.sched_setaffinity(pid, {core})
                exits.callback(os.sched_setaffinity, pid, set(allowed))
        yield


def description() -> str:
    """Say which machine this is: CPU, cores, kernel; and how busy it was."""
    models = [line.partition(":")[2].strip() for line in _cpuinfo() if line.startswith("model name")]
    model = models[0] if models else platform.machine()
    return f"{model}, {len(cores())} cores, Linux {platform.release()}, load average {os.getloadavg()[2]:.1f}"


def _cpuinfo() -> list[str]:
    return Path("/proc/cpuinfo").read_text().splitlines()


def _stat(process: Process) -> list[str]:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
