"""Option files, read side by side with MariaDB's own reader."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from app.settings.error import SettingsError
from app.settings.option_file import GROUPS, read_option_file


def as_mariadb_reads(path: Path) -> dict[str, str | None]:
    """Return what my_print_defaults makes of a file: it shares its code with the client."""
    command = ["my_print_defaults", f"--defaults-file={path}", *GROUPS]
    printed = subprocess.run(
        command, capture_output=True, check=True, timeout=10
    ).stdout.decode("utf-8", "surrogateescape")
    options: dict[str, str | None] = {}
    for line in printed.split("\n")[:-1]:
        name, equals, value = line.removeprefix("--").partition("=")
        # my_print_defaults prints names as they are written.
        name = name.lower().replace("_", "-").removeprefix("loose-")
        options[name] = value if equals else None
    return options


def written(path: Path, text: str) -> Path:
    """Write a file that only its owner may change."""
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    path.chmod(0o600)
    return path


EXAMPLE = r"""
# a comment
 ; another
[client]
user = bob # the account
password="a#b'c" # x
port=3307
quick
single = 'a\'b#c'
escapes = a\tb\sc\x\\d
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
trailing = x\
loose_option=1
[mysqld]
user=mallory
[mysql]
prompt=x
!include ONE
!includedir MANY
! include ONE
!includes ONE
[client]
host=h1
host=h2
"""


GROUP_PIECES = (
    "[client]",
    "[CLIENT]",
    "[client-server]",
    "[mysqld]",
    "[client ]",
    "[client",
    "[]",
)
DIRECTIVES = (
    "!include ONE",
    "!include\tONE",
    "!includedir MANY",
    "!include /no/such",
    "!include",
)
BLANKS = (
    " ",
    "\t",
    "\v",
    "\f",
    "\r",
    "\n",
    "\n",
    "\n",
    "\x1c",
    "\x85",
    "\u2028",
    "\ufeff",
)
PIECES = (
    *GROUP_PIECES,
    *DIRECTIVES,
    *BLANKS,
    "!x",
    "host",
    "\\s",
    "\\x",
    *"[]a=-_é#;'\"\\!",
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
@example(EXAMPLE)
@example("a='x#\ry'")
@example("[CLIENT]\na")
@example("!includedir MANY\x85")
@example("host=a\0b\n!include /no/such\0file\nuser=x")
def test_any_file_is_read_as_mariadb_reads_it(tmp_path: Path, text: str) -> None:
    one = written(tmp_path / "one", "[client]\nuser=one\n[mysqld]\n")
    many = tmp_path / "many"
    (many / "directory.cnf").mkdir(parents=True, exist_ok=True)
    for name in (
        ".hidden.cnf",
        "Z.cnf",
        "a.CNF",
        "a.b.cnf",
        "é.cnf",
        "c.ini",
        "d.cnf~",
    ):
        written(many / name, f"[client]\nuser={name}\noption-{name}=1\n")
    text = text.replace("ONE", str(one)).replace("MANY", str(many))
    path = written(tmp_path / "my.cnf", f"[client]\n{text}\n")
    try:
        expected = as_mariadb_reads(path)
    except subprocess.CalledProcessError:
        with pytest.raises(SettingsError):
            read_option_file(str(path))
        return
    # An option without a name is of no use to anybody.
    assume("" not in expected)
    assert read_option_file(str(path)) == expected


SHOWN = ("host", "port", "socket", "user", "ssl-cert", "ssl-key")


@pytest.mark.parametrize(
    ("group", "beginning"),
    [
        *((group, "port") for group in (*GROUPS, "mysqld", "mariadb", "mysqldump")),
        *(("client", name[:end]) for name in SHOWN for end in range(1, len(name) + 1)),
    ],
)
def test_a_group_and_the_beginning_of_a_name_count_as_for_the_client(
    tmp_path: Path, group: str, beginning: str
) -> None:
    path = written(tmp_path / "my.cnf", f"[{group}]\n{beginning}=7\n")
    command = ["mariadb", f"--defaults-file={path}", "--help"]
    done = subprocess.run(
        command, capture_output=True, check=False, text=True, timeout=10
    )
    words = (line.split() for line in done.stdout.splitlines())
    told = {name: value for name, value, *_ in (w for w in words if len(w) == 2)}
    expected = {name: "7" for name in SHOWN if told.get(name) == "7"}
    options = read_option_file(str(path))
    assert {name: options[name] for name in SHOWN if name in options} == expected


def test_the_beginnings_of_what_the_client_does_not_show_count_too(
    tmp_path: Path,
) -> None:
    text = "[client]\npass=a\nproto=tcp\nssl_mod=x\nskip-ssl-verify\npa=b\npro=c\n"
    assert read_option_file(str(written(tmp_path / "my.cnf", text))) == {
        "password": "a",
        "protocol": "tcp",
        "ssl-mode": "x",
        "ssl-verify-server-cert": "0",
        "pa": "b",
        "pro": "c",
    }


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("user=x\n", "line 1: "),
        ("\n[client\n", "line 2: "),
        ("[client]\n!includedir\n", "line 2: "),
        (
            "!includedir /no/such/dir\n",
            "line 1: /no/such/dir: No such file or directory",
        ),
        ("!include {path}\n", "line 1: more than 10 files"),
    ],
)
def test_what_cannot_be_read_names_file_and_line(
    tmp_path: Path, text: str, line: str
) -> None:
    path = tmp_path / "my.cnf"
    written(path, text.format(path=path))
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
