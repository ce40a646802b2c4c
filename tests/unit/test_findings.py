"""The table of findings has each script, and the versions that it installs. No script is run."""

import re

import pytest

from tests.unit.manifests import ROOT

FINDINGS = ROOT / "findings"
TABLE = (FINDINGS / "README.md").read_text()
ROWS = dict(re.findall(r"^\| `(\S+\.sh)` \| ([^|]+) \|", TABLE, re.MULTILINE))
SCRIPTS = sorted(path.name for path in FINDINGS.glob("*.sh"))
PACKAGES = {
    "MariaDB": "mariadb-server-core=1:",
    "Galera": "galera-4=",
    "HAProxy": "haproxy=",
    "socat": "socat=",
}


def test_each_script_has_a_row() -> None:
    assert sorted(ROWS) == SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_page_has_the_version_that_a_script_installs(script: str) -> None:
    text = (FINDINGS / script).read_text()
    assert re.match(
        r"#!/bin/bash\n# .+\n# Guess: (.+\n)+# Seen: (.+\n)+set -eu\n", text
    )
    for name in ROWS[script].split(", "):
        assert PACKAGES[name] in text
        [version] = re.findall(rf"{re.escape(PACKAGES[name])}([0-9.]+)", text)
        assert re.search(rf"{name} (?:is )?{re.escape(version)}", TABLE)
