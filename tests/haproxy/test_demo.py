"""The demo: its start, its end and its tour."""

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from harness.waiting import wait_for

pytestmark = pytest.mark.long

START_SECONDS = 120
TOUR_SECONDS = 180
DEMO = (sys.executable, "-m", "harness.demo")


def children_of(directory: Path) -> list[str]:
    """Give the command lines of processes that use a run's directory."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(directory) in line:
            lines.append(line)
    return lines


def test_a_start_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as output:
        demo = subprocess.Popen(DEMO, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        wait_for("the second node's start", lambda: "starting node2" in log.read_text())
        used = Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text().split()
        (directory,) = {
            Path(word.removeprefix("--datadir=")).parent
            for pid in used
            for word in Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if word.startswith("--datadir=")
        }
        demo.send_signal(signal.SIGINT)
        demo.wait(60)
    assert "stopping and removing everything that was started" in log.read_text()
    assert "Traceback" not in log.read_text()
    assert not directory.exists()
    assert children_of(directory) == []


def test_the_tour_sees_every_step() -> None:
    tour = subprocess.run((*DEMO, "--once"), capture_output=True, text=True, check=False, timeout=TOUR_SECONDS)
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
            link = r"  alerts      (http://127\.0\.0\.1:\d+)/alerts"
            address = wait_for("the link", lambda: re.search(link, log.read_text()), seconds=START_SECONDS)[1]
            query = f"{address}/api/v1/query?query=clustercheckd_available"

            def available() -> list[str]:
                with urllib.request.urlopen(query, timeout=5) as answer:  # noqa: S310 (http, see above)
                    return [series["value"][1] for series in json.load(answer)["data"]["result"]]

            wait_for("it to have scraped all", lambda: available() == ["1", "1", "1"])
        finally:
            demo.send_signal(signal.SIGINT)
            assert demo.wait(60) == 0
