"""Resolves the settings and the option file to the address of a server.

An address is a unix socket, or a host and port.

The rules are those of the mariadb client (10.11 and 11.8), with MYSQL_SOCKET, MYSQL_HOST and
MYSQL_PORT as its flags:

1. A setting takes precedence over the same option in the file.
2. A host other than localhost means TCP, regardless of other settings.
3. MYSQL_PORT means TCP too. The file's port alone does not.
4. protocol=tcp in the file means TCP, unless MYSQL_SOCKET is set.
5. Otherwise a unix socket is used: MYSQL_SOCKET, the file's, or the first existing one of
   `USUAL_SOCKETS`.

Two rules differ. The client shows its user which server it connected to; clustercheckd would
silently report the verdict of the wrong node.

- MYSQL_SOCKET with MYSQL_PORT, or with a MYSQL_HOST that means TCP, is an error. In the client the
  last flag takes precedence, and a host takes precedence over both.
- MYSQL_SOCKET takes precedence over the file's host. In the client the host takes precedence.

MariaDB has rule 3 since 10.6 (MDEV-14974). MySQL's own client (9.7) ignores the port for localhost:
it connects to the socket, which may belong to another server.
"""

import os
import re
from dataclasses import dataclass
from ipaddress import ip_address

from app.database.option_file import OptionFile
from app.settings.error import SettingsError

USUAL_SOCKETS = (
    "/run/mysqld/mysqld.sock",
    "/var/run/mysqld/mysqld.sock",
    "/var/lib/mysql/mysql.sock",
)
"""The paths at which distributions put the server's socket, in the order to try them.

/tmp/mysql.sock, the default of MySQL built from source, is not one of them: any local user can
listen there.
"""

DEFAULT_PORT = 3306

_LOCALHOST = "localhost"
_TCP = "tcp"
_PORT = re.compile(r"[0-9]{1,5}")
_HOST_NAME = re.compile(r"[^\s:/@\[\]]+")


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server. A socket takes precedence over host and port."""

    socket: str | None = None
    host: str = ""
    port: int = DEFAULT_PORT

    def __str__(self) -> str:
        """Return the socket, or HOST:PORT with brackets around an IPv6 address."""
        if self.socket:
            return self.socket
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def resolve_address(
    socket: str | None, host: str | None, port: int | None, options: OptionFile
) -> Address:
    """Return the address for MYSQL_SOCKET, MYSQL_HOST, MYSQL_PORT and the option file.

    Raises `SettingsError` if a value is invalid, or if the settings name two servers.
    """
    if host:
        _check_host("MYSQL_HOST", host)
    if socket:
        _check_socket("MYSQL_SOCKET", socket)
        if host and host != _LOCALHOST:
            both = f"MYSQL_SOCKET={socket} and MYSQL_HOST={host}"
            raise SettingsError(
                f"{both} name two servers: unset MYSQL_SOCKET, or set MYSQL_HOST=localhost"
            )
        if port is not None:
            raise SettingsError(
                f"MYSQL_SOCKET={socket} and MYSQL_PORT={port} may name two servers: unset one"
            )
        return Address(socket)
    protocol = _TCP if port is not None else _protocol(options)
    if not host:
        host = options.value("host") or ""
        if host:
            _check_host(options.named("host"), host)
    if host in ("", _LOCALHOST) and protocol != _TCP:
        # Not Path.exists, which raises PermissionError if the directory may not be searched.
        usual = next((path for path in USUAL_SOCKETS if os.path.exists(path)), USUAL_SOCKETS[0])  # noqa: PTH110
        return Address(_socket(options) or usual)
    return Address(host=host or "127.0.0.1", port=port or _port(options) or DEFAULT_PORT)


def parse_port(name: str, value: str) -> int:
    """Parse a port from 1 to 65535. Raises `SettingsError`, whose message begins with name."""
    if not (_PORT.fullmatch(value) and 0 < int(value) < 1 << 16):
        # Anything but a number may be the password, in the wrong variable.
        shown = f"{name}={value}" if _PORT.fullmatch(value) else name
        raise SettingsError(f"{shown} is not a port: set it to a number from 1 to 65535")
    return int(value)


def _protocol(options: OptionFile) -> str:
    given = options.value("protocol") or ""
    protocol = given.strip().lower()
    if protocol not in ("", _TCP, "socket"):
        raise SettingsError(
            f"{options.named('protocol')}={given} is not supported: set it to tcp or socket"
        )
    return protocol


def _socket(options: OptionFile) -> str | None:
    socket = options.value("socket")
    if socket is not None:
        _check_socket(options.named("socket"), socket)
    return socket


def _port(options: OptionFile) -> int | None:
    port = options.value("port")
    # The client takes 0 and an empty value as the default.
    return None if port in (None, "", "0") else parse_port(options.named("port"), port)


def _check_socket(name: str, socket: str) -> None:
    """Raise `SettingsError` for a relative path, without it: a URL may contain the password."""
    if not socket.startswith("/"):
        raise SettingsError(
            f"{name} is not an absolute path: set it to the path of the server's socket"
        )


def _check_host(name: str, host: str) -> None:
    """Raise `SettingsError` unless host can be a host name or an IP address."""
    if _HOST_NAME.fullmatch(host):
        return
    try:
        ip_address(host)
    except ValueError:
        # A URL may contain the password, which must not be repeated.
        shown = name if "@" in host else f"{name}={host}"
        elsewhere = (
            "set a port, a socket or the account in MYSQL_PORT, MYSQL_SOCKET or MYSQL_USERNAME"
        )
        raise SettingsError(f"{shown} is not a host name or an IP address: {elsewhere}") from None
