"""The command line: each command with its own flags, and one line for each mistake that says what to type."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from app.__main__ import MISUSED, main
from app.commands.parser import COMMANDS, NAMES, help_text, parse, parser_of
from app.settings import WITHOUT_FLAG, Settings, flag_of, load_settings

SECRET = "Geheim1"
PASSWORD_HAS_NO_FLAG = (
    "there is no flag for the password, because every user of this host can read a command line: set"
    " MYSQL_PASSWORD_FILE or --mysql-password-file"
)
OF_THIS_HOST = " works on this host only: for others, type clustercheckd status HOST"
NOT_AN_ADDRESS = "not an address; examples: db1, db1:9200, [fd00::1]:9200"
NOT_A_DURATION = "is not a duration; examples: 0.25, 250ms, 1s, 5m, 2h"
NOT_A_BOOLEAN = "is neither 1 (yes, true, on) nor 0 (no, false, off)"
MISTAKES = [
    ("--prot 9300", "serve has no flag --prot: did you mean --port?"),
    ("--clustercheck-port 9300", "serve has no flag --clustercheck-port: did you mean --port?"),
    ("--clustercheck-poll-interval 1", "serve has no flag --clustercheck-poll-interval: did you mean --interval?"),
    ("check --timeout 1s", "check has no flag --timeout: did you mean --deadline?"),
    ("check --mysql-user x", "check has no flag --mysql-user: did you mean --mysql-username?"),
    ("check --user x", "check has no flag --user: did you mean --mysql-username?"),
    ("check -u x", "check has no flag -u: did you mean --mysql-username?"),
    ("check --ssl-ca x", "check has no flag --ssl-ca: did you mean --mysql-ssl-ca?"),
    ("-port 9300", "type two hyphens: --port"),
    ("check -deadline=1s", "type two hyphens: --deadline"),
    ("\N{EM DASH}port 9300", "an argument begins with a typographic dash: type hyphens, as in --help"),
    ("check \N{EN DASH}json", "an argument begins with a typographic dash: type hyphens, as in --help"),
    ("check --", "check has no flag --; for help, type: clustercheckd check --help"),
    (
        "check --version",
        "check has no flag --version: type clustercheckd --version; for help, type: clustercheckd check --help",
    ),
    ("-v", "serve has no flag -v; for help, type: clustercheckd serve --help"),
    (f"--{SECRET}", "serve does not have this flag; for help, type: clustercheckd serve --help"),
    (f"--mysql-password {SECRET}", PASSWORD_HAS_NO_FLAG),
    (f"--mysql-password={SECRET} check", PASSWORD_HAS_NO_FLAG),
    (f"--mysqlpassword={SECRET}", PASSWORD_HAS_NO_FLAG),
    (f"--MYSQL_PASSWORD={SECRET}", PASSWORD_HAS_NO_FLAG),
    (f"status -p{SECRET}", "status needs no password; for help, type: clustercheckd status --help"),
    (
        f"MYSQL_PASSWORD={SECRET} check",
        "MYSQL_PASSWORD is a variable: type it before the command, as in MYSQL_PASSWORD=... clustercheckd",
    ),
    (
        f"check MYSQL_PASSWORD={SECRET}",
        "MYSQL_PASSWORD is a variable: type it before the command, as in MYSQL_PASSWORD=... clustercheckd",
    ),
    (f"check --password {SECRET}", PASSWORD_HAS_NO_FLAG),
    (f"check -p{SECRET}", PASSWORD_HAS_NO_FLAG),
    (f"-p {SECRET} check", PASSWORD_HAS_NO_FLAG),
    (
        "--port 9300 check",
        (
            "check has no flag --port; these commands have it: serve, status, drain, undrain; for help, type:"
            " clustercheckd check --help"
        ),
    ),
    (
        "watch --json",
        "watch has no flag --json; these commands have it: check, status; for help, type: clustercheckd watch --help",
    ),
    (
        "migrate --port 1",
        (
            "migrate has no flag --port; these commands have it: serve, status, drain, undrain; for help, type:"
            " clustercheckd migrate --help"
        ),
    ),
    ("--port", "--port needs a value; for help, type: clustercheckd serve --help"),
    ("--port --interval 1", "--port needs a value; for help, type: clustercheckd serve --help"),
    ("status --host=", "--host needs a value; for help, type: clustercheckd status --help"),
    ("check --env-file=", "--env-file needs a value; for help, type: clustercheckd check --help"),
    ("migrate --password-file=", "--password-file needs a value; for help, type: clustercheckd migrate --help"),
    ("check --env-file", "--env-file needs a value; for help, type: clustercheckd check --help"),
    ("status --watch=1", "--watch takes no value; for help, type: clustercheckd status --help"),
    (
        "--no-available-when-donor=1",
        "--no-available-when-donor takes no value; for help, type: clustercheckd serve --help",
    ),
    ("chekc", "chekc is not a command: did you mean check?"),
    ("node", "node is not a command; for help, type: clustercheckd --help"),
    (SECRET, "the first argument is not a command; for help, type: clustercheckd --help"),
    ("CHECK", "the first argument is not a command: did you mean check?"),
    ("start", "start is not a command: did you mean serve?"),
    ("version", "version is not a command: did you mean --version?"),
    ("restart", "restart is not a command; for help, type: clustercheckd --help"),
    ("check check", "check is typed twice: type it once"),
    ("check help", "for help, type: clustercheckd check --help"),
    ("check watch", "check and watch are two commands: type one of them"),
    (f"serve {SECRET}", "serve takes flags only: type each with its two dashes"),
    ("check db2", f"check{OF_THIS_HOST}"),
    ("drain db2", f"drain{OF_THIS_HOST}"),
    ("status db1:99999", "status: db1:99999: 99999 is out of range (1-65535)"),
    ("status [::1", "status: [::1: not an address; examples: db1, db1:9200, [fd00::1]:9200"),
    ("status http://db1:9200/", f"status: http://db1:9200/: {NOT_AN_ADDRESS}"),
    (f"status me:{SECRET}@db1:9200", f"status: {NOT_AN_ADDRESS}"),
    ("--host 127.0.0.1:9300", "--host: 127.0.0.1:9300 contains a port: set --host=127.0.0.1 and --port=9300"),
    ("--host [::1]:9300", "--host: [::1]:9300 contains a port: set --host=::1 and --port=9300"),
    ("--host a..b --port 0", "cannot listen on --host=a..b --port=0: not an address or a host name"),
    ("--port 99999", "--port: 99999 is out of range (0-65535)"),
    ("--port x", "--port: x is not a whole number"),
    ("check --max-recv-queue -1", "--max-recv-queue: -1 is out of range (0 or more)"),
    ("--interval 0", "--interval: 0 is out of range (0.05-60 seconds)"),
    ("check --deadline 2h", "--deadline: 2h is out of range (0.05-60 seconds)"),
    ("--interval fast", f"--interval: fast {NOT_A_DURATION}"),
    ("--drain-seconds 5x", f"--drain-seconds: 5x {NOT_A_DURATION}"),
    ("--available-when-donor=2", f"--available-when-donor: 2 {NOT_A_BOOLEAN}"),
    ("--log-level loud", "--log-level: loud is not one of debug, info, warning, error"),
    ("--drain-status 500", "--drain-status: 500 is not one of 404, 503"),
    ("--disabled-file x", "--disabled-file: x is not an absolute path; example: /var/tmp/clustercheck.disabled"),
    (
        "--allow-from 10.0.0.1/8",
        "--allow-from: 10.0.0.1/8 has host bits set: did you mean 10.0.0.0/8, or the address 10.0.0.1?",
    ),
    (
        "--allow-from everybody",
        "--allow-from: everybody is not an address or a network; example: 10.0.0.21 10.1.0.0/16",
    ),
    (
        "check --mysql-host 127.0.0.1:3306",
        (
            "--mysql-host=127.0.0.1:3306 is not a host name or an IP address: set --mysql-host=127.0.0.1 and"
            " --mysql-port=3306"
        ),
    ),
    (
        "check --mysql-socket /s --mysql-port 1",
        "--mysql-socket=/s and --mysql-port=1 may name two servers: unset one of them",
    ),
    (
        "check --mysql-host db2 --mysql-ssl-key /key",
        "--mysql-ssl-key is set without --mysql-ssl-cert: set both or neither",
    ),
    ("check --env-file /none", "--env-file: /none does not exist"),
    ("check --env-file /dev/stdin", "--env-file: /dev/stdin is not a regular file"),
    ("check --mysql-password-file /none", "--mysql-password-file: /none: No such file or directory"),
    ("check --defaults-extra-file /none", "--defaults-extra-file: /none: No such file or directory"),
    ("check --mysql-host db2 --mysql-ssl-ca /none", "--mysql-ssl-ca: /none: No such file or directory"),
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


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        ("", "serve"),
        ("serve", "serve"),
        ("--port 9300", "serve"),
        ("--port 9300 serve", "serve"),
        ("--port=9300 status", "status"),
        ("--deadline 1s check --json", "check"),
        ("--available-when-donor check", "check"),
        ("--available-when-donor no check", "check"),
        ("--no-available-when-donor watch", "watch"),
        ("--available-when-donor=1 --mysql-ssl watch", "watch"),
        ("--mysql-username check", "serve"),
        ("--env-file status drain", "drain"),
        ("--password-file watch migrate", "migrate"),
    ],
)
def test_flags_before_the_command_do_not_hide_it(typed: str, command: str) -> None:
    assert parse(typed.split()).command == command


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
    assert (typed.words, typed.switches) == (["db1", "db2:9200"], ["json", "watch"])
    assert typed.settings == {"clustercheck_port": "9300"}


def test_serve_has_a_flag_for_every_setting_but_the_password() -> None:
    flags = set(parser_of("serve").flags())
    assert {flag_of(name) for name in Settings.model_fields if name not in WITHOUT_FLAG} <= flags
    assert not [flag for flag in flags if flag.endswith("password")]


def test_a_command_has_only_the_flags_it_uses() -> None:
    listening = {"--host", "--port", "--help", "--env-file"}
    assert set(parser_of("status").flags()) == {*listening, "--json", "--watch"}
    assert set(parser_of("drain").flags()) == {*listening, "--disabled-file"}
    assert parser_of("undrain").flags() == parser_of("drain").flags()
    assert not {"--host", "--port", "--interval", "--log-level"} & set(parser_of("check").flags())
    assert set(parser_of("watch").flags()) == {*parser_of("check").flags(), "--drain-status"} - {"--json"}


def test_every_help_fits_on_a_screen_of_40_lines() -> None:
    for command in ([], *([name] for name in NAMES)):
        lines = help_of(command)
        assert len(lines) <= 40, command
        assert max(map(len, lines)) <= 80, command


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("asking", ["help", "--help", "-h"])
def test_help_may_stand_before_the_command(asking: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for typed in ([asking, name], [name, "--help"]):
        with pytest.raises(SystemExit) as exited:
            main(typed)
        assert exited.value.code == 0
        printed.append(capsys.readouterr().out)
    assert printed[0].startswith(f"usage: clustercheckd {name} ")
    assert printed[0] == printed[1]


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
    for command in ([], ["check"], ["migrate"]):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "app", *command, "--help"],
                cwd=Path(__file__).parents[2],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=30,
                check=False,
            )
        assert done.stderr == "clustercheckd: standard output: No space left on device\n"


def test_the_help_lists_every_command() -> None:
    assert all(f"\n  {name} " in help_text() for name in NAMES)
    assert all(command.summary in " ".join(help_text().split()) for command in COMMANDS.values())


def settings_of(flags: Sequence[str]) -> Settings:
    """Load settings from these flags."""
    return load_settings(parse(flags).settings)[0]


def help_of(command: Sequence[str]) -> list[str]:
    """Return the lines of a command's help, as a terminal of 80 columns shows them."""
    done = subprocess.run(
        [sys.executable, "-m", "app", *command, "--help"],
        cwd=Path(__file__).parents[2],
        env={"COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return done.stdout.splitlines()
