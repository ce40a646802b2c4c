"""What a server shows of itself while it refuses a login: enough to say which account it lacks."""

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
from app.node_state import CAUSE_OF_SERVER_ERROR, Cause

_HOST_NOT_PRIVILEGED = 1130  # ER_HOST_NOT_PRIVILEGED: no account at all may log in from this host
_LOCALHOST = "localhost"
# In "Access denied for user 'name'@'host'" and in "Host 'host' is not allowed to connect".
_HOST = re.compile(r"(?:@|Host )'(localhost|[0-9A-Fa-f.:]+)'")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A login that the server refused, and that an account makes succeed.

    server_version: as in the server's greeting, empty where it sends an error instead. address: this host's, as the
    server sees it, or localhost; None over a unix socket, or where it is not known. account_exists: whether it
    certainly does, with an authentication plugin that is not answered here.
    """

    login: Login
    server_version: str
    address: str | None
    account_exists: bool

    @property
    def is_mariadb(self) -> bool:
        """Whether the server says that it is a MariaDB."""
        return "mariadb" in self.server_version.lower()


def refusal_of(database: Database, deadline_seconds: float) -> Refusal | None:
    """Try to log in once, outside any event loop; return how the server refuses.

    None where it does not, or not for want of an account.
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
        # A whole login: a connection that is given up before its end counts toward the server's max_connect_errors.
        async with asyncio.timeout(deadline_seconds):
            if not login.socket:
                addresses = await Resolver().addresses(login.host)
            await connection.open(addresses)
    except RefusedPluginError:
        return Refusal(login, connection.server_version, _local_address(addresses, login.port), account_exists=True)
    except MySQLError as fault:
        number = error_number(fault)
        if CAUSE_OF_SERVER_ERROR.get(number) is not Cause.ACCESS_DENIED and number != _HOST_NOT_PRIVILEGED:
            return None
        address = (_address_in(fault) or _local_address(addresses, login.port)) if addresses else None
        return Refusal(login, getattr(connection, "server_version", ""), address, account_exists=False)
    except Exception:  # noqa: BLE001 (the driver lets anything through, and this only adds advice)
        return None
    await connection.quit()
    return None


def _address_in(fault: MySQLError) -> str | None:
    """Return the address that the server names: the right one behind a NAT, too. A host name is not to be relied on.

    But for localhost: a server that looks names up takes an account for localhost first, where there is one.
    """
    said = _HOST.search(str(fault.args[-1]) if fault.args else "")
    if said is None or said[1] == _LOCALHOST:
        return said and said[1]
    try:
        return str(ip_address(said[1]))
    except ValueError:
        return None


def _local_address(addresses: list[str], port: int) -> str | None:
    """Return the address that packets to the server leave from; connecting a datagram socket sends none."""
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as channel:
            channel.connect((address, port))
            return str(channel.getsockname()[0])
    return None
