"""Resolves the settings to the parameters of one connection.

Every connection resolves them again. A socket that appears late, a rotated password or a renewed
certificate therefore needs no restart.

The rules for the address are those of the mariadb client (10.11 and 11.8), where a port means TCP
(MDEV-14974). But MYSQL_SOCKET excludes a port and a host that means TCP, and takes precedence over
the file's host: nobody would notice the verdict of the wrong node.
"""

import os
import pwd
from dataclasses import dataclass, field
from pathlib import Path
from ssl import SSLContext
from typing import Any

from app.kinds import BOOLEAN, HOST, PATH, PORT, SECRET, TEXT, Kind, choice, row
from app.settings.error import SettingsError
from app.settings.files import read_file, stamp_of, words_of
from app.settings.option_file import Options, read_option_file
from app.settings.tls import VERIFY, context_of
from app.text import host_and_port, one_line

USUAL_SOCKETS = (
    "/run/mysqld/mysqld.sock",
    "/var/run/mysqld/mysqld.sock",
    "/var/lib/mysql/mysql.sock",
)
"""Where distributions put the server's socket, in the order to try. Any user can listen in /tmp."""

DEFAULT_PORT = 3306

SYSTEMD = Path("/run/systemd/system")
"""A host that runs systemd has it, sd_booted(3); a container seldom has."""

_UNSET_OR_LOCALHOST = (None, "", "localhost")


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

    mysql_socket: str | None = row("unix socket (default: the first usual place)", PATH)
    mysql_host: str | None = row("the server's name or address, for TCP", HOST)
    mysql_port: int | None = row("the server's port (3306); it means TCP", PORT)
    mysql_username: str | None = row(
        "account (default: clustercheckd's own user)", TEXT
    )
    mysql_password: str | None = row(
        "the account's password; none with unix_socket", SECRET
    )
    mysql_password_file: str | None = row("file that contains the password", PATH)
    defaults_extra_file: str | None = row(
        "option file of the mysql client, for [client]", PATH
    )
    mysql_ssl: bool | None = row("require TLS; other MYSQL_SSL_* imply it", BOOLEAN)
    mysql_ssl_ca: str | None = row(
        "certificates to trust (default: the system's)", PATH
    )
    mysql_ssl_cert: str | None = row("client certificate, PEM", PATH)
    mysql_ssl_key: str | None = row("its key, PEM (default: in the same file)", PATH)
    mysql_ssl_verify: str | None = row("identity (default), ca, none", choice(*VERIFY))

    @property
    def login_words(self) -> str:
        """Address, user and TLS for the log, or why there is no login."""
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
        # A path may have bytes that JSON cannot have.
        return (
            self.mysql_socket and one_line(self.mysql_socket),
            self.mysql_host,
            self.mysql_port,
            self.defaults_extra_file and one_line(self.defaults_extra_file),
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
        port = self.mysql_port
        if self.mysql_socket:
            if self.mysql_host not in _UNSET_OR_LOCALHOST or port is not None:
                raise SettingsError(
                    "MYSQL_SOCKET with MYSQL_HOST or MYSQL_PORT may name two servers: set one"
                    " of them"
                )
            return self.mysql_socket, "", 0
        host = self.mysql_host or _in_file(options, "host", HOST)
        by_socket = options.get("protocol", "").lower() != "tcp" and port is None
        if host in _UNSET_OR_LOCALHOST and by_socket:
            # Path.exists raises PermissionError.
            usual = next(filter(os.path.exists, USUAL_SOCKETS), USUAL_SOCKETS[0])
            return _in_file(options, "socket", PATH) or usual, "", 0
        port = port or _in_file(options, "port", PORT) or DEFAULT_PORT
        return "", host or "127.0.0.1", port

    def _tls(self, options: Options) -> SSLContext | None:
        if self.mysql_ssl is False:
            return None
        files = (self.mysql_ssl_ca, self.mysql_ssl_cert, self.mysql_ssl_key)
        # A setting that says what to verify or trust asks for TLS.
        if self.mysql_ssl or any(files) or self.mysql_ssl_verify:
            return context_of(self.mysql_ssl_verify or "identity", *files)
        if "ssl" in options:
            raise SettingsError(
                "DEFAULTS_EXTRA_FILE: its TLS options are not read: set MYSQL_SSL_CA or"
                " MYSQL_SSL; MYSQL_SSL=0 is plain text"
            )
        return None

    def _password(self, options: Options) -> str:
        path = self.mysql_password_file
        if not path:
            return self.mysql_password or options.get("password", "")
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


def _in_file(options: Options, name: str, kind: Kind) -> Any:  # noqa: ANN401 (as kinds read it)
    """Return the value of an option; None for an empty one too. Raises `SettingsError`.

    The message does not repeat it: a URL may contain the password.
    """
    try:
        value = options.get(name)
        return kind.parse(value) if value else None
    except ValueError:
        raise SettingsError(
            f"{name} in DEFAULTS_EXTRA_FILE: must be {kind.must_be}"
        ) from None
