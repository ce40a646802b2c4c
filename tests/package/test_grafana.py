"""The dashboard, by Grafana's own linter; its queries: tests/unit/test_alerts.py."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.package.conftest import ROOT

# HAProxy's exporter is another job, with instances of its own.
EXCLUSIONS = """\
exclusions:
  target-job-rule: {entries: [{panel: Sessions of HAProxy's writer}]}
  target-instance-rule: {entries: [{panel: Sessions of HAProxy's writer}]}
"""


@pytest.mark.skipif(
    shutil.which("dashboard-linter") is None,
    reason="NOT TESTED: there is no dashboard-linter here (github.com/grafana/dashboard-linter)",
)
def test_grafanas_linter_has_nothing_to_say(tmp_path: Path) -> None:
    (tmp_path / ".lint").write_text(EXCLUSIONS)
    dashboard = shutil.copy(ROOT / "contrib" / "grafana" / "clustercheckd.json", tmp_path)
    done = subprocess.run(
        ["dashboard-linter", "lint", "--strict", dashboard],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
