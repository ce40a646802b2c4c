"""The unit of the packages, as systemd shows it."""

import subprocess

from app.settings.database import SYSTEMD

_SHOW_PROCESS = ("systemctl", "show", "--property=MainPID", "--value", "clustercheckd")
_SECONDS = 2.0

STOPPED = "0"
"""In place of a process id."""


def main_pid() -> str:
    """Return the id of its main process, 0 if it has none; empty if nothing is known.

    Without D-Bus, only root gets an answer.
    """
    if not SYSTEMD.is_dir():
        return ""
    try:
        shown = subprocess.run(  # noqa: S603 (a constant)
            _SHOW_PROCESS, capture_output=True, timeout=_SECONDS, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return shown.decode().strip()


def is_stopped() -> bool:
    """Return whether the unit is known to have no process."""
    return main_pid() == STOPPED
