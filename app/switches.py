"""What is switched by hand: the disabled file, and the end of the service."""

import os
import time
from functools import lru_cache
from pathlib import Path

from app.verdict import Switches

DISABLED_FILE = "/var/tmp/clustercheck.disabled"  # noqa: S108 (the script's own place)


class ManualSwitches:
    """The switches as they stand whenever asked. disabled_file is an absolute path."""

    def __init__(self, disabled_file: str) -> None:
        self.shutting_down = False
        self._disabled_file = disabled_file

    def __call__(self) -> Switches:
        """Look at the switches now. Never raises."""
        # Not access, which is cheaper, but says only "no": a directory that may not be searched, a loop of links or a
        # network filesystem that fails would all be no file, and the drained node would get traffic.
        try:
            found = os.stat(self._disabled_file)
        # Where a part of the path is no directory, there cannot be such a file either.
        except (FileNotFoundError, NotADirectoryError):
            return _SHUTTING_DOWN if self.shutting_down else _NONE
        except (OSError, ValueError) as fault:
            words = getattr(fault, "strerror", None) or str(fault)
            seen = f"{self._disabled_file}: {words}; a file that cannot be looked for counts as there"
        else:
            seen = _made(self._disabled_file, found.st_uid, found.st_mtime)
        return Switches(seen, self.shutting_down)

    def disabled_at(self) -> float | None:
        """Return when the disabled file was made or last touched, as Unix time in seconds; None where there is none."""
        try:
            return os.stat(self._disabled_file).st_mtime
        except OSError:
            return None


_NONE, _SHUTTING_DOWN = Switches(), Switches(shutting_down=True)


@lru_cache(maxsize=4)
def _made(path: str, owner: int, modified_at: float) -> str:
    return f"{path} exists, made by {_name_of(owner)} {_time_of(modified_at)} (clustercheckd undrain removes it)"


def _name_of(user: int) -> str:
    # Not by way of the C library, which may ask a directory server: this is for /etc/passwd, and all probes wait.
    try:
        for line in Path("/etc/passwd").read_text(errors="replace").splitlines():
            name, _, number, *_ = (*line.split(":"), "", "", "")
            if number == str(user):
                return name
    except OSError:
        pass
    return f"user {user}"


def _time_of(seconds: float) -> str:
    try:
        return time.strftime("at %Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):  # touch(1) can set any time
        return "at an unknown time"
