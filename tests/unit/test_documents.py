"""The documents cannot drift: reference tables are complete, links lead somewhere, and what is typed exists."""

import re
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml

from app.commands import clustercheck
from app.commands.exit_status import AVAILABLE, DONE, FAILED, MISUSED, NOT_AVAILABLE
from app.commands.parser import COMMANDS as NAMES
from app.commands.script import CONFIGURATION_FILES
from app.database.address import USUAL_SOCKETS
from app.http.api import PATHS
from app.http.health_checks import LIVENESS_PATH, OVERRIDES, VERDICT_PATHS
from app.reason import PLANNED, Reason
from app.settings import DURATIONS, WITHOUT_FLAG, Settings, default_of, flag_of
from app.variables import Variable, misspelt_names
from app.verdict import decide
from tests.unit.manifests import ROOT
from tests.unit.pages import PAGES, blocks_under, commands_of, flags_in, flags_of, without_blocks

REFERENCE = ROOT / "docs" / "reference"
README = (ROOT / "README.md").read_text()
SETTINGS = (REFERENCE / "settings.md").read_text()
REASONS = (REFERENCE / "reasons.md").read_text()
HTTP_API = (REFERENCE / "http-api.md").read_text()
COMMANDS = (REFERENCE / "commands.md").read_text()

KNOWN_VARIABLES = {*(name.upper() for name in Settings.model_fields), "CLUSTERCHECK_ENV_FILE"}
# Named as an example of a name that is misspelt.
MISSPELT = {"MYSQL_USER"}

MOST_README_WORDS = 650
FIRST_SCREEN_LINES = 50

every_page = pytest.mark.parametrize("page", PAGES)


def test_the_pages_are_found() -> None:
    assert {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/reference/settings.md"} <= set(PAGES)


@every_page
def test_no_page_has_the_marks_of_an_unfinished_merge(page: str) -> None:
    assert not re.findall(r"^(?:<{7}|>{7}).*", PAGES[page].read_text(), re.MULTILINE)


class TestLinks:
    """Relative links, with their anchors; addresses on the network are not asked."""

    @every_page
    def test_they_lead_somewhere(self, page: str) -> None:
        for target in re.findall(r"\]\(([^()\s]+)\)", without_blocks(PAGES[page].read_text())):
            if re.match(r"https?:", target):
                continue
            file, _, anchor = target.partition("#")
            path = (PAGES[page].parent / file).resolve() if file else PAGES[page]
            assert path.exists(), target
            assert not anchor or anchor in anchors(path), target

    def test_the_changelog_leads_to_the_differences_from_clustercheck(self) -> None:
        changelog = PAGES["CHANGELOG.md"].read_text().partition("\n## Differences from clustercheck\n")[2]
        assert "(docs/migrating-from-clustercheck.md#differences-from-clustercheck)" in changelog

    def test_the_readme_links_every_page(self) -> None:
        linked = set(re.findall(r"\]\(([^()\s#]+)", README))
        assert set(PAGES) - {"README.md"} <= linked


class TestMigrating:
    """docs/migrating-from-clustercheck.md."""

    def test_it_names_each_place_that_migrate_reads(self) -> None:
        page = PAGES["docs/migrating-from-clustercheck.md"].read_text()
        assert all(f"`{path}`" in page for path in ("/etc/xinetd.d", *CONFIGURATION_FILES))

    def test_the_play_for_a_fleet_runs_the_commands_of_the_steps_in_their_order_one_node_at_a_time(self) -> None:
        page = "docs/migrating-from-clustercheck.md"
        (play,) = yaml.safe_load((ROOT / "contrib" / "ansible" / "clustercheckd.yml").read_text())
        typed = [command.line for block in blocks_under(page, "Steps", "console") for command in commands_of(block)]
        assert play["serial"] == 1
        run = [task[name]["cmd"] for task in play["tasks"] for name in task if name.endswith((".command", ".shell"))]
        assert run == typed[: len(run)]
        assert len(run) == 3
        (url,) = (task["ansible.builtin.uri"]["url"] for task in play["tasks"] if "ansible.builtin.uri" in task)
        assert typed[len(run)] == f"curl -i {url}"


class TestReadme:
    """One page, for somebody who has never seen it."""

    def test_it_is_short(self) -> None:
        assert len(README.split()) <= MOST_README_WORDS

    def test_its_first_screen_has_the_commands_that_try_and_install_it_and_haproxys_lines(self) -> None:
        first_screen = "\n".join(README.splitlines()[:FIRST_SCREEN_LINES])
        assert "Percona XtraDB Cluster on a real server" in first_screen
        assert "\n# apt install " in first_screen
        assert "\n    mode tcp\n" in first_screen
        # The script's port is free for a moment only.
        assert (
            "\n# systemctl stop xinetd; systemctl disable xinetd; systemctl enable --now clustercheckd\n"
            in first_screen
        )
        assert re.search(r"^\$ make demo ", first_screen, re.MULTILINE)
        assert re.search(r"^\$ make test ", first_screen, re.MULTILINE)
        packages = re.findall(r'packages="\$packages ([^"]+)"', (ROOT / "harness" / "setup.sh").read_text())
        assert packages
        for package in " ".join(packages).split():
            assert re.search(rf"(?<![\w-]){re.escape(package)}(?![\w-])", first_screen), package


class TestSettings:
    """docs/reference/settings.md."""

    def test_it_has_every_setting_and_no_other(self) -> None:
        assert sorted(rows(SETTINGS, r"[A-Z_]+")) == sorted(name.upper() for name in Settings.model_fields)

    def test_it_has_every_default(self) -> None:
        for name in Settings.model_fields:
            if default := default_of(name):
                unit = " s" if name in DURATIONS else ""
                row = rf"^\| `{name.upper()}` \| `?{re.escape(default)}{unit}`? \|"
                assert re.search(row, SETTINGS, re.MULTILINE), name

    def test_its_rule_gives_the_flag_of_every_setting(self) -> None:
        assert WITHOUT_FLAG == ("mysql_password",)
        others = {"clustercheck_poll_interval": "--interval"}
        assert "`CLUSTERCHECK_POLL_INTERVAL` is `--interval`" in SETTINGS
        for name in set(Settings.model_fields) - set(WITHOUT_FLAG):
            rule = f"--{name.removeprefix('clustercheck_').replace('_', '-')}"
            assert flag_of(name) == others.get(name, rule)

    def test_it_names_the_usual_places_of_the_socket(self) -> None:
        assert all(f"`{place}`" in SETTINGS for place in USUAL_SOCKETS)

    def test_its_misspelt_name_is_told(self) -> None:
        (line,) = misspelt_names([Variable(name, "x") for name in MISSPELT], KNOWN_VARIABLES)
        assert "did you mean MYSQL_USERNAME?" in line

    @every_page
    def test_every_variable_that_a_page_names_is_a_setting(self, page: str) -> None:
        named = re.findall(
            r"\b(?:(?:CLUSTERCHECK|AVAILABLE_WHEN|MYSQL|MAX_RECV)_[A-Z_]*[A-Z]|DEFAULTS_\w+)\b",
            PAGES[page].read_text(),
        )
        assert set(named) <= KNOWN_VARIABLES | MISSPELT


class TestReasons:
    """docs/reference/reasons.md."""

    def test_it_has_every_reason_in_the_order_of_the_rules(self) -> None:
        headings = re.findall(r"^### (.+)$", REASONS, re.MULTILINE)
        assert sorted(headings) == sorted(Reason)
        ordered = [reason for reason in reasons_in_the_order_of_the_rules() if reason != Reason.OFFLINE]
        assert [reason for reason in headings if reason in ordered] == ordered

    @pytest.mark.parametrize("reason", Reason)
    def test_it_says_which_are_planned(self, reason: Reason) -> None:
        (planned,) = re.findall(rf"^### {reason}\n\n(Planned\. )?", REASONS, re.MULTILINE)
        assert bool(planned) is (reason in PLANNED)

    @pytest.mark.parametrize("reason", Reason)
    def test_each_has_a_section_with_a_command_to_type(self, reason: Reason) -> None:
        section = re.split(r"\n##", REASONS.partition(f"\n### {reason}\n")[2])[0]
        assert section
        assert "\n```console\n" in section or reason is Reason.SYNCED


class TestHttpApi:
    """docs/reference/http-api.md."""

    def test_it_has_every_endpoint(self) -> None:
        assert set(rows(HTTP_API, r"/[a-z.]*")) == {*VERDICT_PATHS, LIVENESS_PATH, *PATHS} - {"*"}

    def test_it_names_every_override(self) -> None:
        assert all(f"`{name}`" in HTTP_API for name in OVERRIDES)

    @every_page
    def test_every_query_on_a_page_has_known_parameters(self, page: str) -> None:
        queries = re.findall(r"[/`]\?([a-z_]+=[^\s`\"|]+)", PAGES[page].read_text())
        parameters = {parameter.partition("=")[0] for query in queries for parameter in query.split("&")}
        assert parameters <= set(OVERRIDES)

    @every_page
    def test_every_path_that_curl_asks_for_exists(self, page: str) -> None:
        asked = re.findall(r"curl [^\n`]*:9200(/[a-z.]*)", PAGES[page].read_text())
        assert set(asked) <= {*VERDICT_PATHS, LIVENESS_PATH, *PATHS}


class TestLog:
    """docs/operations.md: the log."""

    def test_it_has_every_event(self) -> None:
        section = PAGES["docs/operations.md"].read_text().partition("\n## The log\n")[2].partition("\n## ")[0]
        sources = "".join(path.read_text() for path in (ROOT / "app").rglob("*.py"))
        logged = re.findall(r'_log\.(?:debug|info|warning|error|exception)\(\s*"([a-z ]+)"', sources)
        assert {"started", "login failed"} <= set(logged)
        assert {*logged, "available", "draining", "unavailable", "log lines dropped"} == set(rows(section, r"[a-z ]+"))


class TestCommands:
    """docs/reference/commands.md, and what the other pages type."""

    def test_it_has_every_command_with_a_section(self) -> None:
        scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
        assert set(rows(COMMANDS, r"[a-z]+")) == {*NAMES, *scripts} - {"clustercheckd"}
        for anchor in re.findall(r"^\| \[`[a-z]+`\]\(#([^)]+)\)", COMMANDS, re.MULTILINE):
            assert anchor in anchors(REFERENCE / "commands.md")

    @pytest.mark.parametrize(
        ("heading", "codes"),
        [
            ("check", {AVAILABLE, NOT_AVAILABLE}),
            ("status", {AVAILABLE, NOT_AVAILABLE}),
            ("drain and undrain", {DONE, FAILED}),
            ("migrate", {DONE, FAILED, MISUSED}),
            ("clustercheck", {clustercheck.AVAILABLE, clustercheck.NOT_AVAILABLE}),
        ],
    )
    def test_it_has_every_exit_status(self, heading: str, codes: set[int]) -> None:
        section = COMMANDS.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
        (statuses,) = re.findall(r"^Exit status: (.+)", section, re.MULTILINE)
        assert {int(code) for code in re.findall(r"`(\d+)`", statuses)} == codes

    @every_page
    def test_every_word_after_clustercheckd_is_a_command(self, page: str) -> None:
        typed = [line.split()[0] for line in typed_after_clustercheckd(PAGES[page].read_text()) if line.split()]
        words = {word for word in typed if word.isalpha()}
        assert words <= {*NAMES, "COMMAND"}

    @every_page
    def test_every_flag_after_clustercheckd_is_one_of_the_commands(self, page: str) -> None:
        for typed in typed_after_clustercheckd(PAGES[page].read_text()):
            command = next((word for word in typed.split() if word in NAMES), "serve")
            assert flags_in(typed) - {"--help", "--version"} <= flags_of(command), typed

    @pytest.mark.parametrize("text", [COMMANDS, SETTINGS], ids=["commands", "settings"])
    def test_every_flag_of_the_reference_exists(self, text: str) -> None:
        assert flags_in(text)
        assert flags_in(text) <= {"--version", *(flag for name in NAMES for flag in flags_of(name))}

    def test_each_command_has_its_flags_in_its_section(self) -> None:
        own = {*flags_of("status"), *flags_of("drain")} - flags_of("serve")
        assert own == {"--json", "--watch", "--reason"}
        assert own <= flags_in(COMMANDS)

    @every_page
    def test_every_target_of_make_exists(self, page: str) -> None:
        targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
        typed = re.findall(r"(?:`|^[$#] )make ([a-z-]+)", PAGES[page].read_text(), re.MULTILINE)
        assert set(typed) <= targets


def rows(page: str, word: str) -> list[str]:
    """Return the code words in the first column of a page's tables, linked or not, that match a pattern."""
    return re.findall(rf"^\| \[?`({word})`", page, re.MULTILINE)


@cache
def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", without_blocks(path.read_text()), re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading).lower()).replace(" ", "-")
        number = 1
        anchor = words
        while anchor in found:
            anchor, number = f"{words}-{number}", number + 1
        found.add(anchor)
    return found


def typed_after_clustercheckd(text: str) -> list[str]:
    """Return what follows the word clustercheckd in code within a line; tests/unit/test_blocks.py reads the blocks."""
    code = re.findall(r"`([^`\n]+)`", without_blocks(text))
    found = (re.findall(r"(?:^|[$#] |bin/|-- )clustercheckd\b([^\n>|;&#]*)", part) for part in code)
    # A colon begins a message of it.
    return [typed for part in found for typed in part if not typed.startswith((":", ".", "-", "/"))]


def reasons_in_the_order_of_the_rules() -> list[Reason]:
    """Return the reasons that the rules at the top of app/verdict.py name, each where it comes first."""
    rules = (sys.modules[decide.__module__].__doc__ or "").splitlines()
    named = [rule.rpartition("   ")[2] for rule in rules if "   " in rule.strip()]
    words = [word.strip() for part in named for word in part.replace("AVAILABLE:", "").split(",")]
    return [Reason(word) for word in dict.fromkeys(words) if word in set(Reason)]
