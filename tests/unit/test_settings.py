"""Environment, flags and env file into settings; bad ones into one line each."""

import math
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from app.commands.parser import parse
from app.settings.files import SettingsError
from app.settings.settings import DATABASE, POLICY, Settings, load_settings
from app.settings.target import Database
from app.settings.variables import seconds_in
from app.verdict.rules import Policy
from harness.service import without_settings

Load = Callable[..., tuple[Settings, list[str]]]
SECRET = "geheim"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Load:
    """Load settings and warnings from a command line and these variables alone."""
    monkeypatch.chdir(tmp_path)
    for name in without_settings(os.environ).keys() ^ os.environ.keys():
        monkeypatch.delenv(name)

    def loading(*arguments: str, **environ: str) -> tuple[Settings, list[str]]:
        with monkeypatch.context() as patch:
            for name, value in environ.items():
                patch.setenv(name, value)
            typed = parse(arguments)
            return load_settings(typed.flags, typed.env_file)

    return loading


def file_of(*lines: str) -> str:
    """Write an env file; return its path."""
    Path("env").write_text("\n".join(lines))
    return "env"


def error_of(load: Load, **environ: str) -> str:
    """Return the message about settings that cannot be used."""
    with pytest.raises(SettingsError) as caught:
        load(**environ)[0].require_login()
    return str(caught.value)


def test_the_defaults_are_those_of_the_database_and_the_policy(load: Load) -> None:
    settings, warnings = load()
    assert (settings.database(), settings.policy(), warnings) == (Database(), Policy(), [])


def test_every_setting_of_the_database_and_the_policy_reaches_it(load: Load) -> None:
    texts = {name: name.removeprefix("mysql_") for name in DATABASE}
    environ = {**texts, "mysql_port": "1", "mysql_ssl": "1", "mysql_ssl_verify": "ca"}
    database = load(**environ | {"mysql_password_file": ""})[0].database()
    others = {"port": 1, "ssl": True, "ssl_verify": "ca", "password_file": None}
    assert asdict(database) == {name: name for name in texts.values()} | others
    environ = dict.fromkeys(map(str.upper, POLICY), "0")
    environ |= {"AVAILABLE_WHEN_DONOR": "1", "MAX_SYNC_WAIT": "1500ms"}
    policy = load(**environ)[0].policy()
    assert [*asdict(policy)][1:] == POLICY
    assert policy == Policy(math.inf, True, False, False, 0, 1.5)  # noqa: FBT003 (the fields' order)


def test_flags_go_before_variables_before_the_env_file(load: Load) -> None:
    path = file_of("MYSQL_HOST=file", "MYSQL_USERNAME=file", "MYSQL_PORT=1")
    # An empty one is not set.
    environ = {"mysql_host": "variable", "MYSQL_USERNAME": "variable", "MYSQL_PORT": ""}
    settings, _ = load("--env-file", path, "--mysql-host", "flag", **environ)
    assert settings.database() == Database(None, "flag", 1, "variable")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_RECV_QUEUE", "hundred"),
        ("AVAILABLE_WHEN_DONOR", "2"),
        *(("CLUSTERCHECK_DEADLINE", value) for value in ("nan", "5x")),
        *(("CLUSTERCHECK_ALLOW_FROM", value) for value in ("", " , ", "10.0.0.1/8")),
        *(("CLUSTERCHECK_DISABLED_FILE", value) for value in ("", "x")),
        ("CLUSTERCHECK_LOG_LEVEL", "loud"),
    ],
)
def test_a_bad_value_is_one_line_that_names_the_setting(load: Load, name: str, value: str) -> None:
    message = error_of(load, **{name: value})
    assert message.startswith(f"{name}: {value}: ")
    assert message.isprintable()


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("MYSQL_PORT", 1, 65535),
        ("CLUSTERCHECK_PORT", 0, 65535),
        ("CLUSTERCHECK_POLL_INTERVAL", 0.05, 60),
        ("CLUSTERCHECK_LOGIN_INTERVAL", 0, 3600),
        ("CLUSTERCHECK_DEADLINE", 0.05, 60),
        ("CLUSTERCHECK_DRAIN_SECONDS", 0, 3600),
        ("MAX_RECV_QUEUE", 0, None),
        ("MAX_SYNC_WAIT", 0.1, 3600),
    ],
)
def test_the_bounds_of_a_number(load: Load, name: str, least: float, most: float | None) -> None:
    for value in filter(None, (least, most)):
        assert getattr(load(**{name: str(value)})[0], name.lower()) == value
    beyond = [least / 2 if isinstance(least, float) else least - 1, *([most + 1] if most else [])]
    for value in beyond:
        assert error_of(load, **{name: str(value)}).startswith(f"{name}: ")


def test_durations_have_units(load: Load) -> None:
    assert error_of(load, CLUSTERCHECK_DEADLINE="800").endswith("less than or equal to 60 s")
    assert error_of(load, MAX_RECV_QUEUE="-1").endswith("or equal to 0")
    texts = (".25", "250ms", "2 S", "1.5m", "1h")
    assert [seconds_in(text) for text in texts] == [0.25, 0.25, 2, 90, 3600]


def test_settings_that_exclude_each_other_are_named(load: Load) -> None:
    message = error_of(load, MYSQL_PASSWORD="x", MYSQL_PASSWORD_FILE="/x")
    assert message.startswith("MYSQL_PASSWORD and MYSQL_PASSWORD_FILE are both set")
    message = error_of(load, MAX_SYNC_WAIT="1", CLUSTERCHECK_LOGIN_INTERVAL="0")
    assert message.startswith("MAX_SYNC_WAIT: with CLUSTERCHECK_LOGIN_INTERVAL=0 ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MYSQL_PORT", SECRET),
        ("MYSQL_SSL", SECRET),
        ("MYSQL_PASSWORD_FILE", SECRET),
        ("MYSQL_PASSWORD_FILE", f"{SECRET}\udcff"),
        ("MYSQL_SOCKET", f"mysql://root:{SECRET}@db2/"),
        ("MYSQL_HOST", f"mysql://root:{SECRET}@db2/"),
        ("MYSQL_HOST", f"{SECRET}@db2:3306"),
    ],
)
def test_a_secret_in_the_wrong_variable_is_not_repeated(load: Load, name: str, value: str) -> None:
    message = error_of(load, **{name: value})
    assert message.startswith(name)
    assert SECRET not in message


def test_a_password_is_never_shown(load: Load) -> None:
    settings, _ = load(MYSQL_PASSWORD=SECRET)
    database = settings.database()
    assert SECRET not in f"{settings!r} {settings} {database!r} {database.login()!r}"
    assert database.login().password == SECRET


def test_the_env_file_has_no_variables_but_quotes_and_export(load: Load) -> None:
    path = file_of(
        "MYSQL_HOST=db",
        "export MYSQL_HOST=db1  # the last one counts",
        "MYSQL_USERNAME='a b'",
        'MYSQL_PASSWORD="$A${MYSQL_HOST}"',
    )
    settings, _ = load(CLUSTERCHECK_ENV_FILE=path, A="x")
    assert settings.database() == Database(host="db1", username="a b", password="$A${MYSQL_HOST}")


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("MAX_RECV_QUEUE=many", "env, line 2: MAX_RECV_QUEUE: many: "),
        *(
            (line, "env file env, line 2 is not NAME=value")
            for line in (
                SECRET,
                f"MYSQL_PASSWORD {SECRET}",
                f"A='{SECRET}",
                f"={SECRET}",
                f"A=\0{SECRET}",
            )
        ),
    ],
)
def test_a_mistake_in_an_env_file_is_named_with_its_line(load: Load, line: str, error: str) -> None:
    message = error_of(load, CLUSTERCHECK_ENV_FILE=file_of("MYSQL_PORT=1", line))
    assert message.startswith(error)
    assert SECRET not in message


def test_an_env_file_that_cannot_be_read_is_named_with_the_reason(load: Load) -> None:
    # To open a pipe would wait for somebody who writes to it.
    os.mkfifo("pipe")
    Path("latin").write_bytes(b"MYSQL_PASSWORD=\xff")
    for path, why in (("pipe", "not a regular file"), ("latin", "not UTF-8"), ("none", "No such")):
        message = error_of(load, CLUSTERCHECK_ENV_FILE=path)
        assert message.startswith(f"env file {path}: {why}")


@pytest.mark.parametrize(
    "name", ["CLUSTERCHECK_PROT", "AVAILABLE_WHEN_DONER", "MAX_RECV_QUEU", "MYSQL_USER"]
)
def test_a_misspelt_variable_is_told_and_those_of_others_are_not(load: Load, name: str) -> None:
    others = dict.fromkeys(("MYSQL_ROOT_HOST", "MYSQL_DATABASE", "MYSQL_SERVICE_PORT"), "1")
    assert load(**{name: "1"}, **others)[1] == [f"{name} is not a setting and is ignored"]


def test_every_unknown_name_in_an_env_file_is_told_but_may_be_a_secret(load: Load) -> None:
    path = file_of("MYSQL_USERNAME=x", "MYSQL_USER=x", "export DRAIN=1", "MIIEvQIBADANBg=")
    assert load(CLUSTERCHECK_ENV_FILE=path)[1] == [
        "env, line 2: MYSQL_USER is not a setting and is ignored",
        "env, line 3: a name is not a setting and is ignored",
        "env, line 4: a name is not a setting and is ignored",
    ]


@pytest.mark.parametrize("host", ["db2.example.org", "10.0.0.2", "fe80::1%eth0", "db_2"])
def test_a_host_is_taken_as_it_is(host: str) -> None:
    assert Database(host=host).login().host == host
