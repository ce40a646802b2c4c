"""The statement for a server that cannot be had here, or that lies."""

import pytest

from app.commands.account import account_advice
from app.database.login import Login
from app.database.refusal import Refusal
from tests.fake_mysql import error, fake_mysql, greets_then
from tests.http.test_process import run

DENIED, BLOCKED = 1045, 1129


def refusal(version: str, *, socket: str | None, password: str = "", address: str | None = None) -> Refusal:
    """Make a refusal."""
    login = Login("someone", password, socket, "db", 3306, None)
    return Refusal(login, version, address, account_exists=False)


@pytest.mark.parametrize(
    ("version", "identified"),
    [
        ("5.5.5-10.3.39-MariaDB-0+deb10u2", "IDENTIFIED VIA unix_socket;"),
        ("11.8.3-MariaDB", "IDENTIFIED VIA unix_socket;"),
        # Percona XtraDB Cluster and MySQL have auth_socket, but only where somebody has installed it.
        ("8.0.36-28.1", "IDENTIFIED BY 'PASSWORD' WITH MAX_USER_CONNECTIONS 3;"),
    ],
)
def test_unix_socket_is_for_mariadb(version: str, identified: str) -> None:
    lines = account_advice(refusal(version, socket="/s"))
    assert lines[1] == f"  CREATE USER 'someone'@'localhost' {identified}"


def test_an_address_that_is_not_known_is_any() -> None:
    assert "'someone'@'%' IDENTIFIED BY" in account_advice(refusal("", socket=None))[1]


@pytest.mark.parametrize(
    ("said", "host"),
    [
        ("Access denied for user 'someone'@'192.0.2.7' (using password: YES)", "192.0.2.7"),
        ("Access denied for user 'someone'@'2001:db8::7' (using password: YES)", "2001:db8::7"),
        ("Access denied for user 'someone'@'localhost' (using password: YES)", "localhost"),
        # A host name, and what is no address: nothing of it is for an administrator's terminal.
        ("Access denied for user 'someone'@'db7.example' (using password: YES)", "127.0.0.1"),
        ("Access denied for user 'someone'@'1.2.3.4.5' (using password: YES)", "127.0.0.1"),
        ("Access denied for user 'someone'@''; DROP TABLE x; --' (using password: YES)", "127.0.0.1"),
    ],
)
def test_the_address_is_the_one_the_server_sees_if_it_is_one(said: str, host: str) -> None:
    with fake_mysql(greets_then(error(DENIED, said))) as server:
        done = run("check", MYSQL_HOST="127.0.0.1", MYSQL_PORT=str(server.port), MYSQL_USERNAME="someone")
    assert f"  CREATE USER 'someone'@'{host}' IDENTIFIED BY 'PASSWORD'" in done.stdout
    assert "DROP" not in done.stdout


def test_a_blocked_host_needs_no_account() -> None:
    with fake_mysql(lambda peer: peer.send(error(BLOCKED))) as server:
        done = run("check", MYSQL_HOST="127.0.0.1", MYSQL_PORT=str(server.port), MYSQL_USERNAME="someone")
    assert done.stdout.splitlines()[1:] == []
    assert done.stdout.startswith("NOT available host-blocked: ")
