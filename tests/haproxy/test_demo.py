"""The demo: its tour, and its end."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.waiting import wait_for

pytestmark = pytest.mark.long

START_SECONDS = 120
TOUR_SECONDS = 180
DEMO = (sys.executable, "-m", "harness.demo")


def test_the_tour_sees_every_step() -> None:
    tour = subprocess.run(
        (*DEMO, "--once"),
        capture_output=True,
        text=True,
        check=False,
        timeout=TOUR_SECONDS,
    )
    assert tour.returncode == 0, tour.stdout + tour.stderr
    for step in (
        "all up",
        "node2 desynced",
        "node2 stalls",
        "node1, the writer, drained",
        "node1 back",
        "node2, the writer now, killed",
        "no fail-back",
        "all 8 steps seen",
    ):
        assert step in tour.stdout


def test_an_interrupt_ends_the_live_view_and_leaves_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as output:
        demo = subprocess.Popen(DEMO, stdout=output, stderr=subprocess.STDOUT)
        try:
            wait_for(
                "the view", lambda: "Ctrl-C" in log.read_text(), seconds=START_SECONDS
            )
        finally:
            demo.send_signal(signal.SIGINT)
            assert demo.wait(60) == 0
    (directory,) = re.findall(r"installing a MariaDB server in (\S+)", log.read_text())
    assert not Path(directory).exists()
