"""The demo's start and end; its tour is in test_planned_work.py, where it runs beside other long ones."""

import json
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

from harness.waiting import wait_for

START_SECONDS = 120
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
