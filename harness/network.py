"""A network of our own between this host and a remote one that is none: a namespace at the end of a veth pair."""

import ctypes
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path

from harness.block import Block
from harness.process import with_system_path

# Set aside for tests between devices (RFC 2544): nobody routes it.
_TEST_NETWORK = ip_network("198.18.0.0/15")
_CLONE_NEWNET = 0x4000_0000
_ITS_ETHERNET_ADDRESS = "02:00:00:00:00:02"


class NoNetworkError(Exception):
    """A network that cannot be made here; the message says why."""


class RemoteHost(Block):
    """A network namespace with an address of its own, for as long as the `with` block runs. Needs root.

    Raises `NoNetworkError` where namespaces are not to be had.
    """

    def __init__(self) -> None:
        number = os.getpid()
        # An address each for us and for it, in a network of four that no other run of the harness has.
        network = _TEST_NETWORK.network_address + number * 4 % _TEST_NETWORK.num_addresses
        self.address = str(network + 2)
        self._our_address = str(network + 1)
        self._name = f"clustercheckd-{number}"
        self._link, self._its_link = f"cc{number}", "eth0"

    def close(self) -> None:
        """Remove what there is."""
        for arguments in (("link", "del", self._link), ("netns", "del", self._name)):
            _ip(*arguments, check=False)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Have what this thread starts and listens on be there, instead of here."""
        with (
            Path(f"/proc/self/task/{threading.get_native_id()}/ns/net").open() as here,
            Path("/run/netns", self._name).open() as there,
        ):
            _set_namespace(there.fileno())
            try:
                yield
            finally:
                _set_namespace(here.fileno())

    @contextmanager
    def cut_off(self) -> Iterator[None]:
        """Lose every packet in both directions, without a word to either side."""
        _ip("-n", self._name, "link", "set", self._its_link, "down")
        try:
            yield
        finally:
            _ip("-n", self._name, "link", "set", self._its_link, "up")

    def _start(self) -> None:
        _ip("netns", "add", self._name)
        _ip("link", "add", self._link, "type", "veth", "peer", "name", self._its_link, "netns", self._name)
        _ip("addr", "add", f"{self._our_address}/30", "dev", self._link)
        _ip("link", "set", self._link, "up")
        _ip("-n", self._name, "link", "set", "lo", "up")
        _ip("-n", self._name, "addr", "add", f"{self.address}/30", "dev", self._its_link)
        _ip("-n", self._name, "link", "set", self._its_link, "address", _ITS_ETHERNET_ADDRESS, "up")
        # Known for good, or packets that are lost would be a host that is said to be unreachable after some seconds.
        _ip("neigh", "replace", self.address, "lladdr", _ITS_ETHERNET_ADDRESS, "dev", self._link, "nud", "permanent")


def _set_namespace(descriptor: int) -> None:
    # os.setns is there from Python 3.12 on.
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*arguments: str, check: bool = True) -> None:
    try:
        done = subprocess.run(
            ["ip", *arguments], env=with_system_path({}), capture_output=True, text=True, check=False, timeout=10
        )
    except FileNotFoundError:
        message = "ip is not installed (package iproute2)"
        raise NoNetworkError(message) from None
    if check and done.returncode != 0:
        message = f"ip {' '.join(arguments)}: {done.stderr.strip()}"
        raise NoNetworkError(message)
