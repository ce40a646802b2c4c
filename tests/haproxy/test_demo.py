"""The demo itself, beside the cluster of the other tests: two runs side by side."""

import signal
import subprocess
import sys
from pathlib import Path

from harness.stack import Stack
from harness.waiting import wait_for

TOUR_SECONDS = 120
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


def test_the_tour_sees_every_step_beside_another_run(stack: Stack) -> None:
    done = subprocess.run([*DEMO, "--once"], capture_output=True, text=True, timeout=TOUR_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for step in (
        "all up",
        "node2 desynced",
        "node2 stalls",
        "node3 drained",
        "node1, the writer, killed",
        "no fail-back",
    ):
        assert step in done.stdout
    assert "all 7 steps seen" in done.stdout
    # The other run did not notice.
    assert [service.get().status for service in stack.services] == [200, 200, 200]


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
