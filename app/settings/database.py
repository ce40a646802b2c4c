"""Resolves the settings to the parameters of one connection.

Every connection resolves them again. A socket that appears late, a rotated password or a renewed
certificate therefore needs no restart.

docs/reference/settings.md has the rules for the address, under "Which server clustercheckd polls".
They are those of the mariadb client (10.11 and 11.8), but MYSQL_SOCKET excludes a port and a host
that means TCP, and takes precedence over the file's host: nobody would notice the verdict of the
wrong node. A port means TCP since MariaDB 10.6 (MDEV-14974).
"""

import contextlib
import os
import pwd
import re
from dataclasses import dataclass, field
from ipaddress import ip_address
from ssl import SSLContext
from typing import get_args

from app.settings.error import SettingsError
from app.settings.files import read_file, stamp_of, words_of
from app.settings.option_file import Options, read_option_file
from app.settings.tls import Verify, context_of, context_of_file
from app.table import BOOLEAN, PATH, PORT, SECRET, TEXT, choice, row
from app.text import host_and_port

USUAL_SOCKETS = (
    "/run/mysqld/mysqld.sock",
    "/var/run/mysqld/mysqld.sock",
    "/var/lib/mysql/mysql.sock",
)
"""Where distributions put the server's socket, in the order to try. Any user can listen in /tmp."""

DEFAULT_PORT = 3306

_IN_FILE = " in DEFAULTS_EXTRA_FILE"
_UNSET_OR_LOCALHOST = (None, "", "localhost")
_SOCKET_BYTES = 107  # unix(7)
_HOST_NAME = re.compile(r"[^\s:/@\[\]]+")


@dataclass(frozen=True)
class Target:
    """The parameters of one connection attempt.

    socket: empty for TCP, to host and port. tls: None for plain text. If it is set, the connection
    is never used without TLS.
    """

    socket: str
    host: str
    port: int
    username: str
    password: str = field(repr=False)
    tls: SSLContext | None = None

    def __str__(self) -> str:
        """Return the socket, or HOST:PORT."""
        return self.socket or host_and_port(self.host, self.port)


@dataclass(frozen=True)
class Database:
    """The operator's settings for the database; None for any that is missing.

    The option file supplies those. TLS applies to TCP only, never to a unix socket.
    """

    mysql_socket: str | None = row(
        "", "unix socket (default: the first usual place)", TEXT
    )
    mysql_host: str | None = row("", "the server's name or address, for TCP", TEXT)
    mysql_port: int | None = row("", "the server's port (3306); it means TCP", PORT)
    mysql_username: str | None = row(
        "", "account (default: clustercheckd's own user)", TEXT
    )
    mysql_password: str | None = row(
        "", "the account's password; none with unix_socket", SECRET
    )
    mysql_password_file: str | None = row("", "file that contains the password", PATH)
    defaults_extra_file: str | None = row(
        "", "option file of the mysql client, for [client]", PATH
    )
    mysql_ssl: bool | None = row("", "require TLS; other MYSQL_SSL_* imply it", BOOLEAN)
    mysql_ssl_ca: str | None = row(
        "", "certificates to trust (default: the system's)", PATH
    )
    mysql_ssl_cert: str | None = row("", "client certificate, PEM", PATH)
    mysql_ssl_key: str | None = row(
        "", "its key, PEM (default: in the same file)", PATH
    )
    mysql_ssl_verify: Verify | None = row(
        "", "identity (default), ca, none", choice(*get_args(Verify))
    )

    def __str__(self) -> str:
        """Return address, user and TLS for the log, or why there is no login."""
        try:
            target = self.target()
        except SettingsError as fault:
            return f"no login possible: {fault}"
        with_password = "with" if target.password else "without"
        over_tls = ", over TLS" if target.tls else ""
        return f"{target} as {target.username} ({with_password} a password{over_tls})"

    @property
    def server(self) -> tuple[object, ...]:
        """The settings that name the server, without the account."""
        return (
            self.mysql_socket,
            self.mysql_host,
            self.mysql_port,
            self.defaults_extra_file,
        )

    def target(self) -> Target:
        """Read the files that the settings name, and return the parameters of one attempt.

        Raises `SettingsError`.
        """
        path = self.defaults_extra_file
        options = read_option_file(path) if path else {}
        socket, host, port = self._address(options)
        username = self.mysql_username or options.get("user") or _own_name()
        password = self._password(options)
        tls = None if socket else self._tls(options)
        return Target(socket, host, port, username, password, tls)

    def file_stamps(self) -> list[object]:
        """Return values that change when a file that the settings name does."""
        paths = (
            self.mysql_password_file,
            self.defaults_extra_file,
            self.mysql_ssl_ca,
            self.mysql_ssl_cert,
            self.mysql_ssl_key,
        )
        return [stamp_of(path) for path in paths]

    def _address(self, options: Options) -> tuple[str, str, int]:
        """Return socket, host and port."""
        # No message repeats a value: a URL, or one in the wrong variable, may contain the password.
        port = self.mysql_port
        if self.mysql_socket:
            if self.mysql_host not in _UNSET_OR_LOCALHOST or port is not None:
                raise SettingsError(
                    "MYSQL_SOCKET with MYSQL_HOST or MYSQL_PORT may name two servers: set one"
                    " of them"
                )
            return _checked_socket("MYSQL_SOCKET", self.mysql_socket), "", 0
        host = _checked_host("MYSQL_HOST", self.mysql_host) or _checked_host(
            "host" + _IN_FILE, options.get("host")
        )
        protocol = (options.get("protocol") or "").strip().lower()
        if host in _UNSET_OR_LOCALHOST and protocol != "tcp" and port is None:
            path = options.get("socket")
            if path is None:
                # Path.exists raises PermissionError.
                path = next(filter(os.path.exists, USUAL_SOCKETS), USUAL_SOCKETS[0])
            return _checked_socket("socket" + _IN_FILE, path), "", 0
        # The client takes 0 and an empty port as the default.
        file_port = options.get("port") or "0"
        if port is None and file_port != "0":
            try:
                port = PORT.parse(file_port)
            except ValueError:
                problem = f"port{_IN_FILE}: must be {PORT.must_be}"
                raise SettingsError(problem) from None
        return "", host or "127.0.0.1", port or DEFAULT_PORT

    def _tls(self, options: Options) -> SSLContext | None:
        if self.mysql_ssl is False:
            return None
        files = (self.mysql_ssl_ca, self.mysql_ssl_cert, self.mysql_ssl_key)
        # A setting that says what to verify or trust asks for TLS.
        if self.mysql_ssl or any(files) or self.mysql_ssl_verify:
            return context_of(self.mysql_ssl_verify or "identity", *files)
        return context_of_file(options)

    def _password(self, options: Options) -> str:
        path = self.mysql_password_file
        if not path:
            return self.mysql_password or options.get("password") or ""
        try:
            text = read_file(path)
        except OSError as fault:
            raise SettingsError(
                f"MYSQL_PASSWORD_FILE: {path}: {words_of(fault)}"
            ) from None
        # Editors and echo add a newline at the end, and no password ends with one.
        return text.rstrip("\r\n")


def _own_name() -> str:
    """Return the name of this process' user, which unix_socket authentication compares."""
    try:
        # Not getpass, which trusts LOGNAME: the server gets the user from the kernel.
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        raise SettingsError(
            f"MYSQL_USERNAME: set it, because user id {os.geteuid()} has no name"
        ) from None


def _checked_socket(name: str, socket: str) -> str:
    if (
        not socket.startswith("/")
        or len(socket.encode("utf-8", "surrogateescape")) > _SOCKET_BYTES
    ):
        raise SettingsError(
            f"{name} is not an absolute path of at most {_SOCKET_BYTES} bytes: set it to the path"
            " of the server's socket"
        )
    return socket


def _checked_host(name: str, host: str | None) -> str:
    """Return a host name or an IP address; empty for none."""
    if not host or _HOST_NAME.fullmatch(host):
        return host or ""
    with contextlib.suppress(ValueError):
        return str(ip_address(host))
    raise SettingsError(
        f"{name} is not a host name or an IP address: set a port, a socket or the account in"
        " MYSQL_PORT, MYSQL_SOCKET or MYSQL_USERNAME"
    )
