"""The command line: each command with its own flags, and one line for each mistake that says what to type."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.__main__ import main
from app.commands.exit_status import MISUSED
from app.commands.parser import COMMANDS, help_text, parse, parser_of
from app.settings import WITHOUT_FLAG, Settings, flag_of, load_settings

SECRET = "Geheim1"
FLAGS_ONLY = "works on this host and takes flags only, after the command"
NO_ADDRESS = "not an address; examples: db1 db1:9200 [fd00::1]:9200"
HELP = "; for help, run: clustercheckd"
NO_PASSWORD = "every user of this host can read a command line: set MYSQL_PASSWORD_FILE; for help, run: clustercheckd"
MISTAKES = [
    ("--prot 9300", f"serve has no flag --prot: did you mean --port?{HELP} serve --help"),
    ("-port 9300", f"serve has no flag -port: did you mean --port?{HELP} serve --help"),
    ("--clustercheck-port 1", f"serve has no flag --clustercheck-port: did you mean --port?{HELP} serve --help"),
    ("serve --poll-interval 1", f"serve has no flag --poll-interval: did you mean --interval?{HELP} serve --help"),
    ("check --mysql-user x", f"check has no flag --mysql-user: did you mean --mysql-username?{HELP} check --help"),
    ("check --port 1", f"check has no flag --port{HELP} check --help"),
    ("drain --host db2", f"drain has no flag --host{HELP} drain --help"),
    ("undrain --reason x", f"undrain has no flag --reason{HELP} undrain --help"),
    ("check --", f"check has no flag --{HELP} check --help"),
    ("check --version", f"check has no flag --version{HELP} check --help"),
    ("-v", f"serve has no flag -v{HELP} serve --help"),
    (f"--{SECRET}", f"serve has no flag (not repeated here){HELP} serve --help"),
    (f"--mysql-password {SECRET}", f"{NO_PASSWORD} serve --help"),
    (f"check --mysql-password={SECRET}", f"{NO_PASSWORD} check --help"),
    (f"--MYSQL_PASSWORD={SECRET}", f"{NO_PASSWORD} serve --help"),
    (f"check --password {SECRET}", f"{NO_PASSWORD} check --help"),
    (f"status -p{SECRET}", f"{NO_PASSWORD} status --help"),
    (f"MYSQL_PASSWORD={SECRET} check", f"(not repeated here) is not a command{HELP} --help"),
    (
        f"check MYSQL_PASSWORD={SECRET}",
        f"check {FLAGS_ONLY}{HELP} check --help",
    ),
    (f"serve {SECRET}", f"serve {FLAGS_ONLY}{HELP} serve --help"),
    (f"migrate --password={SECRET}", f"{NO_PASSWORD} migrate --help"),
    ("--port", f"--port needs a value{HELP} serve --help"),
    ("serve --port --interval 1", f"--port needs a value{HELP} serve --help"),
    ("status --host=", f"--host needs a value{HELP} status --help"),
    ("check --env-file=", f"--env-file needs a value{HELP} check --help"),
    ("status --watch=1", f"--watch takes no value{HELP} status --help"),
    ("chekc", f"chekc is not a command: did you mean check?{HELP} --help"),
    ("CHECK", f"(not repeated here) is not a command: did you mean check?{HELP} --help"),
    ("node", f"node is not a command{HELP} --help"),
    (SECRET, f"(not repeated here) is not a command{HELP} --help"),
    ("--port 9300 status", f"serve {FLAGS_ONLY}{HELP} serve --help"),
    ("drain db2", f"drain {FLAGS_ONLY}{HELP} drain --help"),
    ("status db1:99999", "status: db1:99999: 99999 is out of range (1-65535)"),
    ("status [::1", f"status: '[::1' is {NO_ADDRESS}"),
    ("status http://db1:9200/", f"status: 'http://db1:9200/' is {NO_ADDRESS}"),
    ("status db1,db2", f"status: 'db1,db2' is {NO_ADDRESS}"),
    (f"status me:{SECRET}@db1:9200", f"status: {NO_ADDRESS}"),
    (
        "--host [::1]:9300 --port 0",
        "cannot listen on CLUSTERCHECK_HOST=[::1]:9300 CLUSTERCHECK_PORT=0: not an address or a host name",
    ),
    (
        "--host a..b --port 0",
        "cannot listen on CLUSTERCHECK_HOST=a..b CLUSTERCHECK_PORT=0: not an address or a host name",
    ),
    ("--port x", "CLUSTERCHECK_PORT (--port): x is not a whole number"),
    ("check --max-recv-queue -1", "MAX_RECV_QUEUE (--max-recv-queue): -1 is out of range (0 or more)"),
    ("check --deadline 2h", "CLUSTERCHECK_DEADLINE (--deadline): 2h is out of range (0.05-60 seconds)"),
    (
        "--available-when-donor=2",
        "AVAILABLE_WHEN_DONOR (--available-when-donor): 2 is neither 1 (yes, true, on) nor 0 (no, false, off)",
    ),
    ("--drain-status 500", "CLUSTERCHECK_DRAIN_STATUS (--drain-status): 500 is not one of 404, 503"),
    (
        "drain --disabled-file x",
        (
            "CLUSTERCHECK_DISABLED_FILE (--disabled-file): 'x' is not an absolute path; example:"
            " /var/tmp/clustercheck.disabled"
        ),
    ),
    ("--allow-from 10.0.0.1/8", "CLUSTERCHECK_ALLOW_FROM (--allow-from): 10.0.0.1/8 has host bits set"),
    (
        "check --mysql-host 127.0.0.1:3306",
        (
            "MYSQL_HOST=127.0.0.1:3306 is not a host name or an IP address:"
            " set a port, a socket or the account in MYSQL_PORT, MYSQL_SOCKET or MYSQL_USERNAME"
        ),
    ),
    (
        "check --mysql-socket /s --mysql-port 1",
        "MYSQL_SOCKET=/s and MYSQL_PORT=1 may name two servers: unset one of them",
    ),
    ("check --env-file /none", "--env-file: /none: No such file or directory"),
    ("check --mysql-password-file /none", "MYSQL_PASSWORD_FILE: No such file or directory"),
    ("check --mysql-host db2 --mysql-ssl-ca /none", "MYSQL_SSL_CA: /none: No such file or directory"),
]


@pytest.mark.parametrize(("typed", "line"), MISTAKES, ids=[typed for typed, _ in MISTAKES])
def test_a_mistake_is_one_line_that_says_what_to_type(
    typed: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed.split()) == MISUSED
    printed = capsys.readouterr()
    assert printed.err == f"clustercheckd: {line}\n"
    assert not printed.out
    assert SECRET not in printed.err


@pytest.mark.parametrize("typed", ["", "serve", "--port 9300", "serve --port=9300"])
def test_without_a_command_it_serves(typed: str) -> None:
    assert parse(typed.split()).command == "serve"


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (["--available-when-donor"], True),
        (["--no-available-when-donor"], False),
        *(([f"--available-when-donor={word}"], True) for word in ("1", "yes", "true", "TRUE", "On")),
        *((["--available-when-donor", word], False) for word in ("0", "no", "false", "No", "OFF")),
        (["--available-when-donor", "--no-available-when-donor"], False),
    ],
)
def test_a_flag_that_is_on_or_off_may_stand_alone(typed: list[str], *, expected: bool) -> None:
    assert settings_of(typed).available_when_donor is expected


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [("1", 1), ("0.5", 0.5), (".5", 0.5), ("250ms", 0.25), ("800MS", 0.8), ("2s", 2), ("1 s", 1), ("1m", 60)],
)
def test_a_duration_may_have_a_unit(typed: str, seconds: float) -> None:
    assert settings_of(["--deadline", typed]).clustercheck_deadline == seconds
    assert settings_of(["--drain-seconds", "1h"]).clustercheck_drain_seconds == 3600


def test_arguments_of_status_may_stand_among_its_flags() -> None:
    typed = parse(["status", "--json", "db1", "--port", "9300", "db2:9200", "--watch"])
    assert typed.own == {"addresses": ["db1", "db2:9200"], "json": True, "watch": True}
    assert typed.settings == {"clustercheck_port": "9300"}


def test_serve_has_a_flag_for_every_setting_but_the_password() -> None:
    flags = set(parser_of("serve").flags())
    assert {flag_of(name) for name in Settings.model_fields if name not in WITHOUT_FLAG} <= flags
    assert not [flag for flag in flags if flag.endswith("password")]


def test_a_command_has_only_the_flags_it_uses() -> None:
    own = {"--help", "--env-file"}
    assert set(parser_of("status").flags()) == {*own, "--host", "--port", "--json", "--watch"}
    assert set(parser_of("undrain").flags()) == {*own, "--disabled-file", "--port"}
    assert set(parser_of("drain").flags()) == {*parser_of("undrain").flags(), "--reason"}
    assert not {"--host", "--port", "--interval", "--log-level"} & set(parser_of("check").flags())


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_every_help_fits_on_a_screen_of_40_lines(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert 5 < len(lines) <= 40
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("asking", ["help", "--help", "-h"])
def test_help_lists_the_commands(asking: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main([asking])
    assert exited.value.code == 0
    assert capsys.readouterr().out == f"{help_text()}\n"
    assert all(f"\n  {name} " in help_text() and command.about in help_text() for name, command in COMMANDS.items())


def test_an_argument_that_is_not_utf_8_is_printed_on_any_terminal() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "app", "status", b"\xff"],
        cwd=Path(__file__).parents[2],
        env={"PYTHONIOENCODING": "utf-8:strict"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "\\udcff: not a valid host name" in done.stdout


def test_a_help_that_cannot_be_printed_is_reported() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "app", "--help"],
            cwd=Path(__file__).parents[2],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.stderr == "clustercheckd: standard output: No space left on device\n"


def settings_of(flags: Sequence[str]) -> Settings:
    """Load settings from these flags."""
    return load_settings(parse(flags).settings)[0]
