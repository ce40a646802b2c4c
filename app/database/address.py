"""Which server is meant: settings and option file in, a unix socket or a host and port out.

The rules are those of the mariadb client (10.11 and 11.8), with MYSQL_SOCKET, MYSQL_HOST and MYSQL_PORT for its flags:

1. A setting takes precedence over the same option in the file.
2. A host other than localhost means TCP, whatever else is set.
3. MYSQL_PORT means TCP too. The file's port alone does not.
4. protocol=tcp in the file means TCP, unless MYSQL_SOCKET is set.
5. Anything else means a unix socket: MYSQL_SOCKET, the file's, or the first of the usual ones that exists.

Two things differ, because a client that connects to another server than its user meant shows that at its prompt, and
we would pass on the verdict of the wrong node:

- MYSQL_SOCKET with MYSQL_PORT, or with a MYSQL_HOST that means TCP, is an error. To the client the flag that comes last
  takes precedence, and a host over both.
- MYSQL_SOCKET takes precedence over the file's host. To the client the host does.

Rule 3 is MariaDB's since 10.6 (MDEV-14974). MySQL's own client (9.7) ignores the port for localhost: it connects to the
socket, which may be another server's.
"""

import os
import re
from ipaddress import ip_address
from typing import NamedTuple

from app.database.client_options import ClientOptions
from app.database.settings_error import DatabaseSettingsError

USUAL_SOCKETS = (
    "/run/mysqld/mysqld.sock",
    "/var/run/mysqld/mysqld.sock",
    "/var/lib/mysql/mysql.sock",
)
"""Where distributions put the server's socket, in the order they are tried.

Not /tmp/mysql.sock, where MySQL built from source puts it: any local user can listen there.
"""

DEFAULT_PORT = 3306

_LOCALHOST = "localhost"
_THIS_MACHINE = "127.0.0.1"
_TCP = "tcp"
_PROTOCOLS = (_TCP, "socket", "pipe", "memory")
_USABLE_PROTOCOLS = (_TCP, "socket")
_PORT_DIGITS = 5
_HOST_NAME = re.compile(r"[^\s:/\[\]]+")
_HOST_AND_PORT = re.compile(r"(?:\[(?P<address>[^\[\]]+)\]|(?P<name>[^\s:/\[\]]+))(?::(?P<port>[0-9]*))?")


class Address(NamedTuple):
    """Where a server listens. A socket, where there is one, takes precedence over host and port."""

    socket: str | None
    host: str
    port: int

    def __str__(self) -> str:
        """Return it as people write it, for logs and answers."""
        if self.socket:
            return self.socket
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def resolve_address(socket: str | None, host: str | None, port: int | None, options: ClientOptions) -> Address:
    """Return the address that MYSQL_SOCKET, MYSQL_HOST, MYSQL_PORT and the option file lead to.

    Raises `DatabaseSettingsError`.
    """
    if host:
        _check_host("MYSQL_HOST", "MYSQL_PORT", host)
    if socket:
        if host and host != _LOCALHOST:
            both = f"MYSQL_SOCKET={socket} and MYSQL_HOST={host}"
            message = f"{both} lead to two servers: unset MYSQL_SOCKET, or set MYSQL_HOST=localhost"
            raise DatabaseSettingsError(message)
        if port is not None:
            message = f"MYSQL_SOCKET={socket} and MYSQL_PORT={port} may lead to two servers: unset one of them"
            raise DatabaseSettingsError(message)
        return Address(socket, "", DEFAULT_PORT)
    protocol = _TCP if port is not None else _protocol(options)
    if not host:
        host = options.value("host") or ""
        if host:
            _check_host(options.named("host"), "port", host)
    if host in ("", _LOCALHOST) and protocol != _TCP:
        return Address(_socket(options) or _usual_socket(), "", DEFAULT_PORT)
    return Address(None, host or _THIS_MACHINE, port or _port(options) or DEFAULT_PORT)


def parse_port(name: str, value: str) -> int:
    """Read a port. Raises `DatabaseSettingsError`, which names the setting it came from."""
    if not (value.isascii() and value.isdecimal() and len(value) <= _PORT_DIGITS and 0 < int(value) < 1 << 16):
        message = f"{name}={value}: no port"
        raise DatabaseSettingsError(message)
    return int(value)


def _protocol(options: ClientOptions) -> str | None:
    given = options.value("protocol")
    if not given:
        return None
    # The client takes any beginning of a name that fits one only.
    matching = [name for name in _PROTOCOLS if name.startswith(given.strip().lower())]
    if len(matching) != 1 or matching[0] not in _USABLE_PROTOCOLS:
        message = f"{options.named('protocol')}={given}: set it to tcp or socket"
        raise DatabaseSettingsError(message)
    return matching[0]


def _socket(options: ClientOptions) -> str | None:
    socket = options.value("socket")
    if socket == "":
        message = f"{options.named('socket')} is empty: set it to the server's socket"
        raise DatabaseSettingsError(message)
    return socket


def _port(options: ClientOptions) -> int | None:
    port = options.value("port")
    # To the client 0 and nothing are the default.
    return None if port in (None, "", "0") else parse_port(options.named("port"), port)


def _usual_socket() -> str:
    # Not Path.exists, which raises where the directory may not be searched.
    return next((path for path in USUAL_SOCKETS if os.path.exists(path)), USUAL_SOCKETS[0])  # noqa: PTH110


def _check_host(name: str, port_name: str, host: str) -> None:
    """Refuse what no resolver knows, above all an address in the notation of a URL."""
    if _HOST_NAME.fullmatch(host) or _is_address(host):
        return
    message = f"{name}={host}: no host name and no address"
    parts = _HOST_AND_PORT.fullmatch(host)
    if parts is not None:
        bare = parts["address"] or parts["name"]
        port = f" and {port_name}={parts['port']}" if parts["port"] else ""
        message += f": set {name.rpartition(' ')[2]}={bare}{port}"
    raise DatabaseSettingsError(message)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
