"""The demo: its tour, and its end."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.service import get
from harness.waiting import wait_for

pytestmark = pytest.mark.long

START_SECONDS = 120
TOUR_SECONDS = 180
DEMO = (sys.executable, "-m", "harness.demo")


def test_the_tour_sees_every_step() -> None:
    tour = subprocess.run(
        (*DEMO, "--once"), capture_output=True, text=True, check=False, timeout=TOUR_SECONDS
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
    assert tour.stdout.count("100 clients at once") == 2


def test_prometheus_is_one_command_away(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as output:
        demo = subprocess.Popen((*DEMO, "--prometheus"), stdout=output, stderr=subprocess.STDOUT)
        try:
            link = r"  alerts      http://127\.0\.0\.1:(\d+)/alerts"
            port = int(
                wait_for(
                    "the link", lambda: re.search(link, log.read_text()), seconds=START_SECONDS
                )[1]
            )
            wait_for(
                "it to have scraped all",
                lambda: '"3"' in get(port, "/api/v1/query?query=sum(clustercheckd_available)").body,
            )
        finally:
            demo.send_signal(signal.SIGINT)
            assert demo.wait(60) == 0
    # Nothing is left of it.
    (directory,) = re.findall(r"installing a MariaDB server in (\S+)", log.read_text())
    assert not Path(directory).exists()
