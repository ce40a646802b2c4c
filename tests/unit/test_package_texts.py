"""The texts of the packages that are made from the program's own cannot drift from it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from dotenv import dotenv_values

from app.commands.clustercheck import USAGE
from app.commands.parser import NAMES
from app.settings import WITHOUT_FLAG, Settings, flag_of

ROOT = Path(__file__).parents[2]


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
    plain = page.replace("[no-]", "")
    for name in Settings.model_fields:
        assert f".B {name.upper()}\n" in page
        if name not in WITHOUT_FLAG:
            assert f".B {flag_of(name)}" in plain
    for command in NAMES:
        assert f".SH CLUSTERCHECKD {command.upper()}\n" in page
    assert ".B --password-file PATH" in page


def test_the_drop_ins_page_is_its_usage() -> None:
    shown = text("clustercheckd-clustercheck.8").replace("\\-", "-").replace("\\(aq", "'")
    assert USAGE in shown
