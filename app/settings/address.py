"""Resolves the settings and the option file to the address of a server.

docs/reference/settings.md has the rules, under "Which server clustercheckd polls". They are those
of the mariadb client (10.11 and 11.8) but for two. The client shows its user which server it
connected to; clustercheckd would silently report the verdict of the wrong node.

- MYSQL_SOCKET with MYSQL_PORT, or with a MYSQL_HOST that means TCP, is an error.
- MYSQL_SOCKET takes precedence over the file's host.

A port means TCP since MariaDB 10.6 (MDEV-14974). MySQL's client (9.7) ignores it for localhost.
"""

import contextlib
import os
import re
from dataclasses import dataclass
from ipaddress import ip_address

from app.settings.files import SettingsError
from app.settings.option_file import Options
from app.text import host_and_port

USUAL_SOCKETS = (
    "/run/mysqld/mysqld.sock",
    "/var/run/mysqld/mysqld.sock",
    "/var/lib/mysql/mysql.sock",
)
"""Where distributions put the server's socket, in the order to try. Any user can listen in /tmp."""

DEFAULT_PORT, MOST_PORT = 3306, 65535

_IN_FILE = " in DEFAULTS_EXTRA_FILE"
_UNSET_OR_LOCALHOST = (None, "", "localhost")
_SOCKET_BYTES = 107  # unix(7)
_PORT = re.compile(r"[0-9]{1,5}")
_HOST_NAME = re.compile(r"[^\s:/@\[\]]+")


@dataclass(frozen=True)
class Address:
    """A unix socket, or else a host and port."""

    socket: str | None = None
    host: str = ""
    port: int = DEFAULT_PORT

    def __str__(self) -> str:
        """Return the socket, or HOST:PORT."""
        return self.socket or host_and_port(self.host, self.port)


def resolve_address(
    socket: str | None, host: str | None, port: int | None, options: Options
) -> Address:
    """Return the address that the settings and the option file name. Raises `SettingsError`.

    Its message repeats no value: a URL, or a value in the wrong variable, may contain the password.
    """
    if socket:
        if host not in _UNSET_OR_LOCALHOST or port is not None:
            raise SettingsError(
                "MYSQL_SOCKET with MYSQL_HOST or MYSQL_PORT may name two servers: set one of them"
            )
        return Address(_checked_socket("MYSQL_SOCKET", socket))
    host = _checked_host("MYSQL_HOST", host) or _checked_host(
        "host" + _IN_FILE, options.get("host")
    )
    protocol = (options.get("protocol") or "").strip().lower()
    if host in _UNSET_OR_LOCALHOST and protocol != "tcp" and port is None:
        path = options.get("socket")
        if path is None:
            # Path.exists raises PermissionError.
            path = next(filter(os.path.exists, USUAL_SOCKETS), USUAL_SOCKETS[0])
        return Address(_checked_socket("socket" + _IN_FILE, path))
    # The client takes 0 and an empty port as the default.
    file_port = options.get("port") or "0"
    if port is None and file_port != "0":
        port = parse_port("port" + _IN_FILE, file_port)
    return Address(host=host or "127.0.0.1", port=port or DEFAULT_PORT)


def parse_port(name: str, value: str) -> int:
    """Parse a port. Raises `SettingsError`, whose message begins with name."""
    if not (_PORT.fullmatch(value) and 0 < int(value) <= MOST_PORT):
        raise SettingsError(f"{name} is not a port: set it to a number from 1 to 65535")
    return int(value)


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
