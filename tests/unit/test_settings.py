"""Environment, flags and env file into settings; bad ones into one line each."""

import argparse
import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from app.database.connection import USUAL_SOCKETS, Database
from app.settings import Settings, SettingsError, load_settings, unknown_variables
from app.verdict import Policy

Load = Callable[..., Settings]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Load settings from an environment that holds only what is given."""

    def loading(environ: Mapping[str, str] | None = None, *arguments: str) -> Settings:
        for name in Settings.model_fields:
            monkeypatch.delenv(name.upper(), raising=False)
        for name, value in (environ or {}).items():
            monkeypatch.setenv(name, value)
        return load_settings(arguments, argparse.ArgumentParser(prog="clustercheckd"))[0]

    return loading


def test_the_defaults_are_the_documented_ones(load: Load) -> None:
    settings = load()
    assert Database() == settings.database()
    assert dataclasses.replace(settings.policy(), max_age_seconds=0) == Policy(0)
    assert settings.policy().max_age_seconds == pytest.approx(0.25 + 0.8 + 0.1)
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
        ("CLUSTERCHECK_POLL_INTERVAL", "nan"),
        ("CLUSTERCHECK_DEADLINE", "inf"),
        ("CLUSTERCHECK_DEADLINE", "fast"),
        ("CLUSTERCHECK_PORT", "-1"),
        ("CLUSTERCHECK_LOG_LEVEL", "loud"),
    ],
)
def test_a_bad_value_is_one_line_that_names_the_setting(load: Load, name: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load({name: value})
    assert str(caught.value).startswith(f"{name}={value}: ")
    assert "\n" not in str(caught.value)


def test_each_bad_value_has_its_line(load: Load) -> None:
    with pytest.raises(SettingsError) as caught:
        load({"MYSQL_PORT": "x", "CLUSTERCHECK_PORT": "y"})
    assert sorted(line.split("=")[0] for line in str(caught.value).splitlines()) == ["CLUSTERCHECK_PORT", "MYSQL_PORT"]


def test_a_variable_that_kubernetes_sets_for_a_service_is_recognized(load: Load) -> None:
    with pytest.raises(SettingsError, match="enableServiceLinks"):
        load({"MYSQL_PORT": "tcp://10.0.0.1:3306"})


def test_a_missing_env_file_is_named(load: Load, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=f"CLUSTERCHECK_ENV_FILE: there is no file {tmp_path}/none"):
        load({}, "--env-file", f"{tmp_path}/none")


def test_a_password_has_no_flag_and_is_never_shown(load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load({}, "--mysql-password", "geheim")
    assert "unrecognized arguments" in capsys.readouterr().err
    settings = load({"MYSQL_PASSWORD": "geheim"})
    assert "geheim" not in f"{settings!r} {settings} {settings.database()!r} {settings.database().login()!r}"
    assert settings.database().login().password == "geheim"


def test_a_misspelt_variable_is_told_with_what_was_meant() -> None:
    environ = {
        "CLUSTERCHECK_PROT": "1",
        "AVAILABLE_WHEN_DONER": "1",
        "CLUSTERCHECK_PORT": "1",
        "CLUSTERCHECK_SERVICE_HOST": "10.0.0.1",
        "CLUSTERCHECK_PORT_9200_TCP": "tcp://10.0.0.1:9200",
    }
    assert unknown_variables(environ) == [
        "AVAILABLE_WHEN_DONER is not a setting and is ignored: did you mean AVAILABLE_WHEN_DONOR?",
        "CLUSTERCHECK_PROT is not a setting and is ignored: did you mean CLUSTERCHECK_PORT?",
    ]


@pytest.mark.parametrize(
    ("database", "where"),
    [
        (Database(socket="/s"), "/s"),
        (Database(host="localhost", socket="/s"), "/s"),
        (Database(host="db1", socket="/s"), "db1:3306"),
        (Database(host="::1", port=3307), "[::1]:3307"),
        (Database(port=3307), "127.0.0.1:3307"),
        (Database(host="localhost", port=3306), None),
        (Database(), None),
    ],
)
def test_socket_host_and_port_mean_what_they_mean_to_the_mysql_client(database: Database, where: str | None) -> None:
    if where is None:
        assert str(database.login()) in USUAL_SOCKETS
    else:
        assert where == str(database.login())
