"""A plugin of pytest that shows which tests needed a rerun.

A rerun may hide a fault as well as a busy machine, so a test that needs one again and again fails
the run.
"""

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

RECORD = Path("build/reruns.json")
"""Each test that needed a rerun when it last ran: in how many runs in a row on a quiet machine, and
its figures then.
"""
_RUNS = 3
_LOOK_SECONDS = 0.5


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the test of this plugin say what a quiet machine is."""
    parser.addini("quiet_idle", "a quiet machine's idle CPU time", "float", 0.25)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Update the record, and print it below all else."""
    yield
    config = session.config
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None or hasattr(config, "workerinput"):
        return  # The process that started this one has the results of all.
    figures = defaultdict(list)
    for report in terminal.stats.get("rerun", ()):
        figures[report.nodeid].append(report.longrepr.reprcrash.message)
    path = config.rootpath / RECORD
    record = json.loads(path.read_text()) if path.exists() else {}
    for report in terminal.stats.get("passed", ()):
        if report.nodeid not in figures:
            record.pop(report.nodeid, None)
    is_quiet = bool(figures) and _idle_share() >= config.getini("quiet_idle")
    for test, messages in figures.items():
        runs, *_ = record.get(test, [0])
        record[test] = [runs + is_quiet, *messages]
        if is_quiet and runs + 1 >= _RUNS:
            terminal.write_line(f"FAILED {test}: {runs + 1} runs in a row with reruns")
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(record, indent=1))
    for test, (_, *messages) in record.items():
        terminal.write_line(f"RERUN {test}: {'; '.join(messages)}")


def _idle_share() -> float:
    """Return which share of the CPU time of all cores is idle just now."""
    before = _idle_seconds()
    time.sleep(_LOOK_SECONDS)
    return (_idle_seconds() - before) / _LOOK_SECONDS / (os.cpu_count() or 1)


def _idle_seconds() -> float:
    """Return the sum over all cores since the start: proc_uptime(5)."""
    return float(Path("/proc/uptime").read_text().split()[1])
