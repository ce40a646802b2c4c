"""Where the node's server is and how to log in: settings in, the parameters of one connection out.

Resolved anew for every connection, so that a socket that appears late or a rotated password needs no restart.
"""

import getpass
import os
from dataclasses import dataclass, field

USUAL_SOCKETS = (
    "/run/mysqld/mysqld.sock",
    "/var/run/mysqld/mysqld.sock",
    "/var/lib/mysql/mysql.sock",
    "/tmp/mysql.sock",  # noqa: S108 (where MySQL built from source puts it)
)
"""Where distributions put the server's socket, in the order they are tried."""

LOCAL_HOST_NAMES = ("", "localhost")
"""The host names that mean the unix socket, as they do to the mysql client."""

DEFAULT_PORT = 3306


class DatabaseSettingsError(Exception):
    """The settings do not lead to a connection; the message is one line that names the setting."""


@dataclass(frozen=True, slots=True)
class Login:
    """The parameters of one connection attempt. A socket, where set, goes before host and port."""

    username: str
    password: str = field(repr=False)
    socket: str | None
    host: str
    port: int

    def __str__(self) -> str:
        """Where this leads, for logs and answers: no credentials."""
        if self.socket:
            return self.socket
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Database:
    """What the operator set about the database; None or empty where nothing was set."""

    socket: str | None = None
    host: str | None = None
    port: int | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """Say what is connected to and how, for the log: no credentials, no exception where a file is missing."""
        try:
            login = self.login()
        except DatabaseSettingsError as fault:
            return f"a database it cannot log in to ({fault})"
        return f"{login} as {login.username} ({'with' if login.password else 'without'} a password)"

    def login(self) -> Login:
        """Resolve into the parameters of one connection attempt.

        Raises `DatabaseSettingsError` where that cannot be done.
        """
        host = self.host or ""
        # A port without a host can only mean TCP on this machine.
        if host in LOCAL_HOST_NAMES and self.port is not None and not self.socket and not host:
            host = "127.0.0.1"
        socket = (self.socket or _usual_socket()) if host in LOCAL_HOST_NAMES else None
        return Login(
            username=self.username or _own_name(),
            password=self.password or "",
            socket=socket,
            host=host,
            port=self.port or DEFAULT_PORT,
        )


def _usual_socket() -> str:
    return next((path for path in USUAL_SOCKETS if os.path.exists(path)), USUAL_SOCKETS[0])  # noqa: PTH110 (a string is wanted)


def _own_name() -> str:
    """Give the operating system user's name, which is what unix_socket authentication goes by."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # OSError from Python 3.13 on
        message = "MYSQL_USERNAME is not set, and this process runs as a user without a name"
        raise DatabaseSettingsError(message) from None
