"""Parses xinetd's only_from into networks, in the forms of xinetd.conf(5)."""

import re
import socket
from collections.abc import Iterator
from ipaddress import ip_network

from app.commands.migration.found import Given
from app.settings import IPNetwork

_FACTORS = re.compile(r"((?:\d+\.){1,3})\{([\d,]+)\}")
_DOTTED = re.compile(r"\d+(?:\.\d+){0,3}")
_OCTETS = 4
_EVERYBODY = 0


def networks_of(words: list[Given]) -> tuple[list[IPNetwork] | None, list[Given]]:
    """Return the networks that may connect, or None for everybody; and the words that have no network."""
    networks: list[IPNetwork] = []
    unknown = []
    for given in words:
        found = list(_networks(given.value))
        networks += found
        if not found:
            unknown.append(given)
    if any(network.prefixlen == _EVERYBODY for network in networks):
        return None, unknown
    # Each once, in the order in which they are written.
    return list(dict.fromkeys(networks)), unknown


def _networks(word: str) -> Iterator[IPNetwork]:
    if word == "localhost":
        # Both, even if this host's resolver knows only one of them: clustercheckd listens on both.
        yield from (ip_network("127.0.0.1"), ip_network("::1"))
        return
    if factors := _FACTORS.fullmatch(word):
        for last in factors[2].split(","):
            yield from _networks(f"{factors[1]}{last}")
        return
    try:
        if _DOTTED.fullmatch(word):
            yield _wildcarded(word)
        else:
            yield ip_network(word, strict=False)
    except ValueError:
        yield from _addresses_of(word)


def _wildcarded(address: str) -> IPNetwork:
    """Parse an IPv4 address whose rightmost zeros, or missing parts, match any number."""
    octets = address.split(".")
    octets += ["0"] * (_OCTETS - len(octets))
    fixed = next((position + 1 for position in reversed(range(_OCTETS)) if int(octets[position])), 0)
    return ip_network(f"{'.'.join(octets)}/{8 * fixed}")


def _addresses_of(name: str) -> Iterator[IPNetwork]:
    try:
        for *_, address in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM):
            yield ip_network(address[0])
    except (OSError, ValueError):
        return
