"""The table of findings has each script, its versions, and what rests on it. No script is run."""

import re

import pytest

from tests.unit.manifests import ROOT

FINDINGS = ROOT / "findings"
ROWS = {
    script: columns
    for script, *columns in re.findall(
        r"^\| `(\S+)` \| (.+) \| (.+) \| (.+) \| (.+) \|$",
        (FINDINGS / "README.md").read_text(),
        re.MULTILINE,
    )
}
SCRIPTS = sorted(path.name for path in FINDINGS.glob("*.sh"))
PACKAGES = {
    "mariadb-server-core": "MariaDB",
    "galera-4": "Galera",
    "haproxy": "HAProxy",
    "socat": "socat",
}


def test_each_script_has_a_row() -> None:
    assert sorted(ROWS) == SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS)
class TestScript:
    def test_it_says_first_what_one_would_guess_and_what_is_seen(
        self, script: str
    ) -> None:
        text = (FINDINGS / script).read_text()
        head = r"#!/bin/bash\n# .+\n# Guess: (.+\n)+# Seen: (.+\n)+set -eu\n"
        assert re.match(head, text)

    def test_its_row_has_the_versions_that_it_installs(self, script: str) -> None:
        versions, seen, *_ = ROWS[script]
        installed = re.findall(
            rf"\b({'|'.join(PACKAGES)})=(?:\d+:)?([0-9.]+)",
            (FINDINGS / script).read_text(),
        )
        expected = ", ".join(
            f"{PACKAGES[name]} {version}" for name, version in installed
        )
        assert expected == versions
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", seen)

    def test_its_row_names_what_is_there(self, script: str) -> None:
        places = re.findall(r"`([^`]+)`: `([^`]+)`", ROWS[script][-1])
        assert places
        for path, words in places:
            assert words in (ROOT / path).read_text()
