"""Where the node's server is and how to log in: settings in, the parameters of one connection out.

Resolved anew for every connection, so that a socket that appears late, a rotated password or a renewed certificate
needs no restart.
"""

import os
import pwd
import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from app.database.option_file import OptionFileError, read_options

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
_PORT_DIGITS = 5

VERIFY_IDENTITY, VERIFY_CA, VERIFY_NOTHING = "identity", "ca", "none"
"""How much of the server's certificate is checked: issuer and host name, issuer only, nothing."""

_OFF = ("0", "off", "false", "disabled")


class DatabaseSettingsError(Exception):
    """The settings do not lead to a connection; the message is one line that names the setting."""


@dataclass(frozen=True, slots=True)
class Login:
    """The parameters of one connection attempt. A socket, where set, goes before host and port.

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
        if self.socket:
            return self.socket
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Database:
    """What the operator set about the database; None where nothing was set.

    defaults_extra_file is an option file of the mysql client, and holds for what is not set here. TLS is required
    where tls is True or one of ssl_ca and ssl_cert is set, over TCP; a unix socket does without.
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
        given = self._with_defaults_file()
        host = given.host or ""
        # A port without a host can only mean TCP on this machine.
        if not host and given.port is not None and not given.socket:
            host = "127.0.0.1"
        socket = (given.socket or _usual_socket()) if host in LOCAL_HOST_NAMES else None
        return Login(
            username=given.username or _own_name(),
            password=_password_in(given.password_file) if given.password_file else given.password or "",
            socket=socket,
            host=host,
            port=given.port or DEFAULT_PORT,
            tls=None if socket else given.tls_context(),
        )

    def tls_context(self) -> ssl.SSLContext | None:
        """Make the TLS context for a TCP connection; None where TLS is not asked for.

        Raises `DatabaseSettingsError` for files that cannot be used.
        """
        if self.tls is False or not (self.tls or self.ssl_ca or self.ssl_cert):
            return None
        files = (("MYSQL_SSL_CA", self.ssl_ca), ("MYSQL_SSL_CERT", self.ssl_cert), ("MYSQL_SSL_KEY", self.ssl_key))
        # A renewed file is another context; reading unchanged ones each time would cost milliseconds.
        changed_at = tuple(_changed_at(name, path) if path else 0 for name, path in files)
        return _tls_context(self.ssl_ca, self.ssl_cert, self.ssl_key, self.ssl_verify or VERIFY_IDENTITY, changed_at)

    def _with_defaults_file(self) -> "Database":
        if not self.defaults_extra_file:
            return self
        try:
            options = read_options(self.defaults_extra_file)
        except OptionFileError as fault:
            message = f"DEFAULTS_EXTRA_FILE: {fault}"
            raise DatabaseSettingsError(message) from None
        port = options.get("port")
        return replace(
            self,
            # Where it says host and we were told a socket, or the other way round, what we were told counts.
            socket=self.socket or (None if self.host else options.get("socket")),
            host=self.host or (None if self.socket else options.get("host")),
            port=self.port
            or (parse_port(f"DEFAULTS_EXTRA_FILE: {self.defaults_extra_file}: port", port) if port else None),
            username=self.username or options.get("user"),
            password=options.get("password") if self.password is None else self.password,
            tls=_tls_option(options) if self.tls is None else self.tls,
            ssl_ca=self.ssl_ca or options.get("ssl-ca"),
            ssl_cert=self.ssl_cert or options.get("ssl-cert"),
            ssl_key=self.ssl_key or options.get("ssl-key"),
            ssl_verify=self.ssl_verify or _verify_option(options),
        )


def parse_port(name: str, value: str) -> int:
    """Read a port. Raises `DatabaseSettingsError`, which names the setting it came from."""
    if not (value.isascii() and value.isdecimal() and len(value) <= _PORT_DIGITS and 0 < int(value) < 1 << 16):
        message = f"{name}={value}: no port"
        raise DatabaseSettingsError(message)
    return int(value)


def _usual_socket() -> str:
    # Not Path.exists, which raises where the directory may not be searched.
    return next((path for path in USUAL_SOCKETS if os.path.exists(path)), USUAL_SOCKETS[0])  # noqa: PTH110


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


def _changed_at(name: str, path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError as fault:
        message = f"{name}: {path}: {fault.strerror}"
        raise DatabaseSettingsError(message) from None


@lru_cache(maxsize=2)
def _tls_context(
    ca: str | None,
    cert: str | None,
    key: str | None,
    verify: str,
    changed_at: tuple[int, ...],  # noqa: ARG001 (part of the cache's key)
) -> ssl.SSLContext:
    setting = f"MYSQL_SSL_CA: {ca}"
    try:
        context = ssl.create_default_context(cafile=ca)
        # Python 3.13 began to ask more of certificates than RFC 5280's readers in MySQL's own clients do.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = verify == VERIFY_IDENTITY
        if verify == VERIFY_NOTHING:
            context.verify_mode = ssl.CERT_NONE
        if cert:
            setting = f"MYSQL_SSL_CERT: {cert} with MYSQL_SSL_KEY: {key}"
            # A key that is encrypted is an error; without a password here, OpenSSL would ask for one on the terminal.
            context.load_cert_chain(cert, key, password="")
    except (OSError, ValueError) as fault:
        words = fault.strerror if isinstance(fault, OSError) else None
        if isinstance(fault, ssl.SSLError):
            words = (fault.reason or "no certificate").lower().replace("_", " ")
        message = f"{setting}: {words or 'no certificate'}"
        raise DatabaseSettingsError(message) from None
    return context


def _tls_option(options: Mapping[str, str | None]) -> bool | None:
    if "skip-ssl" in options or "disable-ssl" in options:
        return False
    mode = (options.get("ssl-mode") or "").lower()
    if mode:
        return mode not in ("disabled", "preferred")
    if "ssl" in options:
        return (options["ssl"] or "1").lower() not in _OFF
    return None


def _verify_option(options: Mapping[str, str | None]) -> str | None:
    mode = (options.get("ssl-mode") or "").lower()
    if mode == "verify_ca":
        return VERIFY_CA
    if mode == "required" or "skip-ssl-verify-server-cert" in options or "disable-ssl-verify-server-cert" in options:
        return VERIFY_NOTHING
    if (options.get("ssl-verify-server-cert") or "1").lower() in _OFF:
        return VERIFY_NOTHING
    return None
