"""The unit of the packages, as systemd shows it."""

import subprocess
from pathlib import Path

from app.settings.database import SYSTEMD

_SHOW_PROCESS = ("systemctl", "show", "--property=MainPID", "--value", "clustercheckd")
_SECONDS = 2.0


def main_process() -> Path | None:
    """Return the directory in /proc of its main process, or None if it has none."""
    try:
        shown = subprocess.run(  # noqa: S603 (a constant)
            _SHOW_PROCESS, capture_output=True, timeout=_SECONDS, check=False
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Path("/proc") / shown.decode() if shown.strip(b"0") else None


def is_stopped() -> bool:
    """Return whether this host has systemd, and the unit has no process."""
    return SYSTEMD.is_dir() and main_process() is None
