"""What to type when the server refuses the login: the statement that creates or alters the account."""

import os
import pwd

from app.database.refusal import Refusal

_PLACEHOLDER = "PASSWORD"


def account_advice(refusal: Refusal) -> list[str]:
    """Return the lines to print. No line contains a password."""
    username = refusal.login.username
    account = f"{_quoted(username)}@{_quoted(_host_part(refusal))}"
    if refusal.login.socket and refusal.is_mariadb and not refusal.login.password:
        identified, notes = "IDENTIFIED VIA unix_socket", _socket_notes(username)
    else:
        identified = f"IDENTIFIED BY '{_PLACEHOLDER}' WITH MAX_USER_CONNECTIONS 3"
        notes = [_password_note(known=bool(refusal.login.password))]
    if refusal.account_exists:
        verb = "ALTER"
    else:
        verb = "CREATE"
        notes.append("If the account already exists, type ALTER USER instead of CREATE USER.")
    if not refusal.login.socket and refusal.login.tls is None:
        notes.append("If the account exists and has REQUIRE SSL, change nothing on the server, but set MYSQL_SSL=1.")
    return [
        "On one node that is Synced, type as an administrator (Galera replicates the account):",
        f"  {verb} USER {account} {identified};",
        *notes,
    ]


def _host_part(refusal: Refusal) -> str:
    if refusal.login.socket:
        return "localhost"
    return refusal.address or "%"


def _socket_notes(username: str) -> list[str]:
    own_name = _own_name()
    if own_name == username:
        return []
    who = f"unix_socket accepts only the operating system's user {username}, and this command runs as {own_name}."
    return [f"{who} To try the account, type: runuser -u {username} -- clustercheckd check"]


def _password_note(*, known: bool) -> str:
    if known:
        return f"Replace {_PLACEHOLDER} with the password that is set for clustercheckd."
    return (
        f"Replace {_PLACEHOLDER} with a password of your choice, write it to a file that only clustercheckd may read,"
        " and set MYSQL_PASSWORD_FILE to that file."
    )


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"user id {os.geteuid()}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
