"""Addresses of services: the configured one, or those typed on the command line."""

import re
from dataclasses import dataclass

from app.node_state import one_line
from app.settings import MOST_PORT, Settings, SettingsError

_TYPED = re.compile(
    r"\[(?P<bracketed>[^\s\[\]/@]+)\](:(?P<port>[0-9]{1,9}))?|(?P<host>[^\s:\[\]/@]+)(:(?P<its_port>[0-9]{1,9}))?"
)
# Where to connect if the service listens on every address.
_LOOPBACK = {"*": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (as it is configured)


@dataclass(frozen=True, slots=True)
class Target:
    """The address of a service. name: for output."""

    name: str
    host: str
    port: int


def own_target(settings: Settings) -> Target:
    """Return the address on which the service with these settings answers on this host."""
    host = _LOOPBACK.get(settings.clustercheck_host, settings.clustercheck_host)
    port = settings.clustercheck_port
    return Target(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", host, port)


def typed_target(text: str, default_port: int) -> Target:
    """Parse host, host:port, an IPv6 address or [address]:port. Raises `SettingsError`."""
    # An IPv6 address without brackets cannot have a port.
    found = _TYPED.fullmatch(f"[{text}]" if text.count(":") > 1 and "[" not in text else text)
    if found is None:
        # Before the @ of a URL may be a password.
        shown = "" if "@" in text else f"{one_line(text)}: "
        message = f"status: {shown}not an address; examples: db1, db1:9200, [fd00::1]:9200"
        raise SettingsError(message)
    port = int(found["port"] or found["its_port"] or default_port)
    if not 1 <= port <= MOST_PORT:
        message = f"status: {text}: {port} is out of range (1-{MOST_PORT})"
        raise SettingsError(message)
    return Target(text, found["bracketed"] or found["host"], port)
