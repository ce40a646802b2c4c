"""The documents cannot drift: reference tables are complete, links lead somewhere, and what is
typed exists.
"""

import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml

from app.commands.parser import COMMANDS as NAMES
from app.commands.parser import Parser
from app.database.address import USUAL_SOCKETS
from app.http.health_checks import APPLICATION_PATHS, LIVENESS_PATH, OVERRIDES, VERDICT_PATHS
from app.script.inputs import CONFIGURATION_FILES
from app.settings.settings import WITHOUT_FLAG, Settings, default_of, flag_of
from app.verdict.reason import PLANNED, Reason
from app.verdict.rules import decide
from tests.unit.manifests import ROOT
from tests.unit.pages import PAGES, blocks_under, commands_of, flags_in, without_blocks

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
    assert {
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "docs/reference/settings.md",
    } <= set(PAGES)


MOST_COLUMNS = 140


@every_page
def test_no_line_of_a_page_is_too_long_for_an_editor(page: str) -> None:
    lines = without_blocks(PAGES[page].read_text()).splitlines()
    assert [
        line
        for line in lines
        if len(line) > MOST_COLUMNS and not line.lstrip().startswith(("|", "!["))
    ] == []


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
        assert (
            "(docs/migrating-from-clustercheck.md#differences-" in PAGES["CHANGELOG.md"].read_text()
        )

    def test_the_readme_links_every_page(self) -> None:
        linked = set(re.findall(r"\]\(([^()\s#]+)", README))
        assert set(PAGES) - {"README.md"} <= linked


class TestMigrating:
    """docs/migrating-from-clustercheck.md."""

    def test_it_names_each_place_that_migrate_reads(self) -> None:
        page = PAGES["docs/migrating-from-clustercheck.md"].read_text()
        assert all(f"`{path}`" in page for path in ("/etc/xinetd.d", *CONFIGURATION_FILES))

    def test_the_play_for_a_fleet_runs_the_commands_of_the_steps_in_their_order_one_node_at_a_time(
        self,
    ) -> None:
        page = "docs/migrating-from-clustercheck.md"
        (play,) = yaml.safe_load((ROOT / "contrib" / "ansible" / "clustercheckd.yml").read_text())
        typed = [
            command.line
            for block in blocks_under(page, "Steps", "console")
            for command in commands_of(block)
        ]
        assert play["serial"] == 1
        run = [
            task[name]["cmd"]
            for task in play["tasks"]
            for name in task
            if name.endswith((".command", ".shell"))
        ]
        assert run == typed[: len(run)]
        assert len(run) == 3
        (url,) = (
            task["ansible.builtin.uri"]["url"]
            for task in play["tasks"]
            if "ansible.builtin.uri" in task
        )
        assert typed[len(run)] == f"curl -i {url}"


class TestReadme:
    """One page, for somebody who has never seen it."""

    def test_it_is_short(self) -> None:
        assert len(README.split()) <= MOST_README_WORDS

    def test_its_first_screen_has_the_commands_that_try_and_install_it_and_haproxys_lines(
        self,
    ) -> None:
        first_screen = "\n".join(README.splitlines()[:FIRST_SCREEN_LINES])
        assert "Percona XtraDB Cluster on a real server" in first_screen
        for line in (
            "# apt install ",
            "# systemctl enable --now clustercheckd",
            "    mode tcp\n",
            "$ make demo ",
        ):
            assert f"\n{line}" in first_screen
        # Those who have the script must not lose its settings.
        assert (
            "(docs/migrating-from-clustercheck.md) instead"
            in first_screen.partition("# apt install ")[0]
        )
        packages = re.findall(
            r'packages="\$packages ([^"]+)"', (ROOT / "harness" / "setup.sh").read_text()
        )
        assert packages
        for package in " ".join(packages).split():
            assert re.search(rf"(?<![\w-]){re.escape(package)}(?![\w-])", first_screen), package


class TestInstall:
    """docs/install.md."""

    def test_from_source_the_unit_runs_the_command_that_is_linked(self) -> None:
        (block,) = blocks_under("docs/install.md", "From source", "console")
        typed = [command.line.split() for command in commands_of(block)]
        ((_, _, change, _),) = [words for words in typed if words[0] == "sed"]
        ((_, _, linked, folder),) = [words for words in typed if words[0] == "ln"]
        unit = subprocess.check_output(
            ["sed", change, ROOT / "packaging" / "clustercheckd.service"], text=True
        )
        run = re.findall(r"^Exec(?:Start|Reload)=(\S+clustercheckd)", unit, re.MULTILINE)
        assert run == [f"{folder}{Path(linked).name}"] * 2


class TestSettings:
    """docs/reference/settings.md."""

    def test_it_has_every_setting_and_no_other(self) -> None:
        assert sorted(rows(SETTINGS, r"[A-Z_]+")) == sorted(
            name.upper() for name in Settings.model_fields
        )

    def test_it_has_every_default(self) -> None:
        for name in Settings.model_fields:
            if default := default_of(name):
                row = rf"^\| `{name.upper()}` \| `?{re.escape(default)}( s)?`? \|"
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

    @every_page
    def test_every_variable_that_a_page_names_is_a_setting(self, page: str) -> None:
        named = re.findall(
            r"\b(?:(?:CLUSTERCHECK|AVAILABLE_WHEN|MYSQL|MAX_RECV)_[A-Z_]*[A-Z]|DEFAULTS_\w+)\b",
            PAGES[page].read_text(),
        )
        assert set(named) <= KNOWN_VARIABLES | MISSPELT


class TestPolicies:
    """docs/policies.md, and the files that follow it."""

    def test_every_example_of_the_longest_queue_is_above_what_flow_control_allows_a_synced_node(
        self,
    ) -> None:
        paths = [
            *PAGES.values(),
            ROOT / "haproxy.cfg.example",
            ROOT / "contrib" / "kubernetes" / "sidecar.yaml",
        ]
        figure = re.compile(r"""max_recv_queue(?:=|\n +value: ")(\d+)""", re.IGNORECASE)
        figures = {path.name: set(figure.findall(path.read_text())) for path in paths}
        places = {
            "README.md",
            "policies.md",
            "kubernetes.md",
            "haproxy.cfg.example",
            "sidecar.yaml",
        }
        assert {name: {"200"} for name in places} == {
            name: found for name, found in figures.items() if found
        }
        page = PAGES["docs/policies.md"].read_text()
        allowed = [
            (int(limit), int(queue)) for limit, queue in re.findall(r"(\d+) . √3 = (\d+)", page)
        ]
        # Galera cuts the sum.
        assert [(limit, int(limit * 3**0.5 + 0.5)) for limit in (16, 100)] == allowed
        assert max(allowed)[1] < 200


class TestReasons:
    """docs/reference/reasons.md."""

    def test_it_has_every_reason_in_the_order_of_the_rules(self) -> None:
        headings = re.findall(r"^### (.+)$", REASONS, re.MULTILINE)
        assert sorted(headings) == sorted(Reason)
        ordered = [
            reason for reason in reasons_in_the_order_of_the_rules() if reason != Reason.OFFLINE
        ]
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
        assert set(rows(HTTP_API, r"/[a-z.]*")) == {
            *VERDICT_PATHS,
            LIVENESS_PATH,
            *APPLICATION_PATHS,
        } - {"*"}

    def test_it_names_every_override(self) -> None:
        assert all(f"`{name}`" in HTTP_API for name in OVERRIDES)

    @every_page
    def test_every_query_on_a_page_has_known_parameters(self, page: str) -> None:
        queries = re.findall(r"[/`]\?([a-z_]+=[^\s`\"|]+)", PAGES[page].read_text())
        parameters = {
            parameter.partition("=")[0] for query in queries for parameter in query.split("&")
        }
        assert parameters <= set(OVERRIDES)


class TestLog:
    """docs/operations.md: the log."""

    def test_it_has_every_event(self) -> None:
        section = (
            PAGES["docs/operations.md"]
            .read_text()
            .partition("\n## The log\n")[2]
            .partition("\n## ")[0]
        )
        sources = "".join(path.read_text() for path in (ROOT / "app").rglob("*.py"))
        logged = re.findall(
            r'_log\.(?:debug|info|warning|error|exception)\(\s*"([a-z ]+)"', sources
        )
        assert {"started", "login failed"} <= set(logged)
        assert {*logged, "available", "draining", "unavailable", "log lines dropped"} == set(
            rows(section, r"[a-z ]+")
        )


class TestCommands:
    """docs/reference/commands.md, and what the other pages type."""

    def test_it_has_every_command_with_a_section(self) -> None:
        scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
        assert set(rows(COMMANDS, r"[a-z]+")) == {*NAMES, *scripts} - {"clustercheckd"}

    def test_it_has_every_exit_status(self) -> None:
        found = {}
        for section in re.split(r"^## ", COMMANDS, flags=re.MULTILINE):
            for statuses in re.findall(r"^Exit status: (.+)", section, re.MULTILINE):
                found[section.partition("\n")[0]] = " ".join(re.findall(r"`(\d+)`", statuses))
        # 2 stands above the sections, for all but those where it means more.
        usual = NAMES["check"].exits[2]
        expected = {
            name: " ".join(str(code) for code, meaning in command.exits.items() if meaning != usual)
            for name, command in NAMES.items()
        }
        assert expected.pop("drain") == expected.pop("undrain") == found.pop("drain and undrain")
        assert found == {**expected, "clustercheck": "0 1"}

    def test_it_has_the_flags_that_set_no_setting_and_none_that_no_command_has(self) -> None:
        flags = {"--version", *(flag for name in NAMES for flag in flags_of(name))}
        assert flags_in(COMMANDS) | flags_in(SETTINGS) <= flags
        assert flags - flags_of("serve") <= flags_in(COMMANDS)


def flags_of(command: str) -> set[str]:
    """Return the flags of a command of clustercheckd."""
    return set(Parser(command).flags())


def rows(page: str, word: str) -> list[str]:
    """Return the code words in the first column of a page's tables, linked or not, that match a
    pattern.
    """
    return re.findall(rf"^\| \[?`({word})`", page, re.MULTILINE)


@cache
def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", without_blocks(path.read_text()), re.MULTILINE)
    words = [re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading)) for heading in headings]
    return {heading.lower().replace(" ", "-") for heading in words}


def reasons_in_the_order_of_the_rules() -> list[Reason]:
    """Return the reasons that the rules at the top of app/verdict/rules.py name, each where it
    comes first.
    """
    rules = (sys.modules[decide.__module__].__doc__ or "").splitlines()
    named = [rule.rpartition("   ")[2] for rule in rules if "   " in rule.strip()]
    words = [word.strip() for part in named for word in part.replace("AVAILABLE:", "").split(",")]
    return [Reason(word) for word in dict.fromkeys(words) if word in set(Reason)]
