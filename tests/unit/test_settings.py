"""Environment, flags and env file into settings; bad ones into one line each."""

import dataclasses
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from app.commands.parser import parse
from app.database.login import Database
from app.settings import Settings, load_settings
from app.settings_error import SettingsError
from app.verdict import Policy
from harness.service import without_settings

Load = Callable[..., Settings]
Warn = Callable[..., list[str]]


@pytest.fixture
def load_all(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Settings, list[str]]]:
    """Load from an environment that holds only what is given."""

    def loading(environ: Mapping[str, str] | None = None, *arguments: str) -> tuple[Settings, list[str]]:
        for name in without_settings(os.environ).keys() ^ os.environ.keys():
            monkeypatch.delenv(name)
        for name, value in (environ or {}).items():
            monkeypatch.setenv(name, value)
        typed = parse(arguments)
        return load_settings(typed.settings, typed.env_file)

    return loading


@pytest.fixture
def load(load_all: Callable[..., tuple[Settings, list[str]]]) -> Load:
    """Load settings."""
    return lambda *arguments: load_all(*arguments)[0]


@pytest.fixture
def warn(load_all: Callable[..., tuple[Settings, list[str]]]) -> Warn:
    """Load settings, but give the warnings."""
    return lambda *arguments: load_all(*arguments)[1]


def test_the_defaults_are_the_documented_ones(load: Load) -> None:
    settings = load()
    assert Database() == settings.database()
    assert dataclasses.replace(settings.policy(), max_age_seconds=0) == Policy(0)
    assert settings.policy().max_age_seconds == pytest.approx(1 + 0.8 + 0.1)
    assert (settings.clustercheck_host, settings.clustercheck_port) == ("*", 9200)


def test_flags_go_before_variables_before_the_env_file(load: Load, tmp_path: Path) -> None:
    env_file = tmp_path / "env"
    env_file.write_text("MYSQL_HOST=file\nMYSQL_USERNAME=file\nMYSQL_PORT=1\nMYSQL_PASSWORD='from file'\n")
    environ = {"MYSQL_HOST": "variable", "MYSQL_USERNAME": "variable"}
    settings = load(environ, "--env-file", str(env_file), "--mysql-host", "flag")
    assert Database(None, "flag", 1, "variable", "from file") == settings.database()


def test_the_scripts_own_values_are_understood(load: Load) -> None:
    settings = load({"AVAILABLE_WHEN_DONOR": "1", "AVAILABLE_WHEN_READONLY": "0"})
    assert (settings.available_when_donor, settings.available_when_readonly) == (True, False)


def test_an_empty_variable_is_not_set(load: Load) -> None:
    settings = load({"MYSQL_PORT": "", "MAX_RECV_QUEUE": "", "MYSQL_PASSWORD": ""})
    assert (settings.mysql_port, settings.max_recv_queue, settings.mysql_password) == (None, None, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MYSQL_PORT", "0"),
        ("MYSQL_PORT", "99999"),
        ("MYSQL_PORT", "x"),
        ("AVAILABLE_WHEN_DONOR", "2"),
        ("MAX_RECV_QUEUE", "-1"),
        ("CLUSTERCHECK_POLL_INTERVAL", "0"),
        ("CLUSTERCHECK_LOGIN_INTERVAL", "3601"),
        ("CLUSTERCHECK_PORT", "-1"),
        ("CLUSTERCHECK_LOG_LEVEL", "loud"),
    ],
)
def test_a_bad_value_is_one_line_that_names_the_setting(load: Load, name: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load({name: value})
    assert str(caught.value).startswith(f"{name}: {value} is ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", ["nan", "inf", "fast", "5x"])
def test_what_is_no_duration_is_told_with_examples(load: Load, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load({"CLUSTERCHECK_DEADLINE": value})
    said = f"CLUSTERCHECK_DEADLINE: {value!r} is not a duration; examples: 0.25, 250ms, 1s, 5m, 2h"
    assert said == str(caught.value)


def test_a_setting_given_in_two_cases_is_an_error_that_names_both(load: Load, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^MYSQL_HOST and mysql_host are both set: set one$"):
        load({"MYSQL_HOST": "db1", "mysql_host": "db2"})
    env_file = tmp_path / "env"
    env_file.write_text("MYSQL_HOST=db1\nmysql_host=db2\n")
    expected = f"^{env_file}, line 1: MYSQL_HOST and {env_file}, line 2: mysql_host are both set: set one$"
    with pytest.raises(SettingsError, match=expected):
        load({"CLUSTERCHECK_ENV_FILE": str(env_file)})
    # One that is empty counts as not set, and two sources have an order.
    assert load({"MYSQL_HOST": "", "mysql_host": "db2"}).mysql_host == "db2"
    assert load({"mysql_host": "db3"}, "--mysql-host", "db4").mysql_host == "db4"


def test_an_error_names_the_flag_beside_the_setting_if_it_was_typed(load: Load) -> None:
    with pytest.raises(SettingsError, match=r"^CLUSTERCHECK_POLL_INTERVAL \(--interval\): 0 is out of range"):
        load({"CLUSTERCHECK_POLL_INTERVAL": "1"}, "--interval", "0")


def test_the_env_file_may_name_other_variables(load: Load, tmp_path: Path) -> None:
    env_file = tmp_path / "env"
    env_file.write_text(
        "export NAME=db\nMYSQL_HOST=${NAME}1\nMYSQL_USERNAME='${NAME}'\nMYSQL_SSL_CA=${FOLDER}/ca.pem\n"
    )
    settings = load({"CLUSTERCHECK_ENV_FILE": str(env_file), "FOLDER": "/etc"})
    assert (settings.mysql_host, settings.mysql_username, settings.mysql_ssl_ca) == ("db1", "db", "/etc/ca.pem")


def test_a_caller_of_a_few_settings_is_not_stopped_by_others(load: Load, tmp_path: Path) -> None:
    env_file = tmp_path / "env"
    env_file.write_text("AVAILABLE_WHEN_DONOR=perhaps\nCLUSTERCHECK_PORT=9300\nbroken\n")
    assert load({}).clustercheck_port == 9200  # an environment without settings
    settings, warnings = load_settings({}, str(env_file), ["clustercheck_port"])
    assert (settings.clustercheck_port, settings.available_when_donor) == (9300, False)
    assert warnings == [f"--env-file: {env_file}, line 3: is not NAME=value"]
    with pytest.raises(SettingsError, match="AVAILABLE_WHEN_DONOR"):
        load_settings({}, str(env_file), ["available_when_donor"])


@pytest.mark.parametrize("name", ["CLUSTERCHECK_ALLOW_FROM", "CLUSTERCHECK_DISABLED_FILE"])
def test_an_empty_value_that_might_do_the_opposite_is_an_error(load: Load, name: str) -> None:
    with pytest.raises(SettingsError, match=f"^{name}: '' "):
        load({name: ""})
    with pytest.raises(SettingsError, match=r"^CLUSTERCHECK_ALLOW_FROM: ' , ' contains no network: "):
        load({"CLUSTERCHECK_ALLOW_FROM": " , "})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MYSQL_PASSWORD_FILE", "geheim"),
        ("MYSQL_PASSWORD_FILE", "/geheim"),
        ("MYSQL_PASSWORD_FILE", "geheim\udcff"),
        ("MYSQL_SOCKET", "mysql://root:geheim@db2/"),
    ],
)
def test_a_secret_in_the_wrong_variable_is_not_repeated(load: Load, name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"^{name}") as caught:
        load({name: value}).require_login()
    assert "geheim" not in str(caught.value)
    assert "geheim" not in str(Database(socket=value, password_file=value))


def test_each_bad_value_has_its_line(load: Load) -> None:
    with pytest.raises(SettingsError) as caught:
        load({"MYSQL_PORT": "x", "CLUSTERCHECK_PORT": "y"})
    assert sorted(line.split(":")[0] for line in str(caught.value).splitlines()) == ["CLUSTERCHECK_PORT", "MYSQL_PORT"]


def test_a_variable_that_kubernetes_sets_for_a_service_is_recognized(load: Load) -> None:
    with pytest.raises(SettingsError, match="enableServiceLinks"):
        load({"MYSQL_PORT": "tcp://10.0.0.1:3306"})


def test_a_missing_env_file_is_named(load: Load, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=f"^--env-file: {tmp_path}/none: No such file or directory$"):
        load({}, "--env-file", f"{tmp_path}/none")
    with pytest.raises(SettingsError, match=f"^CLUSTERCHECK_ENV_FILE: {tmp_path}/none: No such file or directory$"):
        load({"CLUSTERCHECK_ENV_FILE": f"{tmp_path}/none"})


def test_a_password_is_never_shown(load: Load) -> None:
    settings = load({"MYSQL_PASSWORD": "geheim"})
    assert "geheim" not in f"{settings!r} {settings} {settings.database()!r} {settings.database().login()!r}"
    assert settings.database().login().password == "geheim"


def test_a_misspelt_variable_is_told_with_what_was_meant(warn: Warn) -> None:
    environ = {
        "CLUSTERCHECK_PROT": "1",
        "AVAILABLE_WHEN_DONER": "1",
        "CLUSTERCHECK_PORT": "1",
        "CLUSTERCHECK_SERVICE_HOST": "10.0.0.1",
        "CLUSTERCHECK_PORT_9200_TCP": "tcp://10.0.0.1:9200",
        "CLUSTERCHECK_COLOUR_OF_THE_SKY": "blue",
        "MAX_RECV_QUEU": "5",
    }
    assert warn(environ) == [
        "AVAILABLE_WHEN_DONER is not a setting and is ignored: did you mean AVAILABLE_WHEN_DONOR?",
        "CLUSTERCHECK_COLOUR_OF_THE_SKY is not a setting and is ignored",
        "CLUSTERCHECK_PROT is not a setting and is ignored: did you mean CLUSTERCHECK_PORT?",
        "MAX_RECV_QUEU is not a setting and is ignored: did you mean MAX_RECV_QUEUE?",
    ]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("MYSQL_USER", "MYSQL_USERNAME"),
        ("MYSQL_PASS", "MYSQL_PASSWORD"),
        ("MYSQL_SSLCA", "MYSQL_SSL_CA"),
        ("MYSQL_TCP_PORT", "MYSQL_PORT"),
        ("MYSQL_HOSTNAME", "MYSQL_HOST"),
    ],
)
def test_what_other_programs_call_it_is_told_with_the_name_that_is_meant(warn: Warn, name: str, meant: str) -> None:
    assert warn({name: "1"}) == [f"{name} is not a setting and is ignored: did you mean {meant}?"]
    # Where that one is set, the other is another program's.
    assert warn({name: "1", meant: "1"}) == []


def test_variables_of_other_programs_are_not_told(warn: Warn) -> None:
    assert (
        warn({"MYSQL_ROOT_PASSWORD": "x", "MYSQL_DATABASE": "x", "MYSQL_SERVICE_PORT": "1", "MYSQLD_OPTS": "x"}) == []
    )


def test_misspelt_names_in_an_env_file_are_told_with_file_and_line(warn: Warn, tmp_path: Path) -> None:
    env_file = tmp_path / "env"
    env_file.write_text("\n# a comment\nMYSQL_USERNAME=x\n\n\nMYSQL_USER=x\nexport DRAIN=1\nMIIEvQIBADANBg=\n")
    assert warn({"CLUSTERCHECK_ENV_FILE": str(env_file)}) == [
        f"{env_file}, line 6: MYSQL_USER is not a setting and is ignored: did you mean MYSQL_USERNAME?",
        f"{env_file}, line 7: a name is not a setting and is ignored",
        f"{env_file}, line 8: a name is not a setting and is ignored",
    ]


@pytest.mark.parametrize("line", ["geheim", "MYSQL_PASSWORD geheim", "MYSQL_PASSWORD='geheim", "=geheim", "; geheim"])
def test_a_line_of_an_env_file_that_cannot_be_parsed_is_named_without_its_text(
    load: Load, tmp_path: Path, line: str
) -> None:
    env_file = tmp_path / "env"
    env_file.write_text(f"# first\n\nMYSQL_PORT=3307\n\n{line}\n")
    with pytest.raises(SettingsError) as caught:
        load({}, "--env-file", str(env_file))
    assert str(caught.value) == f"--env-file: {env_file}, line 5: is not NAME=value"


def test_an_ipv6_address_is_shown_in_brackets() -> None:
    assert str(Database(host="::1", port=3307).login()) == "[::1]:3307"


def test_a_socket_as_a_flag_does_not_lose_to_a_host_in_the_environment(load: Load) -> None:
    settings = load({"MYSQL_HOST": "db2"}, "--mysql-socket", "/s")
    with pytest.raises(SettingsError, match=r"^MYSQL_SOCKET=/s and MYSQL_HOST=db2 name two"):
        settings.require_login()
    settings = load({"MYSQL_HOST": "db2"}, "--mysql-socket", "/s", "--mysql-host", "localhost")
    assert str(settings.database().login()) == "/s"


NO_HOST = (
    "is not a host name or an IP address:"
    " set a port, a socket or the account in MYSQL_PORT, MYSQL_SOCKET or MYSQL_USERNAME"
)


@pytest.mark.parametrize(
    "host",
    [
        *("[::1]", "[::1]:3307", "[fe80::1%eth0]", "db2:3307", "10.0.0.2:3307", "db2:", "tcp://10.0.0.2:3306"),
        *("/run/mysqld/mysqld.sock", "db 2", "db2\t", "::1::2"),
    ],
)
def test_what_is_no_host_is_one_line_that_says_what_to_set(load: Load, host: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load({"MYSQL_HOST": host}).require_login()
    assert str(caught.value) == f"MYSQL_HOST={host} {NO_HOST}"


@pytest.mark.parametrize("host", ["mysql://root:geheim@db2/", "root:geheim@db2", "geheim@db2:3306"])
def test_what_may_contain_a_password_is_not_repeated(load: Load, host: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load({"MYSQL_HOST": host}).require_login()
    assert str(caught.value) == f"MYSQL_HOST {NO_HOST}"


@pytest.mark.parametrize("host", ["db2", "db2.example.org", "10.0.0.2", "::1", "2001:db8::2", "fe80::1%eth0", "db_2"])
def test_a_host_is_taken_as_it_is(load: Load, host: str) -> None:
    settings = load({"MYSQL_HOST": host})
    settings.require_login()
    assert settings.database().login().host == host


def test_what_is_no_host_in_the_option_file_names_the_file(load: Load, tmp_path: Path) -> None:
    path = tmp_path / "my.cnf"
    path.write_text("[client]\nhost=[::1]:3307\n")
    path.chmod(0o600)
    with pytest.raises(SettingsError) as caught:
        load({"DEFAULTS_EXTRA_FILE": str(path)}).require_login()
    assert str(caught.value) == f"DEFAULTS_EXTRA_FILE: {path}: host=[::1]:3307 {NO_HOST}"


def test_a_value_of_two_lines_is_shown_in_one(load: Load) -> None:
    with pytest.raises(SettingsError) as caught:
        load({"MYSQL_HOST": "db2\nmore"}).require_login()
    assert str(caught.value) == rf"MYSQL_HOST=db2\nmore {NO_HOST}"
