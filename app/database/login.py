"""How to log in to the node's server: settings in, the parameters of one connection out.

Resolved again for every connection, so that a socket that appears late, a rotated password or a renewed certificate
needs no restart.
"""

import os
import pwd
import ssl
import stat
from dataclasses import dataclass, field
from pathlib import Path

from app.database.address import Address, resolve_address
from app.database.client_options import ClientOptions
from app.database.settings_error import DatabaseSettingsError
from app.database.tls import VERIFY_IDENTITY, Tls


@dataclass(frozen=True, slots=True)
class Login:
    """The parameters of one connection attempt. A socket, where set, takes precedence over host and port.

    tls: None for plain text; otherwise the connection is never used without it.
    """

    username: str
    password: str = field(repr=False)
    socket: str | None
    host: str
    port: int
    tls: ssl.SSLContext | None

    def __str__(self) -> str:
        """Where this leads, for logs and answers: no credentials."""
        return str(Address(self.socket, self.host, self.port))


@dataclass(frozen=True, slots=True)
class Database:
    """What the operator set about the database; None where nothing was set.

    defaults_extra_file is an option file of the mysql client, and holds for what is not set here. `address` says where
    all that leads, `tls` what is encrypted: TCP connections, never those over a unix socket.
    """

    socket: str | None = None
    host: str | None = None
    port: int | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    password_file: str | None = None
    defaults_extra_file: str | None = None
    tls: bool | None = None
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = None
    ssl_verify: str | None = None

    def __str__(self) -> str:
        """Say what is connected to and how, for the log: no credentials, no exception where a file is missing."""
        try:
            login = self.login()
        except DatabaseSettingsError as fault:
            return f"a database it cannot log in to ({fault})"
        with_password = "with" if login.password else "without"
        return f"{login} as {login.username} ({with_password} a password{', over TLS' if login.tls else ''})"

    def login(self) -> Login:
        """Resolve into the parameters of one connection attempt.

        Raises `DatabaseSettingsError` where that cannot be done.
        """
        tls = self._tls_settings()
        options = ClientOptions.read(self.defaults_extra_file)
        address = resolve_address(self.socket, self.host, self.port, options)
        return Login(
            username=self.username or options.value("user") or _own_name(),
            password=self._password(options),
            socket=address.socket,
            host=address.host,
            port=address.port,
            tls=None if address.socket else (tls or Tls.of_options(options)).context(),
        )

    def _tls_settings(self) -> Tls | None:
        given = (self.tls, self.ssl_ca, self.ssl_cert, self.ssl_key, self.ssl_verify)
        if all(value in (None, "") for value in given):
            return None
        # Whoever says how to verify, or whom to trust, does not mean plain text.
        tls = Tls(self.tls is not False, self.ssl_ca, self.ssl_cert, self.ssl_key, self.ssl_verify or VERIFY_IDENTITY)
        tls.check()
        return tls

    def _password(self, options: ClientOptions) -> str:
        if self.password_file:
            return _password_in(self.password_file)
        return (options.values.get("password") if self.password is None else self.password) or ""


def _own_name() -> str:
    """Give the operating system user's name, which is what unix_socket authentication goes by."""
    try:
        # Not getpass, which believes LOGNAME: the server asks the kernel.
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        message = "MYSQL_USERNAME is not set, and this process runs as a user without a name"
        raise DatabaseSettingsError(message) from None


def _password_in(path: str) -> str:
    try:
        # A pipe would be waited for, and with it everything else.
        if not stat.S_ISREG(os.stat(path).st_mode):
            message = f"MYSQL_PASSWORD_FILE: {path} is not a file"
            raise DatabaseSettingsError(message)
        text = Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as fault:
        message = f"MYSQL_PASSWORD_FILE: {path}: {fault.strerror}"
        raise DatabaseSettingsError(message) from None
    # Editors and echo end the file with a newline; no password ends with one.
    return text.rstrip("\r\n")
