"""What an option file says about TLS, into what is asked of a connection."""

import ssl
import subprocess
from pathlib import Path

import pytest

from app.database.connection import Database, DatabaseSettingsError, parse_port

REQUIRED, ISSUER, IDENTITY = (ssl.CERT_NONE, False), (ssl.CERT_REQUIRED, False), (ssl.CERT_REQUIRED, True)


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
    ],
)
def test_tls_options_of_an_option_file(
    tmp_path: Path,
    lines: str,
    expected: tuple[ssl.VerifyMode, bool] | None,
) -> None:
    path = tmp_path / "my.cnf"
    path.write_text(f"[client]\nhost=db\n{lines}\n")
    path.chmod(0o600)
    context = Database(defaults_extra_file=str(path)).login().tls
    assert expected == (None if context is None else (context.verify_mode, context.check_hostname))


def test_a_setting_goes_before_the_option_file(tmp_path: Path) -> None:
    path = tmp_path / "my.cnf"
    path.write_text("[client]\nhost=db\nssl-mode=REQUIRED\nuser=file\nport=1\n")
    path.chmod(0o600)
    login = Database(defaults_extra_file=str(path), username="set", port=2, ssl_verify="identity").login()
    assert (login.username, login.port, login.tls is not None and login.tls.check_hostname) == ("set", 2, True)
    assert Database(defaults_extra_file=str(path), tls=False).login().tls is None


@pytest.mark.parametrize("value", ["", "0", "65536", "x", "0000033060000", "-1", "٣"])
def test_what_is_no_port_is_named(value: str) -> None:
    with pytest.raises(DatabaseSettingsError, match=r"^NAME=.*: no port$"):
        parse_port("NAME", value)


def test_a_key_that_is_encrypted_is_an_error_and_no_question(tmp_path: Path) -> None:
    key, cert = tmp_path / "k", tmp_path / "c"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-passout", "pass:x", "-subj", "/CN=x"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True, timeout=30)
    with pytest.raises(DatabaseSettingsError, match="MYSQL_SSL_KEY"):
        Database(host="db", ssl_cert=str(cert), ssl_key=str(key)).login()
