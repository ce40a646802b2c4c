"""What an option file says about TLS, into what is asked of a connection."""

import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from app.database.login import Database
from app.settings.error import SettingsError
from harness.certificates import make_authority, make_certificate
from harness.ports import LOOPBACK

REQUIRED, ISSUER, IDENTITY = (
    (ssl.CERT_NONE, False),
    (ssl.CERT_REQUIRED, False),
    (ssl.CERT_REQUIRED, True),
)


def option_file(directory: Path, lines: str) -> str:
    """Write a [client] group that leads to a remote host."""
    path = directory / "my.cnf"
    path.write_text(f"[client]\nhost=db\n{lines}\n")
    path.chmod(0o600)
    return str(path)


def asked_for(database: Database) -> tuple[ssl.VerifyMode, bool] | None:
    """Say how the server's certificate is checked; None for plain text."""
    context = database.login().tls
    return None if context is None else (context.verify_mode, context.check_hostname)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", None),
        ("ssl", IDENTITY),
        ("ssl=1", IDENTITY),
        ("ssl=0", None),
        ("skip-ssl", None),
        ("disable_ssl", None),
        ("ssl-mode=DISABLED", None),
        ("ssl-mode=PREFERRED", None),
        ("ssl-mode=REQUIRED", REQUIRED),
        ("ssl-mode=VERIFY_CA", ISSUER),
        ("ssl-mode=VERIFY_IDENTITY", IDENTITY),
        ("ssl\nssl-verify-server-cert=0", REQUIRED),
        ("ssl\nssl-verify-server-cert", IDENTITY),
        ("ssl\nskip-ssl-verify-server-cert", REQUIRED),
        ("SSL", IDENTITY),
        ("ssl\nskip-ssl", None),
        ("skip-ssl\nssl", IDENTITY),
        ("skip-ssl=0", IDENTITY),
        ("enable-ssl=0", None),
        ("ssl\nloose_SKIP-ssl", None),
        ("ssl-verify-server-cert", IDENTITY),
        ("ssl-verify-server-cert\nskip-ssl", None),
        ("skip-ssl-verify-server-cert", None),
    ],
)
def test_tls_options_of_an_option_file(
    tmp_path: Path, lines: str, expected: tuple[ssl.VerifyMode, bool] | None
) -> None:
    assert asked_for(Database(defaults_extra_file=option_file(tmp_path, lines))) == expected


@pytest.mark.parametrize(
    "lines",
    [
        "skip-ssl",
        "ssl-mode=DISABLED",
        "ssl-mode=REQUIRED",
        "ssl-mode=VERIFY_CA",
        "skip-ssl-verify-server-cert",
        "ssl-ca=/no/file",
        "ssl-key=/no/file",
    ],
)
def test_no_option_file_weakens_tls_where_a_setting_asks_for_it(tmp_path: Path, lines: str) -> None:
    file = option_file(tmp_path, lines)
    ca = str(make_authority(tmp_path).cert)
    assert asked_for(Database(defaults_extra_file=file, ssl_ca=ca)) == IDENTITY
    assert asked_for(Database(defaults_extra_file=file, ssl=True)) == IDENTITY
    assert asked_for(Database(defaults_extra_file=file, ssl_verify="identity")) == IDENTITY
    assert asked_for(Database(defaults_extra_file=file, ssl_verify="ca")) == ISSUER
    assert asked_for(Database(defaults_extra_file=file, ssl=False)) is None


def test_a_setting_takes_precedence_and_leaves_the_rest_of_the_option_file_as_it_is(
    tmp_path: Path,
) -> None:
    file = option_file(tmp_path, "skip-ssl\nuser=file\nport=1")
    login = Database(defaults_extra_file=file, ssl=True, port=2).login()
    assert (login.username, login.host, login.port, login.tls is None) == ("file", "db", 2, False)


def test_a_key_without_its_certificate_is_an_error_that_names_both(tmp_path: Path) -> None:
    for database in (
        Database(ssl_key="/k"),
        Database(host="db", ssl_ca="/ca", ssl_key="/k", ssl=False),
    ):
        with pytest.raises(SettingsError) as caught:
            database.login()
        assert (
            str(caught.value) == "MYSQL_SSL_KEY is set without MYSQL_SSL_CERT: set both or neither"
        )
    file = option_file(tmp_path, "ssl-key=/k")
    with pytest.raises(SettingsError) as caught:
        Database(defaults_extra_file=file).login()
    assert (
        str(caught.value)
        == f"DEFAULTS_EXTRA_FILE: {file}: ssl-key is set without ssl-cert: set both or neither"
    )


def test_the_log_shows_the_login_without_the_password(tmp_path: Path) -> None:
    ca = str(make_authority(tmp_path).cert)
    database = Database(host="db", username="someone", password="geheim", ssl_ca=ca)
    assert str(database) == "db:3306 as someone (with a password, over TLS)"
    assert str(replace(database, ssl_ca="/no/file")) == (
        "no login possible: MYSQL_SSL_CA: /no/file: No such file or directory"
    )


def test_a_certificate_that_holds_its_key_needs_no_other_file(tmp_path: Path) -> None:
    made = make_certificate(tmp_path, "client", make_authority(tmp_path), LOOPBACK)
    made.cert.write_text(made.cert.read_text() + made.key.read_text())
    assert asked_for(Database(host="db", ssl_cert=str(made.cert))) == IDENTITY


def test_a_tls_file_that_cannot_be_read_is_named_where_it_was_set(tmp_path: Path) -> None:
    file = option_file(tmp_path, "ssl-ca=/no/file")
    expected = f"^DEFAULTS_EXTRA_FILE: {file}: ssl-ca: /no/file: No such file or directory$"
    with pytest.raises(SettingsError, match=expected):
        Database(defaults_extra_file=file).login()


def test_a_key_that_is_encrypted_is_an_error_and_no_question(tmp_path: Path) -> None:
    key, cert = tmp_path / "k", tmp_path / "c"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-passout",
        "pass:x",
        "-subj",
        "/CN=x",
    ]
    subprocess.run(
        [*command, "-keyout", str(key), "-out", str(cert)],
        check=True,
        capture_output=True,
        timeout=30,
    )
    with pytest.raises(SettingsError, match="MYSQL_SSL_KEY"):
        Database(host="db", ssl_cert=str(cert), ssl_key=str(key)).login()
