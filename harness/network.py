"""A simulated remote host: a network namespace that a veth pair connects to this host."""

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
from harness.waiting import wait_for

# Reserved for benchmarks between devices (RFC 2544), so nothing routes it.
_TEST_NETWORK = ip_network("198.18.0.0/15")
_CLONE_NEWNET = 0x4000_0000
_ITS_LINK = "eth0"
_ITS_ETHERNET_ADDRESS = "02:00:00:00:00:02"


class NoNetworkError(Exception):
    """The network cannot be created here. The message says why."""


class RemoteHost(Block):
    """A network namespace with its own address, which exists while the `with` block runs.

    Needs root.

    Raises `NoNetworkError` if the namespace cannot be created.
    """

    def __init__(self) -> None:
        number = os.getpid()
        # Use a network of four addresses, one for each end. The process id keeps it apart from
        # other runs.
        network = (
            _TEST_NETWORK.network_address + number * 4 % _TEST_NETWORK.num_addresses
        )
        self.address = str(network + 2)
        self.our_address = str(network + 1)
        self._name = f"clustercheckd-{number}"
        self._link = f"cc{number}"

    def close(self) -> None:
        """Remove the link and the namespace, if they exist."""
        _ip(f"link del {self._link}", check=False)
        _ip(f"netns del {self._name}", check=False)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Move this thread into the namespace while the block runs.

        The sockets and processes that it creates are there too.
        """
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
        """Drop every packet in both directions while the block runs. Neither side gets an error."""
        _ip(f"-n {self._name} link set {_ITS_LINK} down")
        try:
            yield
        finally:
            _ip(f"-n {self._name} link set {_ITS_LINK} up")
            self._wait_until_connected()

    def _wait_until_connected(self) -> None:
        # The kernel may notice the carrier up to a second late, and drops all packets till then.
        state = Path("/sys/class/net", self._link, "operstate")
        wait_for(
            "the link to the remote host", lambda: state.read_text().strip() == "up"
        )

    def _start(self) -> None:
        _ip(f"netns add {self._name}")
        _ip(f"link add {self._link} type veth peer name {_ITS_LINK} netns {self._name}")
        _ip(f"addr add {self.our_address}/30 dev {self._link}")
        _ip(f"link set {self._link} up")
        _ip(f"-n {self._name} link set lo up")
        _ip(f"-n {self._name} addr add {self.address}/30 dev {_ITS_LINK}")
        _ip(f"-n {self._name} link set {_ITS_LINK} address {_ITS_ETHERNET_ADDRESS} up")
        # Add a permanent neighbour entry: without it, `cut_off` would cause "no route to host"
        # after some seconds.
        neighbour = f"{self.address} lladdr {_ITS_ETHERNET_ADDRESS}"
        _ip(f"neigh replace {neighbour} dev {self._link} nud permanent")
        self._wait_until_connected()


def _set_namespace(descriptor: int) -> None:
    # Python has os.setns only since 3.12.
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _ip(arguments: str, *, check: bool = True) -> None:
    done = subprocess.run(
        ["ip", *arguments.split()],
        env=with_system_path({}),
        capture_output=True,
        text=True,
        check=False,
        timeout=10,
    )
    if check and done.returncode != 0:
        raise NoNetworkError(f"ip {arguments}: {done.stderr.strip()}")
