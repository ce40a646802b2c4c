"""The demo: its tour, and its end."""

import subprocess
import sys

import pytest

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
