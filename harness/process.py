"""Child processes that never outlive this one."""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from harness.waiting import NotInTimeError, wait_for

_CPUCLOCK_SCHED = 2
_PR_SET_CHILD_SUBREAPER = 36


class ProcessEndedError(RuntimeError):
    """A process ended unexpectedly. The message has the end of its log."""


class Process:
    """One process in its own session, with its output in a file.

    setpriv(1) makes the kernel kill it if this process dies for any reason. within: a command that
    runs it elsewhere, as `RemoteHost.within`. pid: the process id. session: the id of its session.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        environ: Mapping[str, str] | None = None,
        user: str | None = None,
        pass_fds: Sequence[int] = (),
        within: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.log = log
        as_user = ["--reuid", user, "--regid", user, "--init-groups"] if user else []
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                [*within, "setpriv", "--pdeathsig", "KILL", *as_user, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=with_system_path(os.environ if environ is None else environ),
                start_new_session=True,
                pass_fds=pass_fds,
            )
        self.pid = self.session = self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """The exit status, negative for a signal; None while the process runs."""
        return self._popen.poll()

    @property
    def descriptors(self) -> int:
        """The number of open descriptors."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    @property
    def resident_kib(self) -> int:
        """The resident memory in KiB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    @property
    def cpu_seconds(self) -> float:
        """The CPU time used so far, with that of ended threads (clock_getcpuclockid(3))."""
        return time.clock_gettime((~self.pid << 3) | _CPUCLOCK_SCHED)

    def _ended(self) -> tuple[int] | None:
        return None if self.exit_code is None else (self.exit_code,)

    def check(self) -> bool:
        """Return True. Raises `ProcessEndedError` if the process has ended."""
        if self.exit_code is not None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            raise ProcessEndedError(
                f"{self.name} exited with status {self.exit_code}:\n{tail}"
            )
        return True

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this process only, not to its session."""
        self._popen.send_signal(number)

    def terminate(self) -> None:
        """Send SIGTERM, and do not wait."""
        self.send(signal.SIGTERM)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the process while the block runs.

        As with a hung disk, its sockets stay open and nothing answers.
        """
        self.send(signal.SIGSTOP)
        try:
            yield
        finally:
            self.send(signal.SIGCONT)

    def stop(
        self, number: signal.Signals = signal.SIGTERM, *, seconds: float = 20.0
    ) -> int:
        """Stop the process, with SIGKILL after seconds, and kill the rest of its session.

        Return the exit status.
        """
        self.send(number)
        self.send(signal.SIGCONT)
        with suppress(NotInTimeError):
            wait_for("its end", self._ended, seconds=seconds)
        self.send(signal.SIGKILL)
        (code,) = wait_for("its end", self._ended)
        # A killed mariadbd leaves the rsync of its state transfer behind.
        self.send_to_session("", signal.SIGKILL)
        return code

    def kill(self) -> None:
        """Kill the process and the rest of its session with SIGKILL."""
        self.stop(signal.SIGKILL)

    def send_to_session(self, command: str, number: signal.Signals) -> None:
        """Send a signal to the processes in this one's session that run command.

        An empty command means all of them.
        """
        for stat in Path("/proc").glob("[0-9]*/stat"):
            # A process may end meanwhile.
            with suppress(FileNotFoundError, ProcessLookupError):
                before, _, after = stat.read_text().rpartition(")")
                name, session = before.partition("(")[2], after.split()[3]
                if int(session) == self.session and command in name:
                    os.kill(int(stat.parent.name), number)


class Successor(Process):
    """A process that another one of the same session has started, and left to this one."""

    def __init__(self, pid: int, before: Process) -> None:
        self.name, self.log = before.name, before.log
        self.pid, self.session = pid, before.session
        self._exit_code: int | None = None

    @property
    def exit_code(self) -> int | None:
        """As of any process."""
        if self._exit_code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self._exit_code = os.waitstatus_to_exitcode(status) if ended else None
        return self._exit_code

    def send(self, number: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.exit_code is None:
            os.kill(self.pid, number)


def become_parent_of_orphans() -> None:
    """Have what a child leaves behind become a child of this process, prctl(2)."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def output_of(*command: str | Path, seconds: float = 600, **options: Any) -> str:  # noqa: ANN401 (subprocess.run's)
    """Run a command to its end, and return all that it prints.

    Raises AssertionError with that if the command fails.
    """
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
        **options,
    )
    if done.returncode:
        raise AssertionError(f"{command}: exit status {done.returncode}\n{done.stdout}")
    return str(done.stdout)


def with_system_path(environ: Mapping[str, str]) -> dict[str, str]:
    """Return environ with the sbin directories, where Debian has the servers, added to PATH."""
    return {**environ, "PATH": f"{environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"}


def interrupt_once() -> None:
    """Raise KeyboardInterrupt at the first SIGINT or SIGTERM, and ignore any later one."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)


def let_nothing_interrupt() -> None:
    """Ignore SIGINT and SIGTERM from now on: a second Ctrl-C must not interrupt the clean-up."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (a signal handler's signature)
    let_nothing_interrupt()
    raise KeyboardInterrupt
