"""The documents cannot drift: tables are complete, links lead somewhere, what is typed exists."""

import json
import re
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from app.commands.parser import COMMANDS as NAMES
from app.commands.parser import parse
from app.database.sessions import MOST_SESSIONS
from app.http.answers import APPLICATION_PATHS, LIVENESS_PATH, VERDICT_PATHS
from app.http.api import Status, StatusConnections
from app.http.reload_outcome import ReloadOutcome
from app.monitor.changes import Change
from app.settings.database import USUAL_SOCKETS
from app.settings.env_file import read_env_file
from app.settings.settings import POLICY, TABLE
from app.verdict.node_state import NodeState
from app.verdict.reason import PLANNED, Reason
from app.verdict.rules import Policy
from tests.unit.manifests import ROOT
from tests.unit.pages import (
    PAGES,
    CodeBlock,
    blocks_in,
    blocks_under,
    typed_on_pages,
    without_blocks,
)

REFERENCE = ROOT / "docs" / "reference"
README = (ROOT / "README.md").read_text()
SETTINGS = (REFERENCE / "settings.md").read_text()
REASONS = (REFERENCE / "reasons.md").read_text()
HTTP_API = (REFERENCE / "http-api.md").read_text()
COMMANDS = (REFERENCE / "commands.md").read_text()
PATHS = {*VERDICT_PATHS, LIVENESS_PATH, *APPLICATION_PATHS}

POLICY_PREFIXES = {"_".join(name.upper().split("_")[:2]) for name in POLICY}
KNOWN_VARIABLES = {*map(str.upper, TABLE), "CLUSTERCHECK_ENV_FILE"}
# Named as an example of a name that is misspelt.
MISSPELT = {"MYSQL_USER"}

every_page = pytest.mark.parametrize("page", PAGES)


@every_page
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(
        r"\]\(([^()\s]+)\)", without_blocks(PAGES[page].read_text())
    ):
        if not re.match(r"https?:", target):
            file, _, anchor = target.partition("#")
            path = (PAGES[page].parent / file).resolve() if file else PAGES[page]
            assert path.exists(), target
            assert not anchor or anchor in anchors(path), target


def test_an_account_may_have_all_sessions_that_clustercheckd_may_have() -> None:
    folders = [ROOT / name for name in ("docs", "contrib", "packaging")]
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    limit = re.compile(rb"MAX_USER_CONNECTIONS (\d+)")
    found = [int(n) for file in files for n in limit.findall(file.read_bytes())]
    assert found.count(MOST_SESSIONS) == len(found) > 3


def test_the_readme_links_every_page() -> None:
    linked = set(re.findall(r"\]\(([^()\s#]+)", README))
    assert set(PAGES) - {"README.md"} <= linked


class TestTyped:
    """What the pages have people type exists."""

    def test_each_command_of_clustercheckd_can_be_parsed(self) -> None:
        within_lines = [
            code.split()
            for path in PAGES.values()
            for code in re.findall(
                r"`(clustercheckd [^`\n]+)`", without_blocks(path.read_text())
            )
        ]
        in_blocks = [words for _, words in typed_on_pages("clustercheckd")]
        assert len(in_blocks) > 5
        for _, *arguments in (*within_lines, *in_blocks):
            parse(
                [
                    word
                    for word in arguments
                    if word not in ("COMMAND", "--help", "--version")
                ]
            )

    def test_each_target_of_make_is_there(self) -> None:
        makefile = (ROOT / "Makefile").read_text()
        for _, (_, target, *_) in typed_on_pages("make"):
            assert f"\n{target}:" in makefile

    @pytest.mark.parametrize("block", blocks_in("sh"), ids=str)
    def test_each_env_file_has_settings_alone(
        self, block: CodeBlock, tmp_path: Path
    ) -> None:
        env_file = tmp_path / "clustercheckd.env"
        env_file.write_text(block.text)
        variables, complaints = read_env_file(str(env_file))
        assert complaints == []
        assert {variable.name for variable in variables} <= KNOWN_VARIABLES


class TestSettings:
    """docs/reference/settings.md."""

    def test_it_has_every_setting_and_no_other(self) -> None:
        assert sorted(rows(SETTINGS, r"[A-Z_]+")) == sorted(map(str.upper, TABLE))

    def test_it_has_every_default(self) -> None:
        for name, setting in TABLE.items():
            if default := setting.typed:
                row = rf"^\| `{name.upper()}` \| `?{re.escape(default)}( s)?`? \|"
                assert re.search(row, SETTINGS, re.MULTILINE), name

    def test_it_names_the_usual_places_of_the_socket(self) -> None:
        assert all(f"`{place}`" in SETTINGS for place in USUAL_SOCKETS)

    @every_page
    def test_every_variable_that_a_page_names_is_a_setting(self, page: str) -> None:
        named = re.findall(
            rf"\b(?:(?:CLUSTERCHECK|MYSQL|{'|'.join(POLICY_PREFIXES)})[A-Z_]*[A-Z]|DEFAULTS_\w+)\b",
            PAGES[page].read_text(),
        )
        assert set(named) <= KNOWN_VARIABLES | MISSPELT


class TestReasons:
    """docs/reference/reasons.md."""

    def test_it_has_every_reason_and_no_other(self) -> None:
        assert sorted(re.findall(r"^### (.+)$", REASONS, re.MULTILINE)) == sorted(
            Reason
        )

    def test_the_table_at_its_top_has_each_word_of_a_section_in_order(self) -> None:
        table, *sections = re.split(r"^## ", REASONS, flags=re.MULTILINE)
        told = re.findall(r"^\| \[(.+?)\]\(#.+?\) \| (.+) \|$", table, re.MULTILINE)
        words = [
            (
                section.partition("\n")[0],
                re.findall(r"^### (.+)$|^- `([a-z-]+)`: ", section, re.MULTILINE),
            )
            for section in sections
        ]
        assert [
            (heading, [word for pair in pairs for word in pair if word])
            for heading, pairs in words
        ] == [
            (heading, re.findall(r"[`[]([a-z-]+)[`\]]", found))
            for heading, found in told
        ]

    @pytest.mark.parametrize("reason", Reason)
    def test_each_has_a_section_that_says_if_it_is_planned_and_what_to_type(
        self, reason: Reason
    ) -> None:
        section = re.split(r"\n##", REASONS.partition(f"\n### {reason}\n")[2])[0]
        assert section.startswith("\nPlanned. ") is (reason in PLANNED)
        assert "\n```console\n" in section or reason is Reason.SYNCED


class TestHttpApi:
    """docs/reference/http-api.md."""

    def test_it_has_every_endpoint_and_override(self) -> None:
        assert set(rows(HTTP_API, r"/[a-z.]*")) == PATHS - {"*"}
        assert all(f"`{name}`" in HTTP_API for name in POLICY)

    def test_its_example_has_the_fields_of_the_status(self) -> None:
        (block,) = blocks_under("docs/reference/http-api.md", "Status", "json")
        shown = json.loads(block.text)
        assert list(shown) == list(Status.model_fields)
        # Parts of these, for they are long.
        for part, model in (
            ("node", NodeState),
            ("policy", Policy),
            ("last_reload", ReloadOutcome),
        ):
            assert set(shown[part]) < {field.name for field in fields(model)}
        assert set(shown["connections"]) < set(StatusConnections.model_fields)
        assert [list(change) for change in shown["changes"]] == [
            [field.name for field in fields(Change)]
        ]


class TestCommands:
    """docs/reference/commands.md."""

    def test_it_has_every_command(self) -> None:
        headings = re.findall(r"^## (.+)$", COMMANDS, re.MULTILINE)
        described = {name for heading in headings for name in heading.split(" and ")}
        assert described == {*NAMES, "clustercheck"}


def rows(page: str, word: str) -> list[str]:
    """Return the code words in the first column of a page's tables that match a pattern."""
    return re.findall(rf"^\| \[?`({word})`", page, re.MULTILINE)


@cache
def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", without_blocks(path.read_text()), re.MULTILINE)
    words = [
        re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading))
        for heading in headings
    ]
    return {heading.lower().replace(" ", "-") for heading in words}
