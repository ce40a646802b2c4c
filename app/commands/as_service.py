"""Continue as the packages' service: with its environment, files and user."""

import ctypes
import os
import pwd
from pathlib import Path

from app.commands.output import complain
from app.commands.unit import STOPPED
from app.database.connection import prepare_for
from app.settings.settings import TABLE
from app.settings.source import ENV_FILE_VARIABLE

_USER = "clustercheck"
_CLONE_NEWNS = 0x00020000  # setns(2)


def become_service(pid: str) -> None:
    """Become what the service is, as far as that is known, or say what is not as for the service.

    A variable of a setting that this process has takes precedence over the service's. pid: see
    `main_pid`.
    """
    try:
        user = pwd.getpwnam(_USER)
    except KeyError:
        return
    # That user may not be able to read the files of the program.
    prepare_for(None)
    try:
        if os.geteuid() == user.pw_uid:
            return
        os.initgroups(user.pw_name, user.pw_gid)
        if pid == STOPPED:
            complain(
                "clustercheckd.service does not run: what its unit sets does not count here"
            )
        elif pid:
            _take_surroundings(Path("/proc") / pid)
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
    except OSError:
        other = f"not as the service's user {_USER}: run it as root"
        complain(f"this runs as user id {os.geteuid()}, {other}")


def _take_surroundings(process: Path) -> None:
    """Take the environment, groups and mount namespace of a process. Raises OSError."""
    lines = os.fsdecode((process / "environ").read_bytes()).split("\0")
    environ = dict(line.split("=", 1) for line in lines if "=" in line)
    names = {*map(str.upper, TABLE), ENV_FILE_VARIABLE}
    own = {name: value for name, value in os.environ.items() if name.upper() in names}
    status = (process / "status").read_text()
    groups = status.partition("\nGroups:")[2].partition("\n")[0]
    with (process / "ns" / "mnt").open() as space:
        # os.setns came with Python 3.12.
        if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), _CLONE_NEWNS):
            raise OSError(ctypes.get_errno(), "setns")
    os.setgroups([int(group) for group in groups.split()])
    os.environ.clear()
    os.environ.update(environ | own)
