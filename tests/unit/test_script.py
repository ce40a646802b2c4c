"""The inputs of the script, as the drop-in and migrate read them."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.script.inputs import DEFAULTS, assignments, effective, positionals
from app.settings.variables import Variable

ALL = ("me", "pw", "1", "/log", "0", "/my.cnf")
NAMES = "MYSQL_USERNAME MYSQL_PASSWORD AVAILABLE_WHEN_DONOR ERR_FILE AVAILABLE_WHEN_READONLY DEFAULTS_EXTRA_FILE"


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        ((), ()),
        (("me",), ("me",)),
        ((*ALL, "more"), ALL),
        (("", "", "1"), ("", "", "1")),
        (("-",), ("", "")),
        (("-", "1", "/log", "0", "/my.cnf"), ("", "", "1", "/log", "0", "/my.cnf")),
        (("-", "-"), ("", "", "-")),
        (("me", "-"), ("me", "-")),
        (("--", "pw"), ("--", "pw")),
        (("-me", "pw"), ("-me", "pw")),
    ],
)
def test_positionals_set_the_variables_in_order_and_a_dash_is_an_empty_account(
    arguments: Sequence[str], values: Sequence[str]
) -> None:
    assert positionals(arguments, "here") == [
        Variable(name, value, "here") for name, value in zip(NAMES.split(), values, strict=False)
    ]


NOT_EXPANDED = "MYSQL_HOST is used as written: clustercheckd does not expand it"


@pytest.mark.parametrize(
    ("line", "value", "complaint"),
    [
        ("MYSQL_HOST=db1", "db1", None),
        ("  export MYSQL_HOST=db1", "db1", None),
        ("declare -x MYSQL_HOST='db 1'", "db 1", None),
        ("MYSQL_USERNAME=a MYSQL_HOST=db1; OTHER=x", "db1", None),
        ('MYSQL_HOST="d"b\\1 # MYSQL_HOST=no', "db1", None),
        ("MYSQL_HOST=db#1", "db#1", None),
        ("MYSQL_HOST='$db'", "$db", None),
        (r"MYSQL_HOST='\$db'", r"\$db", None),
        (r'MYSQL_HOST="a\$b\`c\"d\\e\f"', r'a$b`c"d\e\f', None),
        (r'MYSQL_HOST="\\$db"', r"\$db", NOT_EXPANDED),
        (r"MYSQL_HOST=\$db", "$db", None),
        ("""MYSQL_HOST="it's $db" """, "it's $db", NOT_EXPANDED),
        ("# it's a comment", None, None),
        ("MYSQL_HOST=", "", None),
        ("MYSQL_HOST=db1&", "db1", None),
        ("# MYSQL_HOST=db1", None, None),
        ("MY_MYSQL_HOST=db1", None, None),
        ("echo MYSQL_HOST", None, None),
        ("MYSQL_HOST=$(hostname)", "$(hostname)", NOT_EXPANDED),
        ("MYSQL_HOST=`hostname`", "`hostname`", NOT_EXPANDED),
        ("MYSQL_HOST='db1", None, "a quote is not closed; the line is ignored"),
    ],
)
def test_lines_are_read_as_a_shell_reads_them_and_what_only_a_shell_can_evaluate_is_reported(
    tmp_path: Path, line: str, value: str | None, complaint: str | None
) -> None:
    file = tmp_path / "file"
    file.write_text(f"# comment\n{line}\nMYSQL_PORT=1\n")
    complaints: list[str] = []
    seen = {given.name: given for given in assignments(file, complaints)}
    assert seen.get("MYSQL_HOST") == (
        None if value is None else Variable("MYSQL_HOST", value, f"{file}, line 2")
    )
    assert seen["MYSQL_PORT"] == Variable("MYSQL_PORT", "1", f"{file}, line 3")
    assert complaints == ([f"{file}, line 2: {complaint}"] if complaint else [])


def test_a_file_that_cannot_be_read_is_reported_and_a_missing_one_is_not(tmp_path: Path) -> None:
    complaints: list[str] = []
    assert [*assignments(tmp_path, complaints), *assignments(tmp_path / "none", complaints)] == []
    os.mkfifo(tmp_path / "pipe")
    assert [*assignments(tmp_path / "pipe", complaints)] == []
    assert complaints == [f"{tmp_path}: not a regular file", f"{tmp_path}/pipe: not a regular file"]


def test_the_last_value_applies_and_empty_means_the_default_except_for_the_account() -> None:
    given = [
        *(Variable(name, "first") for name in ("MYSQL_USERNAME", "ERR_FILE", "MYSQL_HOST", "PATH")),
        *(
            Variable(name, "")
            for name in ("MYSQL_PASSWORD", "MYSQL_PORT", "AVAILABLE_WHEN_DONOR", "MYSQL_USERNAME")
        ),
        Variable("ERR_FILE", "second"),
    ]
    account = {"MYSQL_USERNAME": "", "MYSQL_PASSWORD": ""}
    seen = {name: found.value for name, found in effective(given).items()}
    assert seen == {**DEFAULTS, **account, "ERR_FILE": "second", "MYSQL_HOST": "first"}
