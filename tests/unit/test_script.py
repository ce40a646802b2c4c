"""The inputs of the script, as the drop-in and migrate read them."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from app.commands.script import DEFAULTS, Given, assignments, effective, positionals

ALL = ("me", "pw", "1", "/log", "0", "/my.cnf")
NAMES = (
    "MYSQL_USERNAME",
    "MYSQL_PASSWORD",
    "AVAILABLE_WHEN_DONOR",
    "ERR_FILE",
    "AVAILABLE_WHEN_READONLY",
    "DEFAULTS_EXTRA_FILE",
)


@pytest.mark.parametrize("kind", [tuple, list])
@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ((), ()),
        (("me",), ("me",)),
        (ALL, ALL),
        ((*ALL, "more"), ALL),
        (("", "", "1"), ("", "", "1")),
        (("-",), ("", "")),
        (("-", "1"), ("", "", "1")),
        (("-", "1", "/log", "0", "/my.cnf"), ("", "", "1", "/log", "0", "/my.cnf")),
        (("-", "-"), ("", "", "-")),
        (("me", "-"), ("me", "-")),
        (("--", "pw"), ("--", "pw")),
        (("-me", "pw"), ("-me", "pw")),
    ],
)
def test_positionals_set_the_variables_in_order_and_a_dash_is_an_empty_account(
    arguments: Sequence[str], values: Sequence[str], kind: type[Sequence[str]]
) -> None:
    seen = positionals(kind(arguments), "here")  # type: ignore[call-arg]
    assert seen == [Given(name, value, "here") for name, value in zip(NAMES, values, strict=False)]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("MYSQL_HOST=db1", "db1"),
        ("  export MYSQL_HOST=db1", "db1"),
        ("declare -x MYSQL_HOST='db 1'", "db 1"),
        ("MYSQL_PORT=1 MYSQL_HOST=db1; OTHER=x", "db1"),
        ('MYSQL_HOST="d"b\\1 # MYSQL_HOST=no', "db1"),
        ("MYSQL_HOST=db#1", "db#1"),
        ("MYSQL_HOST='$db'", "$db"),
        ("MYSQL_HOST=", ""),
        ("MYSQL_HOST=db1&", "db1"),
        ("# MYSQL_HOST=db1", None),
        ("MYSQL_HOST", None),
        ("MY_MYSQL_HOST=db1", None),
        ("echo MYSQL_HOST", None),
    ],
)
def test_lines_are_read_as_a_shell_reads_them(tmp_path: Path, line: str, value: str | None) -> None:
    file = tmp_path / "file"
    file.write_text(f"# comment\n{line}\n")
    complaints: list[str] = []
    seen = [given for given in assignments(file, complaints) if given.name == "MYSQL_HOST"]
    assert seen == ([] if value is None else [Given("MYSQL_HOST", value, f"{file}, line 2")])
    assert complaints == []


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("MYSQL_HOST=$(hostname)", "MYSQL_HOST is used as written: clustercheckd does not expand it"),
        ("MYSQL_HOST=`hostname`", "MYSQL_HOST is used as written: clustercheckd does not expand it"),
        ("MYSQL_HOST='db1", "a quote is not closed; the line is ignored"),
    ],
)
def test_what_only_a_shell_can_evaluate_is_reported(tmp_path: Path, line: str, complaint: str) -> None:
    file = tmp_path / "file"
    file.write_text(f"{line}\nMYSQL_PORT=1\n")
    complaints: list[str] = []
    assert list(assignments(file, complaints))[-1] == Given("MYSQL_PORT", "1", f"{file}, line 2")
    assert complaints == [f"{file}, line 1: {complaint}"]


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    complaints: list[str] = []
    assert list(assignments(tmp_path, complaints)) == []
    assert complaints == [f"{tmp_path}: Is a directory"]


def test_the_last_value_applies_and_empty_means_the_default_except_for_the_account() -> None:
    given = [
        *(Given(name, "first", "a") for name in ("MYSQL_USERNAME", "ERR_FILE", "MYSQL_HOST", "PATH")),
        *(Given(name, "", "b") for name in ("MYSQL_PASSWORD", "MYSQL_PORT", "AVAILABLE_WHEN_DONOR")),
        Given("MYSQL_USERNAME", "", "b"),
        Given("ERR_FILE", "second", "b"),
    ]
    assert {name: found.value for name, found in effective(given).items()} == {
        **DEFAULTS,
        "MYSQL_USERNAME": "",
        "MYSQL_PASSWORD": "",
        "ERR_FILE": "second",
        "MYSQL_HOST": "first",
    }
