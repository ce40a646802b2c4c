"""The plugin that shows reruns, in runs of pytest on a small test."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reruns import RECORD

TEST = "test_sample.py::test_it"
SAMPLE = """
from pathlib import Path
from tests.measured import within

def test_it():
    slow = Path(__file__).with_name("slow")
    seconds = 2.0 if slow.exists() else 0.5
    slow.unlink(missing_ok=True)
    within("it", seconds, 1)
"""
FIGURE = "tests.measured.DisturbedError: it: 2.00 s, and its bound is 1 s"
OTHER = {"test_other.py::test_it": [1, "slow"]}
QUIET, BUSY = 0, 2


@pytest.mark.parametrize(
    ("before", "idle", "after"),
    [
        ({}, QUIET, {TEST: [1, FIGURE]}),
        ({TEST: [2, "old"]}, QUIET, {TEST: [3, FIGURE]}),
        ({TEST: [2, "old"]}, BUSY, {TEST: [2, FIGURE]}),
        ({TEST: [2, "old"]}, QUIET, {}),
    ],
    ids=["first", "third", "busy", "undisturbed"],
)
def test_a_third_run_in_a_row_with_a_rerun_fails_on_a_quiet_machine(
    tmp_path: Path, before: dict[str, object], idle: int, after: dict[str, object]
) -> None:
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    if after:
        (tmp_path / "slow").touch()
    record = tmp_path / RECORD
    record.parent.mkdir()
    record.write_text(json.dumps(OTHER | before))
    options = f"-c=pyproject.toml --rootdir={tmp_path} -o=quiet_idle={idle} {tmp_path}"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options.split()],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert run.returncode == (after == {TEST: [3, FIGURE]}), run.stdout
    assert json.loads(record.read_text()) == OTHER | after
    assert (f"RERUN {TEST}: {FIGURE}" in run.stdout) == bool(after)
