"""Time from exec to the first 200, compared with the time to import the packages that it uses."""

import subprocess
import sys
import time
from collections.abc import Sequence
from statistics import median

from bench import load
from bench.rig import Rig
from bench.table import Row, milliseconds
from harness.service import Service

GOAL = 1.5

_ROUNDS = 12
_LONGEST_SECONDS = 20.0
_PAUSE_SECONDS = 0.001
_IMPORTS = "import fastapi, uvicorn, aiomysql, pydantic, prometheus_client"


def rows(rig: Rig) -> list[Row]:
    """Measure, alternating between the sides. The first round does not count, because it may read from disk."""
    pairs = [(first_answer(rig), _imports()) for _ in range(_ROUNDS + 1)][1:]
    ours, imports = median(mine for mine, _ in pairs), median(theirs for _, theirs in pairs)
    ratio = median(mine / theirs for mine, theirs in pairs)
    return [
        Row(
            "time from exec to the first 200",
            milliseconds(ours),
            f"`{_IMPORTS}` {milliseconds(imports)}",
            f"{ratio:.2f}x",
            f"<= {GOAL}x",
            ratio <= GOAL,
        ),
    ]


def first_answer(rig: Rig, command: Sequence[str] = (sys.executable, "-m", "app")) -> float:
    """Start clustercheckd, and return the seconds until its first 200."""
    port = rig.installation.ports.free()
    begun = time.monotonic()
    service = Service.of(rig.node, rig.installation.directory, port, command=command)
    try:
        while time.monotonic() - begun < _LONGEST_SECONDS:
            try:
                answer = load.ask(port)
            except OSError:
                service.process.check()
                time.sleep(_PAUSE_SECONDS)
                continue
            if answer.startswith(b"HTTP/1.1 200 "):
                return time.monotonic() - begun
            message = f"the first answer was {answer[:80]!r}"
            raise load.WrongAnswerError(message)
    finally:
        service.process.kill()
    message = f"no answer within {_LONGEST_SECONDS:g} s of the start"
    raise load.WrongAnswerError(message)


def _imports() -> float:
    begun = time.monotonic()
    # With setpriv, because the harness starts every process with it.
    subprocess.run(["setpriv", "--pdeathsig", "KILL", sys.executable, "-c", _IMPORTS], check=True)
    return time.monotonic() - begun
