"""The workflows, which only run elsewhere: what can be said of them here."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from app import __version__
from harness.process import output_of
from tests.unit.manifests import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_actionlint_has_nothing_to_say() -> None:
    own = ROOT / "build" / "tools" / "actionlint"
    actionlint = str(own) if own.exists() else shutil.which("actionlint")
    if actionlint is None:
        pytest.skip(
            "NOT TESTED: there is no actionlint: packaging/setup.sh needs Go to install it"
        )
    assert output_of(actionlint, *WORKFLOWS) == ""


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_they_call_the_targets_that_are_there(workflow: Path) -> None:
    makefile = (ROOT / "Makefile").read_text()
    called = re.findall(r"run: make (\S+)", workflow.read_text())
    assert called
    assert all(f"\n{target}: " in makefile for target in called)


def test_the_version_stands_in_one_place_and_whatever_else_names_it_agrees() -> None:
    naming = re.compile(
        r"(?:clustercheckd[:_-]|newTag: |VERSION=|version = .?)(\d+\.\d+\.\d+)"
    )
    tracked = subprocess.check_output(
        ["git", "ls-files", "--", ":!app", ":!requirements/"], cwd=ROOT, text=True
    )
    named = {
        (name, version)
        for name in tracked.split()
        for version in naming.findall((ROOT / name).read_text(errors="replace"))
    }
    # The images that the examples pull; everything else asks app/__init__.py.
    assert {version for _, version in named} <= {__version__.removesuffix(".dev0")}
    assert {name.partition("/")[0] for name, _ in named} <= {"contrib", "docs"}
