"""What the settings and an option file ask of a connection."""

import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from app.settings.database import Database
from app.settings.error import SettingsError
from harness.certificates import make_authority
from tests.unit.test_option_file import written

IDENTITY, ISSUER = (ssl.CERT_REQUIRED, True), (ssl.CERT_REQUIRED, False)


def option_file(directory: Path, lines: str) -> str:
    """Write a [client] group that leads to a remote host."""
    return str(written(directory / "my.cnf", f"[client]\nhost=db\n{lines}\n"))


def asked_for(database: Database) -> tuple[ssl.VerifyMode, bool] | None:
    """Return how the server's certificate is checked; None for plain text."""
    context = database.target().tls
    return None if context is None else (context.verify_mode, context.check_hostname)


@pytest.mark.parametrize("line", ["", "skip-ssl", "disable-ssl-verify-server-cert"])
def test_without_a_setting_or_an_option_it_is_plain_text(
    tmp_path: Path, line: str
) -> None:
    assert asked_for(Database(defaults_extra_file=option_file(tmp_path, line))) is None


@pytest.mark.parametrize("line", ["enable-ssl", "ssl-ca=/x", "loose_SSL-Mode=REQUIRED"])
def test_tls_of_an_option_file_has_to_be_set_as_settings(
    tmp_path: Path, line: str
) -> None:
    ca = str(make_authority(tmp_path).cert)
    database = Database(defaults_extra_file=option_file(tmp_path, line))
    with pytest.raises(SettingsError, match="set MYSQL_SSL_CA or MYSQL_SSL; "):
        database.target()
    assert asked_for(replace(database, mysql_ssl_ca=ca)) == IDENTITY
    assert asked_for(replace(database, mysql_ssl=True)) == IDENTITY
    assert asked_for(replace(database, mysql_ssl_verify="ca")) == ISSUER
    assert asked_for(replace(database, mysql_ssl=False)) is None
    # A unix socket has no TLS.
    assert asked_for(replace(database, mysql_host="localhost")) is None


def test_a_setting_takes_precedence_and_leaves_the_rest_of_the_option_file_as_it_is(
    tmp_path: Path,
) -> None:
    file = option_file(tmp_path, "skip-ssl\nuser=file\nport=1")
    target = Database(defaults_extra_file=file, mysql_ssl=True, mysql_port=2).target()
    assert (target.username, str(target)) == ("file", "db:2")
    assert target.tls is not None


def test_the_log_shows_the_login_without_the_password(tmp_path: Path) -> None:
    ca = str(make_authority(tmp_path).cert)
    database = Database(
        mysql_host="db",
        mysql_username="someone",
        mysql_password="geheim",
        mysql_ssl_ca=ca,
    )
    assert database.login_words == "db:3306 as someone (with a password, over TLS)"
    without_file = replace(database, mysql_ssl_ca="/no/file").login_words
    assert without_file.startswith("no login possible: MYSQL_SSL_CA")
