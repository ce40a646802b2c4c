"""Environment, flags and env file into settings; bad ones into one line each."""

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from app.commands.parser import parse
from app.database.login import Database
from app.settings.error import SettingsError
from app.settings.settings import DATABASE, POLICY, Settings, load_settings
from app.verdict.rules import Policy
from harness.service import without_settings

Load = Callable[..., tuple[Settings, list[str]]]
SECRET = "geheim"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Load settings and warnings from an environment that holds only what is given."""
    for name in without_settings(os.environ).keys() ^ os.environ.keys():
        monkeypatch.delenv(name)

    def loading(environ: Mapping[str, str], *arguments: str) -> tuple[Settings, list[str]]:
        with monkeypatch.context() as patch:
            for name, value in environ.items():
                patch.setenv(name, value)
            typed = parse(arguments)
            return load_settings(typed.flags, typed.env_file)

    return loading


@pytest.fixture
def env_file(tmp_path: Path) -> Path:
    """Return where to write an env file."""
    return tmp_path / "env"


def test_the_defaults_are_the_documented_ones(load: Load) -> None:
    settings, warnings = load({})
    assert Database() == settings.database()
    assert settings.policy() == Policy()
    assert (settings.clustercheck_host, settings.clustercheck_port, warnings) == ("*", 9200, [])


def test_every_setting_of_the_database_and_the_policy_reaches_it(load: Load) -> None:
    environ = dict.fromkeys(map(str.upper, (*DATABASE, *POLICY)), "1")
    environ |= dict.fromkeys(("AVAILABLE_WHEN_READONLY", "AVAILABLE_WHEN_FULL"), "0")
    settings, _ = load({**environ, "MYSQL_SSL_VERIFY": "ca", "MYSQL_PASSWORD_FILE": ""})
    assert dataclasses.astuple(settings.database()) == (
        "1",
        "1",
        1,
        "1",
        "1",
        None,
        "1",
        True,
        "1",
        "1",
        "1",
        "ca",
    )
    assert dataclasses.astuple(settings.policy())[1:] == (True, False, False, 1, 1.0)
    assert load({"MYSQL_PASSWORD_FILE": "/p"})[0].database() == Database(password_file="/p")


def test_a_limit_for_reads_in_sync_needs_reads_in_sync(load: Load) -> None:
    settings, _ = load({"MAX_SYNC_WAIT": "1500ms", "CLUSTERCHECK_LOGIN_INTERVAL": "0"})
    with pytest.raises(SettingsError, match="MAX_SYNC_WAIT: with CLUSTERCHECK_LOGIN_INTERVAL=0 "):
        settings.policy()
    assert load({"MAX_SYNC_WAIT": "1500ms"})[0].policy().max_sync_wait == 1.5


def test_flags_go_before_variables_before_the_env_file(load: Load, env_file: Path) -> None:
    env_file.write_text(
        "MYSQL_HOST=file\nMYSQL_USERNAME=file\nMYSQL_PORT=1\nMYSQL_PASSWORD='from file'\n"
    )
    # An empty one is not set.
    environ = {
        "mysql_host": "variable",
        "MYSQL_HOST": "",
        "MYSQL_USERNAME": "variable",
        "MYSQL_PORT": "",
    }
    settings, _ = load(environ, "--env-file", str(env_file), "--mysql-host", "flag")
    assert Database(None, "flag", 1, "variable", "from file") == settings.database()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MYSQL_PORT", "0"),
        ("MYSQL_PORT", "99999"),
        ("MAX_RECV_QUEUE", "hundred"),
        ("MAX_RECV_QUEUE", "-1"),
        ("AVAILABLE_WHEN_DONOR", "2"),
        ("CLUSTERCHECK_POLL_INTERVAL", "0"),
        ("CLUSTERCHECK_LOGIN_INTERVAL", "2h"),
        *(("CLUSTERCHECK_DEADLINE", word) for word in ("nan", "inf", "5x", "1ms", "800")),
        *(("CLUSTERCHECK_ALLOW_FROM", words) for words in ("", " , ", "10.0.0.1/8")),
        *(("CLUSTERCHECK_DISABLED_FILE", path) for path in ("", "x")),
        ("MAX_SYNC_WAIT", "10ms"),
        ("CLUSTERCHECK_LOG_LEVEL", "loud"),
        ("CLUSTERCHECK_DRAIN_STATUS", "x"),
        ("CLUSTERCHECK_ENV_FILE", "/none"),
    ],
)
def test_a_bad_value_is_one_line_that_names_the_setting(load: Load, name: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load({name: value})
    assert str(caught.value).startswith(f"{name}: {value}: ")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["mysql_port", "CLUSTERCHECK_PORT"])
def test_a_variable_of_kubernetes_is_told_with_what_to_do(load: Load, name: str) -> None:
    with pytest.raises(SettingsError, match=f"^{name}: .*enableServiceLinks: false"):
        load({name: "tcp://10.0.0.1:3306"})


@pytest.mark.parametrize(
    "names", [("MYSQL_HOST", "mysql_host"), ("MYSQL_PASSWORD", "MYSQL_PASSWORD_FILE")]
)
def test_two_variables_for_one_thing_are_an_error_that_names_both(
    load: Load, names: tuple[str, str]
) -> None:
    with pytest.raises(SettingsError) as caught:
        load(dict.fromkeys(names, "x"))[0].require_login()
    assert str(caught.value) == f"{names[0]} and {names[1]} are both set: set one"


def test_an_env_file_that_is_a_pipe_stops_nothing(load: Load, env_file: Path) -> None:
    os.mkfifo(env_file)
    with pytest.raises(
        SettingsError, match=f"^CLUSTERCHECK_ENV_FILE: {env_file}: not a regular file$"
    ):
        load({"CLUSTERCHECK_ENV_FILE": str(env_file)})


def test_the_env_file_has_no_variables_but_quotes_and_export(load: Load, env_file: Path) -> None:
    env_file.write_text(
        "MYSQL_HOST=db\nexport MYSQL_HOST=db1\nMYSQL_USERNAME='a b'\nMYSQL_PASSWORD=\"$A${MYSQL_HOST}\"\n"
    )
    settings, _ = load({"CLUSTERCHECK_ENV_FILE": str(env_file), "A": "x"})
    assert settings.database() == Database(host="db1", username="a b", password="$A${MYSQL_HOST}")


@pytest.mark.usefixtures("load")
def test_a_caller_of_a_few_settings_is_not_stopped_by_others(env_file: Path) -> None:
    env_file.write_text("AVAILABLE_WHEN_DONOR=perhaps\nCLUSTERCHECK_PORT=9300\nbroken\n")
    settings, warnings = load_settings({}, str(env_file), ["clustercheck_port"])
    assert (
        settings.model_dump() == Settings.model_validate({"clustercheck_port": "9300"}).model_dump()
    )
    assert warnings == [
        f"--env-file: {env_file}, line 3 is not NAME=value: this command goes on without it"
    ]
    with pytest.raises(
        SettingsError, match=f"^{env_file}, line 1: AVAILABLE_WHEN_DONOR: perhaps: "
    ):
        load_settings({}, str(env_file), ["available_when_donor"])


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
    with pytest.raises(SettingsError, match=f"^{name}") as caught:
        load({name: value})[0].require_login()
    assert SECRET not in str(caught.value)


def test_a_password_is_never_shown(load: Load) -> None:
    settings, _ = load({"MYSQL_PASSWORD": SECRET})
    assert (
        SECRET
        not in f"{settings!r} {settings} {settings.database()!r} {settings.database().login()!r}"
    )
    assert settings.database().login().password == SECRET


OTHERS = {
    "MYSQL_ROOT_PASSWORD": "x",
    "MYSQL_DATABASE": "x",
    "MYSQL_SERVICE_PORT": "1",
    "MYSQLD_OPTS": "x",
}
OF_KUBERNETES = {
    "CLUSTERCHECK_SERVICE_HOST": "10.0.0.1",
    "CLUSTERCHECK_PORT_9200_TCP": "tcp://10.0.0.1:9200",
}


@pytest.mark.parametrize(
    "name", ["CLUSTERCHECK_PROT", "AVAILABLE_WHEN_DONER", "MAX_RECV_QUEU", "MYSQL_USER"]
)
def test_a_misspelt_variable_is_told_and_those_of_others_are_not(load: Load, name: str) -> None:
    warnings = load({name: "1", **OTHERS, **OF_KUBERNETES})[1]
    assert warnings == [f"{name} is not a setting and is ignored"]


def test_misspelt_names_in_an_env_file_are_told_with_file_and_line(
    load: Load, env_file: Path
) -> None:
    env_file.write_text(
        "\n# a comment\nMYSQL_USERNAME=x\n\n\nMYSQL_USER=x\nexport DRAIN=1\nMIIEvQIBADANBg=\n"
    )
    assert load({"CLUSTERCHECK_ENV_FILE": str(env_file)})[1] == [
        f"{env_file}, line 6: MYSQL_USER is not a setting and is ignored",
        f"{env_file}, line 7: a name is not a setting and is ignored",
        f"{env_file}, line 8: a name is not a setting and is ignored",
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "MYSQL_HOST=a\nmysql_host=b\n",
            "FILE, line 1: MYSQL_HOST and FILE, line 2: mysql_host are both set: set one",
        ),
        *(
            (
                f"# first\n\nMYSQL_PORT=3307\n\n{line}\n",
                "--env-file: FILE, line 5 is not NAME=value",
            )
            for line in (
                SECRET,
                f"MYSQL_PASSWORD {SECRET}",
                f"MYSQL_PASSWORD='{SECRET}",
                f"={SECRET}",
            )
        ),
    ],
)
def test_a_mistake_in_an_env_file_is_named_with_its_line(
    load: Load, env_file: Path, text: str, error: str
) -> None:
    env_file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load({}, "--env-file", str(env_file))
    assert str(caught.value) == error.replace("FILE", str(env_file))


@pytest.mark.parametrize(
    "host",
    [
        *(
            "[::1]",
            "[::1]:3307",
            "[fe80::1%eth0]",
            "db2:3307",
            "10.0.0.2:3307",
            "db2:",
            "tcp://10.0.0.2:3306",
        ),
        *("/run/mysqld/mysqld.sock", "db 2", "db2\t", "::1::2", "db2\nmore"),
    ],
)
def test_what_is_no_host_is_one_line_that_says_what_to_set(tmp_path: Path, host: str) -> None:
    option_file = tmp_path / "my.cnf"
    option_file.write_text(
        "[client]\nhost='{}'\n".format(host.replace("\n", "\\n").replace("\t", "\\t"))
    )
    option_file.chmod(0o600)
    in_file = Database(defaults_extra_file=str(option_file))
    why = "is not a host name or an IP address: set a port, a socket or the account in MYSQL_PORT, MYSQL_SOCKET or"
    for database, name in (
        (Database(host=host), "MYSQL_HOST"),
        (in_file, f"DEFAULTS_EXTRA_FILE: {option_file}: host"),
    ):
        with pytest.raises(SettingsError) as caught:
            database.login()
        assert str(caught.value) == f"{name}={host} {why} MYSQL_USERNAME".replace("\n", "\\n")


@pytest.mark.parametrize(
    "host", ["db2", "db2.example.org", "10.0.0.2", "::1", "2001:db8::2", "fe80::1%eth0", "db_2"]
)
def test_a_host_is_taken_as_it_is_and_shown_with_its_port(host: str) -> None:
    login = Database(host=host).login()
    assert (login.host, str(login)) == (host, f"[{host}]:3306" if ":" in host else f"{host}:3306")
