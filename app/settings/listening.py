"""The socket on which the service listens, from its settings."""

import errno
import os
import socket

from app.settings.error import SettingsError
from app.settings.settings import Settings

BACKLOG = 4096

_SHARES_PORT = socket.SOL_SOCKET, socket.SO_REUSEPORT


def listening_socket(
    settings: Settings, kept: socket.socket | None = None
) -> socket.socket:
    """Return a socket that listens as the settings say: kept if that does, or else a new one.

    Health checks that arrive before the first poll has ended wait there. Raises `SettingsError`.
    """
    host, port = settings.clustercheck_host, settings.clustercheck_port
    if host == "*":
        # Who may connect: CLUSTERCHECK_ALLOW_FROM.
        host = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104
    try:
        family, *_, address = socket.getaddrinfo(
            host,
            port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )[0]
        if kept is not None:
            own_port = address[0], kept.getsockname()[1], *address[2:]
            if kept.getsockname() == (address if port else own_port):
                return kept
            # Others have it open still, perhaps at the same port.
            kept.setsockopt(*_SHARES_PORT, 1)
        listening = socket.create_server(
            address,
            family=family,
            backlog=BACKLOG,
            reuse_port=kept is not None,
            dualstack_ipv6=host == "::",
        )
        if kept is not None:
            # No other program of this user may do the same.
            for one in (listening, kept):
                one.setsockopt(*_SHARES_PORT, 0)
            kept.close()
        return listening  # noqa: TRY300
    # ValueError: it cannot be encoded, or has no IPv6.
    except (socket.gaierror, ValueError):
        raise SettingsError(
            "CLUSTERCHECK_HOST: must be an address or a host name of this host"
        ) from None
    except OSError as fault:
        where = f" CLUSTERCHECK_PORT={port}" if port else ""
        who = ""
        if fault.errno == errno.EADDRINUSE:
            who = f": see, as root: ss -Hltnp 'sport = :{port}'; systemctl list-sockets"
        raise SettingsError(
            f"cannot listen on CLUSTERCHECK_HOST={settings.clustercheck_host}{where}:"
            f" {os.strerror(fault.errno or 0)}{who}"
        ) from None
