"""Finds out how a server refuses a login, so that `check` can say which account is missing."""

import asyncio
import contextlib
import re
import socket
from dataclasses import dataclass
from ipaddress import ip_address

from pymysql.err import MySQLError

from app.database.connection import Connection
from app.database.faults import RefusedPluginError, error_number
from app.database.login import Database, Login
from app.database.resolver import Resolver
from app.database.settings_error import DatabaseSettingsError
from app.node_state import REASON_OF_SERVER_ERROR
from app.reason import Reason

_HOST_NOT_PRIVILEGED = 1130  # ER_HOST_NOT_PRIVILEGED: no account at all may log in from this host
_LOCALHOST = "localhost"
# In "Access denied for user 'name'@'host'" and in "Host 'host' is not allowed to connect".
_HOST = re.compile(r"(?:@|Host )'(localhost|[0-9A-Fa-f.:]+)'")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused login that needs an account, or a changed one.

    server_version: from the server's greeting; empty if the server sent an error instead. address: this host's address
    as the server sees it, or localhost; None over a unix socket, or if it is unknown. account_exists: True if the
    account exists and has an authentication plugin that clustercheckd does not support.
    """

    login: Login
    server_version: str
    address: str | None
    account_exists: bool

    @property
    def is_mariadb(self) -> bool:
        """Whether the server's version names MariaDB."""
        return "mariadb" in self.server_version.lower()


def refusal_of(database: Database, deadline_seconds: float) -> Refusal | None:
    """Try to log in once, from code without an event loop, and return how the server refuses.

    Return None if it does not refuse, or if an account would not help.
    """
    try:
        login = database.login()
    except DatabaseSettingsError:
        return None
    return asyncio.run(_refusal_of(login, deadline_seconds))


async def _refusal_of(login: Login, deadline_seconds: float) -> Refusal | None:
    connection = Connection.unopened(login)
    addresses: list[str] = []
    try:
        # Complete the login: a connection closed before that counts towards the server's max_connect_errors.
        async with asyncio.timeout(deadline_seconds):
            if not login.socket:
                addresses = await Resolver().addresses(login.host)
            await connection.open(addresses)
    except RefusedPluginError:
        return Refusal(login, connection.server_version, _local_address(addresses, login.port), account_exists=True)
    except MySQLError as fault:
        number = error_number(fault)
        if REASON_OF_SERVER_ERROR.get(number) is not Reason.ACCESS_DENIED and number != _HOST_NOT_PRIVILEGED:
            return None
        address = (_address_in(fault) or _local_address(addresses, login.port)) if addresses else None
        return Refusal(login, getattr(connection, "server_version", ""), address, account_exists=False)
    except Exception:  # noqa: BLE001 (the driver may raise anything, and this only adds advice)
        return None
    await connection.quit()
    return None


def _address_in(fault: MySQLError) -> str | None:
    """Return the address that the server names in its error, which is right behind a NAT too.

    Of host names, return only localhost: a server that resolves names prefers an account for localhost. Any other name
    depends on the server's resolver.
    """
    said = _HOST.search(str(fault.args[-1]) if fault.args else "")
    if said is None or said[1] == _LOCALHOST:
        return said and said[1]
    try:
        return str(ip_address(said[1]))
    except ValueError:
        return None


def _local_address(addresses: list[str], port: int) -> str | None:
    """Return the local address from which packets to the server leave. To connect a datagram socket sends nothing."""
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as channel:
            channel.connect((address, port))
            return str(channel.getsockname()[0])
    return None
