"""The switches that an operator controls by hand: the disabled file, and the shutdown of the
service.
"""

import os
import stat
import time
from functools import lru_cache

from app.verdict.rules import Switches

DISABLED_FILE = "/var/tmp/clustercheck.disabled"  # noqa: S108 (the script's default path)

_REASON_BYTES = 120
_PRINTABLE = "".join(map(chr, range(ord(" "), ord("~") + 1)))
_LAST_DATE = 253402300799.0  # the end of the year 9999


class ManualSwitches:
    """Reads the switches when called. disabled_file is an absolute path."""

    def __init__(self, disabled_file: str) -> None:
        self.shutting_down = False
        self._disabled_file = disabled_file

    def __call__(self) -> Switches:
        """Return the switches as they are now. Never raises."""
        # os.access is cheaper but returns only False: a directory without search permission, a
        # symlink loop or a failing network filesystem would look like a missing file, and the
        # drained node would get traffic.
        try:
            found = os.stat(self._disabled_file)
        # NotADirectoryError: a part of the path is not a directory, so the file cannot exist
        # either.
        except (FileNotFoundError, NotADirectoryError):
            return Switches(shutting_down=self.shutting_down)
        except (OSError, ValueError) as fault:
            words = getattr(fault, "strerror", None) or str(fault)
            seen = (
                f"{self._disabled_file}: {words}; a file that cannot be checked counts as present"
            )
            return Switches(seen, self.shutting_down)
        # touch(1) can set any time, and not every time can be written as a date.
        modified_at = min(max(found.st_mtime, 0.0), _LAST_DATE)
        seen = _made(self._disabled_file, modified_at, found.st_size)
        return Switches(seen, self.shutting_down, modified_at)


@lru_cache(maxsize=4)
def _made(path: str, modified_at: float, size: int) -> str:
    """Describe the file. The cache spares a health check from reading it again."""
    words = f': "{_first_line(path)}"' if size else ""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(modified_at))
    return f"{path} exists, made at {at}{words} (clustercheckd undrain removes it)"


def _first_line(path: str) -> str:
    """Return the beginning of the first line as printable ASCII; empty if it cannot be read."""
    try:
        # Any user may make a file in /var/tmp: a pipe must not block, and a link could lead to a
        # password.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW), "rb") as file:  # noqa: PTH123 (a descriptor)
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
                return ""
            line = file.read(_REASON_BYTES).partition(b"\n")[0]
    except OSError:
        return ""
    text = "".join(chr(byte) if chr(byte) in _PRINTABLE else "?" for byte in line)
    return text.strip().replace('"', "'")
