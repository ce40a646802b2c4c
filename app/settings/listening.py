"""The socket on which the service listens, from its settings."""

import contextlib
import errno
import os
import socket

from app.settings.error import SettingsError
from app.settings.settings import Settings

EVERY_ADDRESS = "*"

BACKLOG = 4096


class PortInUseError(SettingsError):
    """Another socket has the port."""


def listening_socket(
    settings: Settings, kept: socket.socket | None = None, *, listens: bool = True
) -> socket.socket:
    """Return a socket that listens as the settings say: kept if that does, or else a new one.

    Health checks that arrive before the first poll has ended wait there. listens: False for one
    that is only bound. Raises `SettingsError`.
    """
    host, port = settings.clustercheck_host, settings.clustercheck_port
    where = f"cannot listen on CLUSTERCHECK_HOST={host} CLUSTERCHECK_PORT={port}"
    dual_stack = host == EVERY_ADDRESS and socket.has_dualstack_ipv6()
    if host == EVERY_ADDRESS:
        # Who may connect: CLUSTERCHECK_ALLOW_FROM.
        host = "::" if dual_stack else "0.0.0.0"  # noqa: S104
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        if kept is not None:
            is_dual_stack = kept.family == socket.AF_INET6 and not kept.getsockopt(
                socket.IPPROTO_IPV6, socket.IPV6_V6ONLY
            )
            if (kept.getsockname(), is_dual_stack) == (address, dual_stack):
                return kept
            # systemd has it open too: closing alone would not free the port.
            kept.shutdown(socket.SHUT_RDWR)
        with socket.socket(family) as bound:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(
                    socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, not dual_stack
                )
            bound.bind(address)
            if listens:
                bound.listen(BACKLOG)
            return socket.socket(fileno=bound.detach())
    except (socket.gaierror, UnicodeError):
        raise SettingsError(f"{where}: not an address or a host name") from None
    except OSError as fault:
        if fault.errno == errno.EADDRINUSE:
            raise PortInUseError(
                f"{where}: the port is in use; to see by which process, run:"
                f" ss -ltnp 'sport = :{port}'"
            ) from None
        raise SettingsError(f"{where}: {os.strerror(fault.errno or 0)}") from None


def check_listening(settings: Settings) -> None:
    """Raise `SettingsError` if no service could listen so. A port that is in use may be its own."""
    with contextlib.suppress(PortInUseError):
        # If it listened, a health check that arrives now would be reset.
        listening_socket(settings, listens=False).close()
