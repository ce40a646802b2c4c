"""What an operator switches by hand: the disabled file, and the shutdown of the service."""

import os
import stat
import time

from app.text import one_line
from app.verdict.rules import Switches

DISABLED_FILE = "/var/tmp/clustercheck.disabled"  # noqa: S108 (the script's default path)

_REASON_BYTES = 120
_LAST_DATE = 253402300799.0  # the end of the year 9999


def switches_now(path: str, *, shutting_down: bool = False) -> Switches:
    """Return the switches. path: of the disabled file, absolute. Never raises."""
    # To os.access, a directory without search permission, a symlink loop or a failing network
    # filesystem looks like a missing file, and the drained node would get traffic.
    try:
        status = os.stat(path)
        # Anybody can make a link to a file of root.
        owner = os.lstat(path).st_uid
    # NotADirectoryError: a part of the path is no directory, so the file cannot exist either.
    except (FileNotFoundError, NotADirectoryError):
        return Switches(None, shutting_down)
    # ValueError: the path cannot be encoded as paths are here.
    except (OSError, ValueError) as fault:
        file = f"{fault}; a disabled file that cannot be checked counts as present"
        return Switches(file, shutting_down)
    # touch(1) can set any time, and not every time can be written as a date.
    modified_at = min(max(status.st_mtime, 0.0), _LAST_DATE)
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(modified_at))
    # The names of others may be in a directory that does not answer.
    name = f"user id {owner}" if owner else "root"
    file = f"{path} exists, changed at {at}, owner {name}"
    if reason := _first_line(path):
        file += f': "{reason}"'
    file += " (clustercheckd undrain removes it)"
    return Switches(file, shutting_down, modified_at)


def _opener(path: str, flags: int) -> int:
    # Any user may make it: a pipe must not block, and a link could lead to a password.
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def _first_line(path: str) -> str:
    """Return the beginning of the first line; empty if it cannot be read."""
    try:
        with open(path, "rb", opener=_opener) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
                return ""
            line = file.readline(_REASON_BYTES)
    except OSError:
        return ""
    return one_line(line.decode(errors="backslashreplace").strip())
