"""Resolves the settings to the parameters of one connection.

Every connection resolves them again. A socket that appears late, a rotated password or a renewed
certificate therefore needs no restart.
"""

import os
import pwd
from dataclasses import asdict, dataclass, field
from ssl import SSLContext

from app.settings.address import Address, resolve_address
from app.settings.files import SettingsError, read_file, stamp_of, words_of
from app.settings.option_file import Options, read_option_file
from app.settings.tls import VERIFY_IDENTITY, context_of, context_of_file


@dataclass(frozen=True, kw_only=True)
class Target(Address):
    """The parameters of one connection attempt. As text, the address alone.

    tls: None for plain text. If it is set, the connection is never used without TLS.
    """

    username: str
    password: str = field(repr=False)
    tls: SSLContext | None = None


@dataclass(frozen=True)
class Database:
    """The operator's settings for the database; None for any that is missing.

    The option file supplies those. The modules `address` and `tls` have the rules. TLS applies to
    TCP only, never to a unix socket.
    """

    socket: str | None = None
    host: str | None = None
    port: int | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    password_file: str | None = None
    defaults_extra_file: str | None = None
    ssl: bool | None = None
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = None
    ssl_verify: str | None = None

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
        return self.socket, self.host, self.port, self.defaults_extra_file

    def target(self) -> Target:
        """Read the files that the settings name, and return the parameters of one attempt.

        Raises `SettingsError`.
        """
        options: Options = {}
        if self.defaults_extra_file:
            options = read_option_file(self.defaults_extra_file)
        address = resolve_address(self.socket, self.host, self.port, options)
        return Target(
            username=self.username or options.get("user") or _own_name(),
            password=self._password(options),
            tls=None if address.socket else self._tls(options),
            **asdict(address),
        )

    def file_stamps(self) -> list[object]:
        """Return values that change when a file that the settings name does."""
        paths = (
            self.password_file,
            self.defaults_extra_file,
            self.ssl_ca,
            self.ssl_cert,
            self.ssl_key,
        )
        return [stamp_of(path) for path in paths]

    def _tls(self, options: Options) -> SSLContext | None:
        if self.ssl is False:
            return None
        files = (self.ssl_ca, self.ssl_cert, self.ssl_key)
        # A setting that says what to verify or trust asks for TLS.
        if self.ssl or any(files) or self.ssl_verify:
            return context_of(self.ssl_verify or VERIFY_IDENTITY, *files)
        return context_of_file(options)

    def _password(self, options: Options) -> str:
        path = self.password_file
        if not path:
            return self.password or options.get("password") or ""
        if not path.startswith("/"):
            # Without the path: it may be the password, in the wrong variable.
            raise SettingsError("MYSQL_PASSWORD_FILE: not an absolute path")
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
