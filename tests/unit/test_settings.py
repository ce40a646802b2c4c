"""Environment, flags and env file into settings; bad ones into one line each."""

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from app.commands.parser import parse
from app.kinds import PATH
from app.settings.error import SettingsError
from app.settings.settings import DATABASE, POLICY, TABLE, Settings
from app.settings.source import Loaded, Source, Told
from app.verdict.rules import Policy
from harness.service import without_settings

Load = Callable[..., tuple[Settings, Sequence[str]]]
SECRET = "geheim"


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Loaded]:
    """Load from a command line and these variables alone."""
    monkeypatch.chdir(tmp_path)
    for name in without_settings(os.environ).keys() ^ os.environ.keys():
        monkeypatch.delenv(name)

    def loading(*arguments: str, **environ: str) -> Loaded:
        with monkeypatch.context() as patch:
            for name, value in environ.items():
                patch.setenv(name, value)
            typed = parse(arguments)
            return Source(typed.flags, typed.env_file).load()

    return loading


@pytest.fixture
def load(loaded: Callable[..., Loaded]) -> Load:
    """Load settings and warnings alone."""
    return lambda *arguments, **environ: loaded(*arguments, **environ)[:2]


def file_of(*lines: str) -> str:
    """Write an env file; return its path."""
    Path("env").write_text("\n".join(lines))
    return "env"


def error_of(load: Load, **environ: str) -> str:
    """Return the message about settings that cannot be used."""
    with pytest.raises(SettingsError) as caught:
        load(**environ)[0].target()
    return str(caught.value)


def test_the_defaults_are_those_of_the_database_and_the_policy(load: Load) -> None:
    settings, warnings = load()
    assert (settings, settings.policy(), warnings) == (Settings(), Policy(), [])


def test_every_setting_of_the_database_and_the_policy_reaches_it(load: Load) -> None:
    texts = {name: name.removeprefix("mysql_") for name in DATABASE}
    texts |= {name: f"/{name}" for name in DATABASE if TABLE[name].kind is PATH}
    texts |= {"mysql_port": "1", "mysql_ssl": "1", "mysql_ssl_verify": "ca"}
    settings = asdict(load(**texts | {"mysql_password_file": ""})[0])
    others = {"mysql_port": 1, "mysql_ssl": True, "mysql_password_file": None}
    assert settings == asdict(Settings()) | texts | others
    environ = dict.fromkeys(map(str.upper, POLICY), "0")
    environ |= {
        "AVAILABLE_WHEN_DONOR": "1",
        "MIN_CLUSTER_SIZE": "3",
        "MAX_STALL": "3",
        "MAX_SYNC_WAIT": "1500ms",
    }
    policy = load(**environ)[0].policy()
    assert policy == Policy(True, False, False, 3, 0, 3.0, 1.5)  # noqa: FBT003 (the fields' order)


def test_flags_go_before_variables_before_the_env_file(load: Load) -> None:
    path = file_of("MYSQL_HOST=file", "MYSQL_USERNAME=file", "MYSQL_PORT=1")
    # An empty one is not set.
    environ = {"mysql_host": "variable", "MYSQL_USERNAME": "variable", "MYSQL_PORT": ""}
    settings, _ = load("--env-file", path, "--mysql-host", "flag", **environ)
    assert settings == Settings(None, "flag", 1, "variable")


FREE_TEXT = {"mysql_host", "mysql_username", "mysql_password", "clustercheck_host"}


@pytest.mark.parametrize("name", sorted(TABLE.keys() - FREE_TEXT))
def test_a_value_that_is_none_is_one_line_with_what_it_must_be_and_not_repeated(
    load: Load, name: str
) -> None:
    line = f"{name}: must be {TABLE[name].kind.must_be}"
    for value in ("maybe", "-1", "1e9", "\udcff", "\n", "9" * 5000, "{0}", SECRET):
        assert error_of(load, **{name: value}) == line


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("MYSQL_PORT", 1, 65535),
        ("CLUSTERCHECK_PORT", 0, 65535),
        ("CLUSTERCHECK_POLL_INTERVAL", 0.05, 60),
        ("CLUSTERCHECK_LOGIN_INTERVAL", 0, 3600),
        ("CLUSTERCHECK_DEADLINE", 0.05, 60),
        ("CLUSTERCHECK_DRAIN_SECONDS", 0, 3600),
        ("MAX_RECV_QUEUE", 0, 10**6),
        ("MIN_CLUSTER_SIZE", 0, 10**6),
        ("MAX_STALL", 0, 3600),
        ("MAX_SYNC_WAIT", 0.1, 3600),
    ],
)
def test_the_bounds_of_a_number(
    load: Load, name: str, least: float, most: float
) -> None:
    for value in (least, most):
        assert getattr(load(**{name: str(value)})[0], name.lower()) == value
    for value in (least / 2 or -1, most + 1):
        assert error_of(load, **{name: str(value)}).startswith(f"{name}: must be ")


@pytest.mark.parametrize("value", ["db1", "10.0.0.1/8", " , ", ""])
def test_who_may_connect_is_never_nobody(load: Load, value: str) -> None:
    error = error_of(load, CLUSTERCHECK_ALLOW_FROM=value)
    assert error.endswith("to allow everybody, remove it")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        *(("mysql_ssl", text, True) for text in ("1", "YES", "true", " on")),
        *(("mysql_ssl", text, False) for text in ("0", "no", "False", "off ")),
        ("max_stall", ".25", 0.25),
        ("max_stall", "250ms", 0.25),
        ("mysql_host", "[fd00::1]", "fd00::1"),
        ("clustercheck_host", "[::1]", "::1"),
        ("max_stall", "2S", 2),
        ("max_stall", "1.5m", 90),
        ("max_stall", "1h", 3600),
        *(
            ("mysql_host", host, host)
            for host in ("db2.example.org", "10.0.0.2", "db_2")
        ),
        ("mysql_host", "fe80::1%eth0", "fe80::1%eth0"),
    ],
)
def test_a_value_may_be_typed_in_these_ways(
    load: Load, name: str, text: str, value: object
) -> None:
    assert getattr(load(**{name: text})[0], name) == value


def test_settings_that_exclude_each_other_are_named(load: Load) -> None:
    message = error_of(load, MYSQL_PASSWORD="x", MYSQL_PASSWORD_FILE="/x")
    assert message.startswith("MYSQL_PASSWORD and MYSQL_PASSWORD_FILE are both set")
    message = error_of(load, MAX_SYNC_WAIT="1", CLUSTERCHECK_LOGIN_INTERVAL="0")
    assert message.startswith("MAX_SYNC_WAIT: with CLUSTERCHECK_LOGIN_INTERVAL=0 ")


@pytest.mark.parametrize("host", [f"mysql://root:{SECRET}@db2/", "db2:3306", "a b"])
def test_what_is_no_host_is_not_repeated(load: Load, host: str) -> None:
    must_be = "must be a host name or an IP address alone"
    assert error_of(load, MYSQL_HOST=host) == f"MYSQL_HOST: {must_be}"


def test_a_password_is_never_shown(load: Load) -> None:
    settings, _ = load(MYSQL_PASSWORD=SECRET)
    assert SECRET not in f"{settings!r} {settings} {settings.target()!r}"
    assert settings.target().password == SECRET


def test_the_env_file_has_no_variables_but_quotes_and_export(load: Load) -> None:
    path = file_of(
        "export MYSQL_HOST=db1  # ours",
        "MYSQL_USERNAME='a b'",
        'MYSQL_PASSWORD="$A${MYSQL_HOST}"',
    )
    settings, _ = load(CLUSTERCHECK_ENV_FILE=path, A="x")
    assert settings == Settings(
        mysql_host="db1", mysql_username="a b", mysql_password="$A${MYSQL_HOST}"
    )


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("MAX_RECV_QUEUE=many", "env, line 2: MAX_RECV_QUEUE: must be "),
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
    Path("large").write_text("#" * 65537)
    for path, why in (
        ("pipe", "not a regular file"),
        ("none", "No such"),
        ("large", "larger than 64 KiB"),
    ):
        message = error_of(load, CLUSTERCHECK_ENV_FILE=path)
        assert message.startswith(f"env file {path}: {why}")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "max_recv_que",
            ": MAX_RECV_QUE is not a setting; did you mean MAX_RECV_QUEUE?",
        ),
        ("MYSQL_PASS", ": MYSQL_PASS is not a setting; did you mean MYSQL_PASSWORD?"),
        ("MYSQL_SSL_OPTIONS", ": MYSQL_SSL_OPTIONS is not a setting"),
        # It may be a pasted key or password.
        ("MIIEvQ:geheim", " is not a setting"),
        ("MYSQL_PASSWORD:geheim", " is not a setting; did you mean MYSQL_PASSWORD?"),
    ],
)
def test_a_name_in_the_env_file_that_is_none_is_told_and_stops_nothing(
    load: Load, name: str, told: str
) -> None:
    path = file_of("MYSQL_HOST=db", f"export {name}=1")
    told = f"env, line 2{told}"
    settings, warnings = load(CLUSTERCHECK_ENV_FILE=path)
    assert (settings.mysql_host, warnings) == ("db", [told])


def test_of_two_lines_that_set_the_same_the_last_counts_and_the_other_is_told(
    load: Load,
) -> None:
    lines = ["MYSQL_HOST=a", "mysql_host=b", "MYSQL_HOST=", "correct_horse=1"]
    # Even an empty list of clients counts.
    lists = ["CLUSTERCHECK_ALLOW_FROM=", "CLUSTERCHECK_ALLOW_FROM=::1"]
    settings, warnings = load(CLUSTERCHECK_ENV_FILE=file_of(*lines, lines[3], *lists))
    assert settings.mysql_host == "b"
    told = [
        f"env, line {name} does not count: a later line sets it"
        for name in ("1: MYSQL_HOST", "6: CLUSTERCHECK_ALLOW_FROM")
    ]
    unknown = [f"env, line {number} is not a setting" for number in (4, 5)]
    assert warnings == [*told, *unknown]


def test_an_address_that_looks_like_a_network_is_told(load: Load) -> None:
    networks = "10.7.0.0 10.8.0.0/16 ::1 10.7.0.1"
    assert load(CLUSTERCHECK_ALLOW_FROM=networks)[1] == [
        "CLUSTERCHECK_ALLOW_FROM: 10.7.0.0 counts as one address, not as a network like 10.7.0.0/24"
    ]


def test_each_setting_is_told_with_its_source_and_no_secret(
    loaded: Callable[..., Loaded],
) -> None:
    lines = ["MAX_RECV_QUEUE=9", "MYSQL_PASSWORD=geheim", "MYSQL_HOST=", "MAX_STALL=3"]
    path = file_of(*lines, "MIN_CLUSTER_SIZE=2")
    _, warnings, told, read = loaded(
        "--max-stall",
        "4",
        CLUSTERCHECK_ENV_FILE=path,
        MAX_RECV_QUEUE="7",
        MIN_CLUSTER_SIZE="2",
    )
    assert told == {
        "MAX_RECV_QUEUE": Told("7", "environment"),
        "MYSQL_PASSWORD": Told("set", "env, line 2"),
        "MAX_STALL": Told("4", "--max-stall"),
        "MIN_CLUSTER_SIZE": Told("2", "environment"),
    }
    assert warnings == [
        "env, line 1: MAX_RECV_QUEUE does not count: the environment sets it",
        "env, line 4: MAX_STALL does not count: --max-stall sets it",
    ]
    assert read == "env"
    assert loaded().env_file is None


def test_a_name_in_the_environment_is_told_if_it_begins_as_ours_do(load: Load) -> None:
    others = ("MYSQL_ROOT_PASSWORD", "MYSQL_DATABASE", "MYSQL_SERVICE_PORT")
    assert load(**dict.fromkeys(others, "1"))[1] == []
    ours = {f"{name.upper()}S" for name in POLICY} | {"CLUSTERCHECK_PROT", "MYSQL_USER"}
    told = sorted(f"{name} is not a setting" for name in ours)
    warnings = load(**dict.fromkeys(ours, "1"))[1]
    assert [warning.partition(";")[0] for warning in warnings] == told


def test_all_mistakes_are_told_at_once(load: Load) -> None:
    path = file_of(
        "MAX_RECV_QUEUE=many", "nothing", "MYSQL_USER=x", "AVAILABLE_WHEN_FULL=2"
    )
    told = error_of(load, CLUSTERCHECK_ENV_FILE=path).splitlines()
    assert [line.partition(" line ")[2][:1] for line in told] == ["2", "1", "4"]
    # A drain needs none of these.
    assert Source(env_file=path).load("clustercheck_disabled_file")[0] == load()[0]
