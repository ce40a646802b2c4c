"""A simulated remote host: a network namespace that a veth pair connects to this host."""

import ctypes
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path

from harness.block import Block
from harness.process import with_system_path
from harness.waiting import wait_for

# Reserved for benchmarks between devices (RFC 2544 and 5180), so nothing routes them.
_TEST_NETWORK, _TEST_NETWORK_6 = ip_network("198.18.0.0/15"), ip_network("2001:2::/48")
_CLONE_NEWNET = 0x4000_0000
_MOST_HOSTS = 8
_TABLE = "clustercheckd"
_ITS_LINK = "eth0"
_ITS_ETHERNET_ADDRESS = "02:00:00:00:00:02"


class NoNetworkError(Exception):
    """The network cannot be created here. The message says why."""


class RemoteHost(Block):
    """A network namespace with its own addresses, which exists while the `with` block runs.

    Needs root. number: tells it from the other hosts of this process. within: the beginning of a
    command that runs there. address_6: in IPv6. link: the name here of what leads there.

    Raises `NoNetworkError` if the namespace cannot be created.
    """

    def __init__(self, number: int = 0) -> None:
        # Use a network of four addresses, one for each end. The process id keeps it apart from
        # other runs.
        offset = (os.getpid() * _MOST_HOSTS + number) * 4
        network = _TEST_NETWORK.network_address + offset % _TEST_NETWORK.num_addresses
        self.address = str(network + 2)
        self.our_address = str(network + 1)
        network_6 = _TEST_NETWORK_6.network_address + offset
        self.address_6, self._our_address_6 = str(network_6 + 2), str(network_6 + 1)
        self._name = f"clustercheckd-{os.getpid()}-{number}"
        self.link = f"cc{os.getpid()}-{number}"
        self.within = ("nsenter", f"--net=/run/netns/{self._name}")

    def close(self) -> None:
        """Remove the link and the namespace, if they exist."""
        _ip(f"link del {self.link}", check=False)
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
            self._route()
            self._wait_until_connected()

    def _route(self) -> None:
        # To other hosts, and not to a name server: the node would wait for its answers.
        within = f"-n {self._name}"
        _ip(f"{within} route add {_TEST_NETWORK} via {self.our_address}")
        # A link that is down has no address in IPv6, which not every machine has.
        ours, its = self._our_address_6, f"{self.address_6}/126 dev {_ITS_LINK} nodad"
        _ip(f"{within} addr replace {its}", check=False)
        _ip(f"{within} route add {_TEST_NETWORK_6} via {ours}", check=False)

    def _wait_until_connected(self) -> None:
        # The kernel may notice the carrier up to a second late, and drops all packets till then.
        # Not from /sys, which shows the network of who mounted it.
        wait_for(
            "the link to the remote host",
            lambda: " UP " in _ip(f"-br link show dev {self.link}"),
        )

    def _start(self) -> None:
        _ip(f"netns add {self._name}")
        _ip(f"link add {self.link} type veth peer name {_ITS_LINK} netns {self._name}")
        _ip(f"addr add {self.our_address}/30 dev {self.link}")
        _ip(f"addr add {self._our_address_6}/126 dev {self.link} nodad", check=False)
        _ip(f"link set {self.link} up")
        _ip(f"-n {self._name} link set lo up")
        _ip(f"-n {self._name} addr add {self.address}/30 dev {_ITS_LINK}")
        _ip(f"-n {self._name} link set {_ITS_LINK} address {_ITS_ETHERNET_ADDRESS} up")
        self._route()
        # Add a permanent neighbour entry: without it, `cut_off` would cause "no route to host"
        # after some seconds.
        neighbour = f"{self.address} lladdr {_ITS_ETHERNET_ADDRESS}"
        _ip(f"neigh replace {neighbour} dev {self.link} nud permanent")
        self._wait_until_connected()


def enter_network_of_our_own() -> None:
    """Move this thread, and all that it starts, into a new network that forwards packets.

    Needs root. Raises OSError.
    """
    _call("unshare", _CLONE_NEWNET)
    _ip("link set lo up")
    for path in ("ipv4/ip_forward", "ipv6/conf/all/forwarding"):
        if (setting := Path("/proc/sys/net", path)).exists():
            setting.write_text("1")


@contextmanager
def dropping(*rules: str) -> Iterator[None]:
    """Drop the packets between hosts that match any of these nft(8) rules while the block runs.

    They are lost as on a wire: the sender sends them again. Raises NoNetworkError.
    """
    chain = "type filter hook forward priority 0;"
    lines = [f"table inet {_TABLE} {{ chain forward {{", chain]
    table = "\n".join([*lines, *(f"{rule} drop" for rule in rules), "}", "}"])
    _run(["nft", "-f", "-"], table)
    try:
        yield
    finally:
        _run(["nft", "delete", "table", "inet", _TABLE])


def _set_namespace(descriptor: int) -> None:
    # Python has os.setns only since 3.12.
    _call("setns", descriptor, _CLONE_NEWNET)


def _call(function: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc[function](*arguments) != 0:
        raise OSError(ctypes.get_errno(), function)


def _ip(arguments: str, *, check: bool = True) -> str:
    return _run(["ip", *arguments.split()], check=check)


def _run(command: Sequence[str], sent: str = "", *, check: bool = True) -> str:
    done = subprocess.run(
        command,
        env=with_system_path({}),
        input=sent,
        capture_output=True,
        text=True,
        check=False,
        timeout=10,
    )
    if check and done.returncode != 0:
        raise NoNetworkError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
