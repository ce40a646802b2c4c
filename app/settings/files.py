"""How the files that settings name are read."""

import errno
import os
import stat
from pathlib import Path

# Another file, named by mistake, must not keep health checks waiting.
_MOST_BYTES = 1 << 16


def words_of(fault: OSError) -> str:
    """Say why a file cannot be read."""
    if isinstance(fault, PermissionError):
        return f"{fault.strerror}: the user that runs clustercheckd must be able to read it"
    return str(fault.strerror)


def stamp_of(path: str | None) -> object:
    """Return a value that changes when a file does; None if there is none."""
    if not path:
        return None
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def read_file(path: str) -> str:
    """Return a file's text, decoded as the environment is. Raises OSError."""
    # To open a pipe would block.
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    with Path(path).open("rb") as file:
        text = file.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise OSError(errno.EFBIG, f"larger than {_MOST_BYTES >> 10} KiB")
    return text.decode("utf-8", "surrogateescape")
