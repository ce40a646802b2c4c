"""The command line: each command with its own flags, and one line for each mistake that says what
to type.
"""

import re
import shlex

import pytest

from app import kinds
from app.__main__ import main
from app.commands.exit_status import MISUSED
from app.commands.parser import COMMANDS, parse, parser_of
from app.settings.settings import TABLE
from app.settings.source import Source

SECRET = "Geheim1"
NO_VALUE = "needs a value"


@pytest.mark.parametrize(
    ("typed", "command", "line"),
    [
        ("--prot 9300", "serve ", "serve does not take --prot"),
        ("check --port 1", "check ", "check does not take --port"),
        ("check --", "check ", "check does not take --"),
        ("-v", "serve ", "serve does not take -v"),
        (f"--{SECRET}", "serve ", "serve does not take (not repeated here)"),
        (
            f"--mysql-password {SECRET}",
            "serve ",
            "serve does not take --mysql-password",
        ),
        (f"status -p{SECRET}", "status ", "status does not take (not repeated here)"),
        (f"MYSQL_PASSWORD={SECRET} check", "", "(not repeated here) is not a command"),
        (
            f"check MYSQL_PASSWORD={SECRET}",
            "check ",
            "check takes no more arguments: for another node, run it there",
        ),
        (
            f"drain {SECRET}",
            "drain ",
            (
                "drain takes no more arguments: for another node, run it there;"
                " a reason follows --reason"
            ),
        ),
        ("serve --port --poll-interval 1", "serve ", f"--port {NO_VALUE}"),
        (f'status --watch="{SECRET}\'"', "status ", "--watch takes no value"),
        ("node", "", "node is not a command"),
    ],
)
def test_a_mistake_in_the_words_is_one_line_that_names_the_help(
    typed: str, command: str, line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    error = error_of(typed, capfd)
    assert (
        error
        == f"clustercheckd: {line}; for help, run: clustercheckd {command}--help\n"
    )
    assert SECRET not in error


NOT_LISTENING = "cannot listen on CLUSTERCHECK_HOST="


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("status db1:99999", "status: not an address"),
        ("status http://db1:9200/", "status: not an address"),
        (f"status me:{SECRET}@db1:9200", "status: not an address"),
        (
            "--host a..b --port 0",
            "CLUSTERCHECK_HOST: must be an address or a host name of this host",
        ),
        (
            "--host 192.0.2.1 --port 0",
            f"{NOT_LISTENING}192.0.2.1: Cannot",
        ),
        ("check --max-recv-queue -1", "--max-recv-queue: MAX_RECV_QUEUE: must be "),
        (
            "check --mysql-password-file geheim",
            "--mysql-password-file: MYSQL_PASSWORD_FILE: must be an absolute path",
        ),
        (
            "check --mysql-password-file /dev",
            "MYSQL_PASSWORD_FILE: /dev: not a regular file",
        ),
        (
            "check --mysql-host db2 --mysql-ssl-ca /none",
            "MYSQL_SSL_CA: /none: No such file",
        ),
        (
            "--mysql-host db2 --mysql-ssl-ca /etc/passwd",
            "MYSQL_SSL_CA: /etc/passwd: no cert",
        ),
    ],
)
def test_a_value_that_cannot_be_used_is_one_line_that_names_the_setting_and_its_flag(
    typed: str, line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    error = error_of(typed, capfd)
    assert error.startswith(f"clustercheckd: {line}")
    assert (error.count("\n"), SECRET in error) == (1, False)


def error_of(typed: str, capfd: pytest.CaptureFixture[str]) -> str:
    """Return what the command line prints for a mistake."""
    assert main(typed.split()) == MISUSED
    printed = capfd.readouterr()
    assert not printed.out
    return printed.err


@pytest.mark.parametrize("typed", ["", "--port 9300", "serve --port=9300"])
def test_without_a_command_it_serves(typed: str) -> None:
    assert parse(typed.split()).command == "serve"


@pytest.mark.parametrize(
    ("typed", "name", "expected"),
    [
        ("--available-when-donor", "available_when_donor", True),
        (
            "--available-when-donor --available-when-donor=0",
            "available_when_donor",
            False,
        ),
        ("--any-path=yes", "clustercheck_any_path", True),
        ("--any-path off", "clustercheck_any_path", False),
    ],
)
def test_a_switch_may_stand_alone(typed: str, name: str, expected: object) -> None:
    assert getattr(Source(parse(typed.split()).flags).load()[0], name) == expected


def test_arguments_of_status_may_stand_among_its_flags() -> None:
    typed = parse(["status", "--json", "db1", "--port", "9300", "db2:9200", "--watch"])
    assert (typed.addresses, typed.json, typed.watch) == (
        ["db1", "db2:9200"],
        True,
        True,
    )
    assert typed.flags == {"clustercheck_port": "9300"}


def flags_of(name: str) -> set[str]:
    """Return the flags in the help of a command."""
    return set(
        re.findall(r"^  (--[a-z-]+)", parser_of(name).format_help(), re.MULTILINE)
    )


def test_a_command_has_only_the_flags_it_uses_and_none_has_one_for_the_password() -> (
    None
):
    flags = {name: flags_of(name) - {"--help", "--env-file"} for name in COMMANDS}
    assert flags["serve"] >= {
        row.flag for row in TABLE.values() if row.kind is not kinds.SECRET
    }
    assert not [flag for flag in flags["serve"] if flag.endswith("password")]
    own = {"--all", "--json", "--settings", "--watch"}
    assert flags["status"] == {"--host", "--port"} | own
    assert flags["drain"] == {"--disabled-file", "--port", "--reason"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_ends_with_an_example_that_can_be_typed_and_the_exit_statuses(
    name: str,
) -> None:
    _, _, end = (
        parser_of(name).format_help().partition("\n\nExample:\n  $ clustercheckd ")
    )
    example, _, statuses = end.partition("\n\nExit status:\n")
    assert parse(shlex.split(example)).command == name
    assert all(re.match(r"  \d  \S", line) for line in statuses.splitlines())
