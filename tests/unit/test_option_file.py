"""Option files, read side by side with MariaDB's own reader."""

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from app.settings.error import SettingsError
from app.settings.option_file import GROUPS, read_option_file
from harness.process import output_of


def as_mariadb_reads(path: Path) -> dict[str, str]:
    """Return what my_print_defaults makes of a file: it shares its code with the client."""
    command = ["my_print_defaults", f"--defaults-file={path}", *GROUPS]
    printed = subprocess.run(
        command, capture_output=True, check=True, timeout=10
    ).stdout.decode("utf-8", "surrogateescape")
    options: dict[str, str] = {}
    for line in printed.split("\n")[:-1]:
        name, _, value = line.removeprefix("--").partition("=")
        # my_print_defaults prints names as they are written.
        name = name.lower().replace("_", "-").removeprefix("loose-")
        options["ssl" if name.startswith("ssl") else name] = value
    return options


def written(path: Path, text: str) -> Path:
    """Write a file that only its owner may change."""
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    path.chmod(0o600)
    return path


EXAMPLE = """
# a comment
 ; another
[client]
user = bob # the account
password="a#b'c" # x
port=3307
quick
single = 'a"b#c'
semicolon=1 ; not a comment
under_score=2
[client-server]  trailing
socket = /a b/c
ssl
half = 'unbalanced # quote
inner = a"b#c"d # z
two = "a" b
empty =
quoted_empty = ""
loose_option=1
[mysqld]
user=mallory
[mysql]
prompt=x
ssl-ca=/x
[client]
host=h1
host=h2
"""


PIECES = (
    *("[client]", "[CLIENT]", "[client-server]", "[mysqld]", "[client ]", "[]"),
    *(" ", "\t", "\v", "\f", "\r", "\n", "\n", "\n"),
    *("host", *"[]a=-_é#;'\""),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@example(EXAMPLE)
@example("a='x#\ry'")
@example("[CLIENT]\na")
def test_any_file_that_mariadb_takes_is_read_as_mariadb_reads_it(
    tmp_path: Path, text: str
) -> None:
    path = written(tmp_path / "my.cnf", f"[client]\n{text}\n")
    try:
        expected = as_mariadb_reads(path)
    except subprocess.CalledProcessError:
        return
    # An option without a name is of no use to anybody.
    assume("" not in expected)
    assert read_option_file(str(path)) == expected


@pytest.mark.parametrize("group", [*GROUPS, "mysqld", "mariadb"])
def test_a_group_counts_as_for_the_client(tmp_path: Path, group: str) -> None:
    path = written(tmp_path / "my.cnf", f"[{group}]\nport=7\n")
    told = output_of("mariadb", f"--defaults-file={path}", "--help")
    is_read = re.search(r"^port +7$", told, re.MULTILINE) is not None
    assert (read_option_file(str(path)) == {"port": "7"}) == is_read


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("user=x\n", "line 1: the option is not in a group"),
        # The client would read each of these.
        ("[client]\n!includedir /etc/my.cnf.d\n", "line 2: no other file is read"),
        ("[client]\npass=geheim\n", "line 2: write the whole name"),
        ("[client]\npassword=a\\sb\n", "line 2: no backslash is read"),
    ],
)
def test_what_cannot_be_read_names_file_and_line(
    tmp_path: Path, text: str, line: str
) -> None:
    path = written(tmp_path / "my.cnf", text)
    with pytest.raises(SettingsError, match=f"^DEFAULTS_EXTRA_FILE: {path}, {line}"):
        read_option_file(str(path))


def test_what_is_no_safe_file_is_named(tmp_path: Path) -> None:
    writable = written(tmp_path / "my.cnf", "[client]\nuser=x\n")
    writable.chmod(0o666)
    for path, words in (
        (tmp_path / "none", "No such file"),
        (tmp_path, "not a regular file"),
        (writable, "is writable by every user: run chmod o-w "),
    ):
        with pytest.raises(
            SettingsError, match=f"^DEFAULTS_EXTRA_FILE: {path}:? {words}"
        ):
            read_option_file(str(path))
