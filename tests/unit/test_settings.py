"""Environment, flags and env file into settings; bad ones into one line each."""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from app.commands.parser import parse
from app.settings.database import Database
from app.settings.error import SettingsError
from app.settings.settings import DATABASE, FIELDS, POLICY, Settings, Source
from app.settings.values import seconds_in
from app.verdict.rules import Policy
from harness.service import without_settings

Load = Callable[..., tuple[Settings, Sequence[str]]]
SECRET = "geheim"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Load:
    """Load settings and warnings from a command line and these variables alone."""
    monkeypatch.chdir(tmp_path)
    for name in without_settings(os.environ).keys() ^ os.environ.keys():
        monkeypatch.delenv(name)

    def loading(*arguments: str, **environ: str) -> tuple[Settings, Sequence[str]]:
        with monkeypatch.context() as patch:
            for name, value in environ.items():
                patch.setenv(name, value)
            typed = parse(arguments)
            settings, warnings, _ = Source(typed.flags, typed.env_file).load()
            return settings, warnings

    return loading


def file_of(*lines: str) -> str:
    """Write an env file; return its path."""
    Path("env").write_text("\n".join(lines))
    return "env"


def error_of(load: Load, **environ: str) -> str:
    """Return the message about settings that cannot be used."""
    with pytest.raises(SettingsError) as caught:
        load(**environ)[0].database().target()
    return str(caught.value)


def test_the_defaults_are_those_of_the_database_and_the_policy(load: Load) -> None:
    settings, warnings = load()
    assert (settings.database(), settings.policy(), warnings) == (
        Database(),
        Policy(),
        [],
    )


def test_every_setting_of_the_database_and_the_policy_reaches_it(load: Load) -> None:
    texts = {name: name.removeprefix("mysql_") for name in DATABASE}
    texts |= {"mysql_port": "1", "mysql_ssl": "1", "mysql_ssl_verify": "ca"}
    database = load(**texts | {"mysql_password_file": ""})[0].database()
    others = {"mysql_port": 1, "mysql_ssl": True, "mysql_password_file": None}
    assert asdict(database) == texts | others
    environ = dict.fromkeys(map(str.upper, POLICY), "0")
    environ |= {
        "AVAILABLE_WHEN_DONOR": "1",
        "MIN_CLUSTER_SIZE": "3",
        "MAX_SYNC_WAIT": "1500ms",
    }
    policy = load(**environ)[0].policy()
    assert policy == Policy(True, False, False, 3, 0, 1.5)  # noqa: FBT003 (the fields' order)


def test_flags_go_before_variables_before_the_env_file(load: Load) -> None:
    path = file_of("MYSQL_HOST=file", "MYSQL_USERNAME=file", "MYSQL_PORT=1")
    # An empty one is not set.
    environ = {"mysql_host": "variable", "MYSQL_USERNAME": "variable", "MYSQL_PORT": ""}
    settings, _ = load("--env-file", path, "--mysql-host", "flag", **environ)
    assert settings.database() == Database(None, "flag", 1, "variable")


BOOLEAN, NUMBER, TEXT = "must be 0 or 1", "must be a whole number", "must be UTF-8"
DURATION = "must be a duration, such as 0.25, 250ms, 1s, 5m, 2h"
NETWORKS = "must be addresses and networks, such as 10.0.0.0/8 fd00::7: "
PATH = "must be an absolute path, such as /var/tmp/clustercheck.disabled"
MANY = "9" * 5000
FREE_TEXT = {"clustercheck_host", *DATABASE} - {
    "mysql_port",
    "mysql_ssl",
    "mysql_ssl_verify",
}
MISTAKES: dict[str, dict[str, str]] = {
    "mysql_port": {
        "x": NUMBER,
        "0": "must be at least 1",
        "65536": "must be at most 65535",
    },
    "mysql_ssl": {"maybe": BOOLEAN},
    "mysql_ssl_verify": {"all": "must be identity, ca or none"},
    "available_when_donor": {"maybe": BOOLEAN, "2": BOOLEAN, "\udcff": TEXT},
    "available_when_readonly": {"nein": BOOLEAN},
    "available_when_full": {"01": BOOLEAN},
    "max_recv_queue": {
        "hundred": NUMBER,
        "1.5": NUMBER,
        MANY: NUMBER,
        "-1": "must be at least 0",
    },
    "min_cluster_size": {"two": NUMBER, "-1": "must be at least 0"},
    "max_sync_wait": {"2 days": DURATION, "50ms": "must be at least 0.1 s"},
    "clustercheck_disabled_file": {"x": PATH, "": PATH, "\udcff": TEXT},
    "clustercheck_drain_status": {"200": "must be 404 or 503"},
    "clustercheck_drain_seconds": {"-1": DURATION, "2h": "must be at most 3600 s"},
    "clustercheck_poll_interval": {"10ms": "must be at least 0.05 s"},
    "clustercheck_login_interval": {"never": DURATION},
    "clustercheck_deadline": {
        "nan": DURATION,
        "5x": DURATION,
        "800": "must be at most 60 s",
    },
    "clustercheck_port": {"http": NUMBER, "65536": "must be at most 65535"},
    "clustercheck_allow_from": {
        "db1": f"{NETWORKS}db1 does not appear to be an IPv4 or IPv6 network",
        "10.0.0.1/8": f"{NETWORKS}10.0.0.1/8 has host bits set",
        " , ": "must be a network, or nobody could connect; to allow everybody, remove it",
        "": "must be a network, or nobody could connect; to allow everybody, remove it",
    },
    "clustercheck_any_path": {"x": BOOLEAN},
    "clustercheck_log_level": {"loud": "must be debug, info, warning or error"},
    "clustercheck_log_format": {"xml": "must be text or json"},
}


@pytest.mark.parametrize("name", sorted(FIELDS.keys() - FREE_TEXT))
def test_a_bad_value_is_one_line_with_the_setting_and_what_it_must_be(
    load: Load, name: str
) -> None:
    for value, must_be in MISTAKES[name].items():
        message = error_of(load, **{name: value})
        start, _, end = message.partition(": must be ")
        assert f"must be {end}" == must_be
        assert start.startswith(f"{name}: ")
        assert message.isprintable()
        assert len(message) < 500


@pytest.mark.parametrize("name", FIELDS)
def test_no_message_about_a_value_is_in_the_words_of_a_library(
    load: Load, name: str
) -> None:
    told = []
    for value in ("maybe", "", " ", "-1", "1e9", "1.5", "\udcff", "\n", MANY, "{0}"):
        try:
            load(**{name: value})
        except SettingsError as fault:
            told.append(str(fault))
    assert bool(told) == (name not in FREE_TEXT)
    for message in told:
        assert message.isprintable()
        assert ": must be " in message
        assert "nput should" not in message


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
        ("MIN_CLUSTER_SIZE", 0, None),
        ("MAX_SYNC_WAIT", 0.1, 3600),
    ],
)
def test_the_bounds_of_a_number(
    load: Load, name: str, least: float, most: float | None
) -> None:
    for value in filter(None, (least, most)):
        assert getattr(load(**{name: str(value)})[0], name.lower()) == value
    beyond = [
        least / 2 if isinstance(least, float) else least - 1,
        *([most + 1] if most else []),
    ]
    for value in beyond:
        assert error_of(load, **{name: str(value)}).startswith(f"{name}: ")


def test_durations_have_units() -> None:
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
def test_a_secret_in_the_wrong_variable_is_not_repeated(
    load: Load, name: str, value: str
) -> None:
    message = error_of(load, **{name: value})
    assert message.startswith(name)
    assert SECRET not in message


def test_a_password_is_never_shown(load: Load) -> None:
    settings, _ = load(MYSQL_PASSWORD=SECRET)
    database = settings.database()
    assert SECRET not in f"{settings!r} {settings} {database!r} {database.target()!r}"
    assert database.target().password == SECRET


def test_the_env_file_has_no_variables_but_quotes_and_export(load: Load) -> None:
    path = file_of(
        "MYSQL_HOST=db",
        "export MYSQL_HOST=db1  # the last one counts",
        "MYSQL_USERNAME='a b'",
        'MYSQL_PASSWORD="$A${MYSQL_HOST}"',
    )
    settings, _ = load(CLUSTERCHECK_ENV_FILE=path, A="x")
    assert settings.database() == Database(
        mysql_host="db1", mysql_username="a b", mysql_password="$A${MYSQL_HOST}"
    )


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
def test_a_mistake_in_an_env_file_is_named_with_its_line(
    load: Load, line: str, error: str
) -> None:
    message = error_of(load, CLUSTERCHECK_ENV_FILE=file_of("MYSQL_PORT=1", line))
    assert message.startswith(error)
    assert SECRET not in message


def test_an_env_file_that_cannot_be_read_is_named_with_the_reason(load: Load) -> None:
    # To open a pipe would wait for somebody who writes to it.
    os.mkfifo("pipe")
    Path("latin").write_bytes(b"MYSQL_PASSWORD=\xff")
    for path, why in (
        ("pipe", "not a regular file"),
        ("latin", "not UTF-8"),
        ("none", "No such"),
    ):
        message = error_of(load, CLUSTERCHECK_ENV_FILE=path)
        assert message.startswith(f"env file {path}: {why}")


MISSPELT = {
    "CLUSTERCHECK_PROT": "CLUSTERCHECK_PORT",
    "AVAILABLE_WHEN_DONER": "AVAILABLE_WHEN_DONOR",
    "MAX_RECV_QUEU": "MAX_RECV_QUEUE",
    "MIN_CLUSTER_SZE": "MIN_CLUSTER_SIZE",
    "MYSQL_USER": "MYSQL_USERNAME",
    "MYSQL_PWD": "MYSQL_PASSWORD",
    # A flag's name.
    "LOG_LEVEL": "CLUSTERCHECK_LOG_LEVEL",
    "PORT": "CLUSTERCHECK_PORT",
    "available_when_doner": "AVAILABLE_WHEN_DONOR",
    # Close to nothing.
    "DRAIN": "",
    "WORKERS2": "",
}


@pytest.mark.parametrize(("name", "meant"), MISSPELT.items())
def test_a_misspelt_name_in_the_env_file_is_a_mistake_but_stops_no_start(
    load: Load, name: str, meant: str
) -> None:
    path = file_of("MYSQL_HOST=db", f"export {name}=1")
    told = f"env, line 2: {name} is not a setting" + (
        f"; did you mean {meant}?" if meant else ""
    )
    settings, warnings = load(CLUSTERCHECK_ENV_FILE=path)
    assert (settings.mysql_host, warnings) == ("db", [told])
    with pytest.raises(SettingsError) as caught:
        Source(env_file=path).load(strict=True)
    assert str(caught.value) == told


@pytest.mark.parametrize("name", ["AVAILABLE_WHEN_DONOR", "CLUSTERCHECK_ALLOW_FROM"])
def test_a_line_that_lacks_its_end_shows_no_secret(load: Load, name: str) -> None:
    # As `echo MYSQL_PASSWORD=... >> FILE` makes it, and /status shows what a reload says.
    with pytest.raises(SettingsError) as caught:
        load(**{name: "1MYSQL_PASSWORD=geheim"})
    assert "geheim" not in str(caught.value)
    assert f"{name}: (not repeated here): must be " in str(caught.value)


def test_all_mistakes_are_told_at_once(load: Load) -> None:
    path = file_of(
        "MAX_RECV_QUEUE=many", "nothing", "MYSQL_USER=x", "AVAILABLE_WHEN_FULL=2"
    )
    with pytest.raises(SettingsError) as caught:
        Source(env_file=path).load(strict=True)
    assert [
        line.partition(" line ")[2][:1] for line in str(caught.value).splitlines()
    ] == [*("2", "3", "4", "1")]
    # A drain needs none of these.
    assert Source(env_file=path).load_only("clustercheck_disabled_file")[0] == load()[0]


@pytest.mark.parametrize(
    "name",
    [
        "MIIEvQIBADANBg",
        "JBSWY3DPEHPK3PXP",
        "JBSWYDPEHPKPXPAA",
        "correct_horse",
        "Geheim",
        "GE-HEIM",
        "G3H31M",
        "MYSQL_PASSWORD:geheim",
    ],
)
def test_a_name_that_may_be_a_secret_is_not_shown(load: Load, name: str) -> None:
    path = file_of(f"{name}==")
    (warning,) = load(CLUSTERCHECK_ENV_FILE=path)[1]
    assert warning.startswith("env, line 1: a name is not a setting")


def test_a_name_in_the_environment_is_nobodys_mistake(load: Load) -> None:
    others = dict.fromkeys(
        ("MYSQL_ROOT_PASSWORD", "MYSQL_DATABASE", "MYSQL_SERVICE_PORT"), "1"
    )
    assert load(**others)[1] == []
    for name in POLICY:
        assert load(**{f"{name.upper()}S": "1"})[1] != []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AVAILABLE_WHEN_DONER", "1")
        told = (
            "AVAILABLE_WHEN_DONER is not a setting; did you mean AVAILABLE_WHEN_DONOR?"
        )
        assert Source().load(strict=True)[1] == [told]


def test_a_name_that_is_in_the_file_twice_is_told(load: Load) -> None:
    path = file_of("MYSQL_HOST=db1", "mysql_host=db2")
    settings, warnings = load(CLUSTERCHECK_ENV_FILE=path, MYSQL_HOST="")
    assert settings.mysql_host == "db2"
    assert warnings == ["env, line 2: mysql_host is already set: env, line 1"]


@pytest.mark.parametrize(
    "host", ["db2.example.org", "10.0.0.2", "fe80::1%eth0", "db_2"]
)
def test_a_host_is_taken_as_it_is(host: str) -> None:
    assert Database(mysql_host=host).target().host == host
