"""The package compared with the virtual environment: start, memory, and the time of the drop-in `clustercheck`."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from bench.rig import Rig
from bench.rows.start import first_answer
from bench.table import Row, milliseconds
from harness.galera import ACCOUNT, PASSWORD
from harness.service import Service, without_settings

FROZEN = Path(__file__).parents[2] / "build" / "package" / "bin"
"""Where `make package` puts the programs."""

_ROUNDS = 12
_VENV = (sys.executable, "-m", "app")
_VENV_DROP_IN = (sys.executable, "-m", "app.commands.clustercheck")


def rows(rig: Rig) -> list[Row]:
    """Measure, alternating between the sides. The first round does not count, because it may read from disk."""
    package, drop_in = (str(FROZEN / "clustercheckd"),), (str(FROZEN / "clustercheck"),)
    return [
        _row("package: time from exec to the first 200", first_answer, rig, package, _VENV),
        _row("package: `clustercheck` once, the drop-in for the script", _drop_in, rig, drop_in, _VENV_DROP_IN),
        _memory(rig, package),
    ]


def _row(
    what: str,
    measure: Callable[[Rig, Sequence[str]], float],
    rig: Rig,
    package: Sequence[str],
    environment: Sequence[str],
) -> Row:
    pairs = [(measure(rig, package), measure(rig, environment)) for _ in range(_ROUNDS + 1)][1:]
    ours, beside = median(mine for mine, _ in pairs), median(theirs for _, theirs in pairs)
    ratio = median(mine / theirs for mine, theirs in pairs)
    return Row(what, milliseconds(ours), f"virtual environment {milliseconds(beside)}", f"{ratio:.2f}x")


def _drop_in(rig: Rig, command: Sequence[str]) -> float:
    environ = {**without_settings(os.environ), "MYSQL_SOCKET": str(rig.node.socket)}
    begun = time.monotonic()
    subprocess.run([*command, ACCOUNT, PASSWORD], env=environ, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begun


def _memory(rig: Rig, package: Sequence[str]) -> Row:
    ours, beside = _resident_kib(rig, package), _resident_kib(rig, _VENV)
    return Row(
        "package: memory (RSS) after the start, with `cryptography`",
        f"{ours / 1024:.1f} MiB",
        f"virtual environment {beside / 1024:.1f} MiB",
        f"{ours / beside:.2f}x",
    )


def _resident_kib(rig: Rig, command: Sequence[str]) -> int:
    service = Service.of(rig.node, rig.installation.directory, rig.installation.ports.free(), command=command)
    try:
        service.wait_until_up()
        service.wait_for_verdict(200, "synced")
        return service.process.resident_kib
    finally:
        service.process.kill()
