"""The texts of the packages that are made from the program's own cannot drift from it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from dotenv import dotenv_values

from app.commands.clustercheck import USAGE
from app.commands.parser import COMMANDS
from app.settings import WITHOUT_FLAG, Settings, flag_of

ROOT = Path(__file__).parents[2]
DOCUMENTS = "/usr/share/doc/clustercheckd/"


def text(name: str) -> str:
    """Make one of the texts, as the build does."""
    command = [sys.executable, "packaging/texts.py", name]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def env_file() -> str:
    return text("env")


@pytest.fixture(scope="module")
def page() -> str:
    return text("clustercheckd.8").replace("\\-", "-")


def test_the_file_of_settings_sets_nothing(env_file: str) -> None:
    assert all(not line or line.startswith("#") for line in env_file.splitlines())


def test_it_has_each_setting_once_under_its_line_of_help(env_file: str) -> None:
    settings = re.findall(r"^#([A-Z_]+)=", env_file, re.MULTILINE)
    assert settings == [name.upper() for name in Settings.model_fields]
    assert not re.search(r"\n\n#[A-Z_]+=", env_file)
    unwrapped = env_file.replace("\n# ", " ")
    assert all(str(field.description) in unwrapped for field in Settings.model_fields.values())


def test_what_it_shows_are_the_defaults(env_file: str, tmp_path: Path) -> None:
    uncommented = tmp_path / "env"
    uncommented.write_text(re.sub(r"^#([A-Z_]+=)", r"\1", env_file, flags=re.MULTILINE))
    values = {name.lower(): value for name, value in dotenv_values(uncommented).items() if value}
    assert Settings.model_validate(values) == Settings.model_construct()


def test_the_man_page_has_each_flag_variable_and_command(page: str) -> None:
    for name in Settings.model_fields:
        assert f".B {name.upper()}\n" in page
        if name not in WITHOUT_FLAG:
            assert f".B {flag_of(name)}" in page
    for command in COMMANDS:
        assert f".SH CLUSTERCHECKD {command.upper()}\n" in page
    assert ".B --password-file PATH" in page


def test_the_drop_ins_page_is_its_usage() -> None:
    shown = text("clustercheckd-clustercheck.8").replace("\\-", "-").replace("\\(aq", "'")
    assert USAGE in shown


@pytest.fixture(scope="module")
def installed() -> set[str]:
    """Return what is installed below `DOCUMENTS`, with the folders and the link to the licence."""
    command = [sys.executable, "packaging/documents.py"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = {"LICENSE", *printed.splitlines()}
    return files | {str(folder) for file in files for folder in Path(file).parents}


def test_every_page_and_the_alerts_are_installed(installed: set[str]) -> None:
    assert {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")} <= installed
    assert {"README.md", "haproxy.cfg.example", "contrib/prometheus/alerts.yml"} <= installed


def test_the_links_of_installed_pages_lead_to_what_is_installed(installed: set[str]) -> None:
    linked = 0
    for page in sorted(file for file in installed if file.endswith(".md")):
        for target in re.findall(r"\]\((?!https?:)([^()\s#]+)", (ROOT / page).read_text()):
            assert os.path.normpath(Path(page).parent / target) in installed, f"{page}: {target}"
            linked += 1
    assert linked


@pytest.mark.parametrize(
    "name", ["packaging/first-steps.txt", "packaging/texts.py", "docs/install.md", "docs/operations.md"]
)
def test_the_places_that_a_text_names_are_installed(name: str, installed: set[str]) -> None:
    named = re.findall(rf"{DOCUMENTS}([\w./-]+\w)", (ROOT / name).read_text())
    assert set(named) <= installed | {"copyright"}
