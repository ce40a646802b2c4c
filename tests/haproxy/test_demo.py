"""The demo: its tour, and its end."""

import sys

import pytest

from harness.process import output_of

pytestmark = pytest.mark.long

TOUR_SECONDS = 180


def test_the_tour_sees_every_step() -> None:
    command = (sys.executable, "-m", "harness.demo", "--once")
    assert "all 8 steps seen" in output_of(*command, seconds=TOUR_SECONDS)
