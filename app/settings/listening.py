"""The socket on which the service listens, from its settings."""

import errno
import os
import socket

from app.settings.files import SettingsError
from app.settings.settings import Settings

EVERY_ADDRESS = "*"

BACKLOG = 4096


def listening_socket(settings: Settings, kept: socket.socket | None) -> socket.socket:
    """Return a socket that listens as the settings say: kept if that does, or else a new one.

    Health checks that arrive before the first poll has ended wait there. Raises `SettingsError`.
    """
    try:
        family, address = _address(settings)
        if kept is not None:
            dual_stack = _wants_dual_stack(settings, family)
            if (kept.getsockname()[:2], _is_dual_stack(kept)) == (address, dual_stack):
                return kept
            # systemd has it open too: closing alone would not free the port.
            kept.shutdown(socket.SHUT_RDWR)
        listening = _bound(settings, family, address)
        listening.listen(BACKLOG)
    except (OSError, UnicodeError) as fault:
        raise _error(settings, fault) from None
    return listening


def check_listening(settings: Settings) -> None:
    """Raise `SettingsError` if no service could listen so. A port that is in use may be its own."""
    try:
        _bound(settings, *_address(settings)).close()
    except (OSError, UnicodeError) as fault:
        if not (isinstance(fault, OSError) and fault.errno == errno.EADDRINUSE):
            raise _error(settings, fault) from None


def _bound(
    settings: Settings, family: socket.AddressFamily, address: tuple[str, int]
) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            only_ipv6 = not _wants_dual_stack(settings, family)
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only_ipv6)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound


def _error(settings: Settings, fault: OSError | UnicodeError) -> SettingsError:
    host, port = settings.clustercheck_host, settings.clustercheck_port
    if isinstance(fault, socket.gaierror | UnicodeError):
        words = "not an address or a host name"
    elif fault.errno == errno.EADDRINUSE:
        words = f"the port is in use; to see by which process, run: ss -ltnp 'sport = :{port}'"
    else:
        words = os.strerror(fault.errno or 0)
    return SettingsError(
        f"cannot listen on CLUSTERCHECK_HOST={host} CLUSTERCHECK_PORT={port}: {words}"
    )


def _wants_dual_stack(settings: Settings, family: socket.AddressFamily) -> bool:
    return settings.clustercheck_host == EVERY_ADDRESS and family == socket.AF_INET6


def _is_dual_stack(listening: socket.socket) -> bool:
    return listening.family == socket.AF_INET6 and not listening.getsockopt(
        socket.IPPROTO_IPV6, socket.IPV6_V6ONLY
    )


def _address(settings: Settings) -> tuple[socket.AddressFamily, tuple[str, int]]:
    host, port = settings.clustercheck_host, settings.clustercheck_port
    if host == EVERY_ADDRESS:
        return (
            (socket.AF_INET6, ("::", port))
            if socket.has_dualstack_ipv6()
            else (socket.AF_INET, ("0.0.0.0", port))  # noqa: S104 (who may connect: CLUSTERCHECK_ALLOW_FROM)
        )
    family, *_, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return family, (str(address[0]), port)
