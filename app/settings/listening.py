"""The socket on which the service listens, from its settings."""

import errno
import os
import socket

from app.settings.error import SettingsError
from app.settings.settings import Settings

BACKLOG = 4096


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
        shares_port = False
        if kept is not None:
            own_port = address[0], kept.getsockname()[1], *address[2:]
            if kept.getsockname() == (address if port else own_port):
                return kept
            # Others have it open still. At another port, it would share that of another service.
            shares_port = address[1] == own_port[1]
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, shares_port)
        listening = socket.create_server(
            address,
            family=family,
            backlog=BACKLOG,
            reuse_port=shares_port,
            dualstack_ipv6=host == "::",
        )
        if kept is not None:
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
