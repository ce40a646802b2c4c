"""The inputs of the script, as the drop-in and migrate read them."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from app.script.inputs import DEFAULTS, assignments, effective, positionals
from app.settings.values import Variable


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (("me",), ("me",)),
        (
            ("me", "-", "1", "/log", "0", "/my.cnf", "more"),
            ("me", "-", "1", "/log", "0", "/my.cnf"),
        ),
        (("", "", "1"), ("", "", "1")),
        (("-", "1", "/log"), ("", "", "1", "/log")),
    ],
)
def test_positionals_set_the_variables_in_order_and_a_dash_is_an_empty_account(
    arguments: Sequence[str], values: Sequence[str]
) -> None:
    names = (
        "MYSQL_USERNAME MYSQL_PASSWORD AVAILABLE_WHEN_DONOR ERR_FILE AVAILABLE_WHEN_READONLY"
        " DEFAULTS_EXTRA_FILE"
    )
    assert positionals(arguments, "here") == [
        Variable(name, value, "here")
        for name, value in zip(names.split(), values, strict=False)
    ]


@pytest.mark.parametrize(
    ("line", "value", "complaints"),
    [
        ("  export MYSQL_HOST=db1", "db1", 0),
        ("MYSQL_USERNAME=a MYSQL_HOST='db 1'; OTHER=x", "db 1", 0),
        ('MYSQL_HOST="d"b\\1 # MYSQL_HOST=no', "db1", 0),
        ("MYSQL_HOST=db#1", "db#1", 0),
        ("MYSQL_HOST=db1&", "db1", 0),
        ("# it's a comment, and MYSQL_HOST=db1", None, 0),
        ("MY_MYSQL_HOST=db1", None, 0),
        ("echo MYSQL_HOST", None, 0),
        ("MYSQL_HOST='db1", None, 1),
        ("MYSQL_HOST=db\0", None, 1),
        ("MYSQL_HOST='d\x0cb'\r", "d\x0cb", 0),
        # What a shell may expand is used as written.
        # What a shell may expand is used as written.
        (r"MYSQL_HOST='\$db'", r"\$db", 1),
        (r'MYSQL_HOST="a\$b\`c\"d\\e\f"', r'a$b`c"d\e\f', 1),
        (r'MYSQL_HOST="\\$db"', r"\$db", 1),
        (r"MYSQL_HOST=\$db", "$db", 1),
        ("""MYSQL_HOST="it's $db" """, "it's $db", 1),
        ("MYSQL_HOST=`hostname`", "`hostname`", 1),
    ],
)
def test_lines_are_read_as_a_shell_reads_them_and_what_cannot_be_is_reported(
    tmp_path: Path, line: str, value: str | None, complaints: int
) -> None:
    file = tmp_path / "file"
    file.write_text(f"# comment\n{line}\nMYSQL_PORT=1\n", newline="")
    reported: list[str] = []
    values = {
        variable.name: variable.value for variable in assignments([str(file)], reported)
    }
    assert (values.get("MYSQL_HOST"), values["MYSQL_PORT"]) == (value, "1")
    where = [complaint.partition(": ")[0] for complaint in reported]
    assert where == [f"{file}, line 2"] * complaints


def test_a_file_that_cannot_be_read_is_reported_and_a_missing_one_is_not(
    tmp_path: Path,
) -> None:
    complaints: list[str] = []
    paths = [str(tmp_path), str(tmp_path / "none")]
    assert list(assignments(paths, complaints)) == []
    assert complaints == [f"{tmp_path}: not a regular file"]


def test_the_last_value_applies_and_empty_means_the_default_except_for_the_account() -> (
    None
):
    variables = [
        Variable("MYSQL_PASSWORD", ""),
        Variable("MYSQL_HOST", ""),
        Variable("PATH", "/bin"),
        Variable("ERR_FILE", "first"),
        Variable("ERR_FILE", "second"),
        Variable("ERR_FILE", ""),
    ]
    values = {name: variable.value for name, variable in effective(variables).items()}
    assert values == {**DEFAULTS, "MYSQL_PASSWORD": "", "ERR_FILE": "second"}
