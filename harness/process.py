"""Child processes that end when they are told to, and at the latest when we do."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from harness.waiting import NotInTimeError, wait_for


class ProcessEndedError(RuntimeError):
    """A process that ended when it should have gone on; the message has the end of its log."""


class Process:
    """One process in a session of its own, its output in a file.

    setpriv(1) has the kernel kill it should this process die, whatever the way.
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
    ) -> None:
        self.name = name
        self.log = log
        as_user = ["--reuid", user, "--regid", user, "--init-groups"] if user else []
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *as_user, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=with_system_path(os.environ if environ is None else environ),
                start_new_session=True,
                pass_fds=pass_fds,
            )

    @property
    def pid(self) -> int:
        """The process id, which is its session's too."""
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._popen.poll()

    @property
    def descriptors(self) -> int:
        """How many descriptors it has open."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    @property
    def resident_kib(self) -> int:
        """How much of its memory is resident, in KiB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0])

    @property
    def cpu_seconds(self) -> float:
        """How much CPU time it has used."""
        after = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(after[11]) + int(after[12])) / os.sysconf("SC_CLK_TCK")

    def check(self) -> bool:
        """Raise `ProcessEndedError` if the process has ended; otherwise True."""
        if self.exit_code is not None:
            tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
            message = f"{self.name} ended with exit code {self.exit_code}:\n{tail}"
            raise ProcessEndedError(message)
        return True

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this process alone."""
        self._popen.send_signal(number)

    def terminate(self) -> None:
        """Ask the process to end, and do not wait for it."""
        self.send(signal.SIGTERM)

    def stop(self, number: signal.Signals = signal.SIGTERM, *, seconds: float = 10.0) -> int:
        """End the process, by force after so many seconds, with what it left in its session. Gives the exit code."""
        if self.exit_code is None:
            self.send(number)
            self.send(signal.SIGCONT)
            with contextlib.suppress(NotInTimeError):
                wait_for(f"the end of {self.name}", lambda: self.exit_code is not None, seconds=seconds)
        if self.exit_code is None:
            self.send(signal.SIGKILL)
        code = self._popen.wait()
        self._kill_session()
        return code

    def kill(self) -> None:
        """End the process as kill -9 does, and what it left in its session."""
        self.stop(signal.SIGKILL)

    def of_session(self, command: str = "") -> list[int]:
        """Give the ids of the processes in this one's session, those that run command where one is named."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            # A process may end while it is looked at.
            with contextlib.suppress(OSError):
                before, _, after = stat.read_text().rpartition(")")
                name, session = before.partition("(")[2], after.split()[3]
                if int(session) == self.pid and command in name:
                    found.append(int(stat.parent.name))
        return found

    def _kill_session(self) -> None:
        # A killed mariadbd leaves the rsync of its state transfer behind.
        for pid in self.of_session():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def with_system_path(environ: Mapping[str, str]) -> dict[str, str]:
    """Add to PATH where Debian keeps servers, which its users' own PATH leaves out."""
    return {**environ, "PATH": f"{environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"}


def interrupt_once() -> None:
    """Have the first SIGINT or SIGTERM raise KeyboardInterrupt, and let none disturb what is done then."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)


def let_nothing_interrupt() -> None:
    """Pass over SIGINT and SIGTERM from now on: a second Ctrl-C must not leave half of it behind."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 (a signal handler's signature)
    let_nothing_interrupt()
    raise KeyboardInterrupt
