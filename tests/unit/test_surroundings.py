"""What the host shows of a node, by real connections and disks."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from app.database.surroundings import Surroundings
from harness.network import RemoteHost
from harness.ports import LOOPBACK
from harness.waiting import wait_for


def variables_of(port: int, **folders: str) -> Mapping[bytes, bytes]:
    """Return the variables of a node with this group port."""
    options = f"evs.version = 0; gmcast.listen_addr = tcp://0.0.0.0:{port}; gmcast.mcast_addr = ; "
    return {
        b"wsrep_provider_options": options.encode(),
        **{name.encode(): folder.encode() for name, folder in folders.items()},
    }


def wait_to_see(variables: Mapping[bytes, bytes], **expected: bool) -> None:
    """Look until that is seen. Three members."""
    surroundings = Surroundings()
    wait_for(
        f"the host to show {expected}",
        lambda: expected.items() <= surroundings.look(variables, 3, waits=True).items(),
    )


def check_nothing_is_shown(variables: Mapping[bytes, bytes]) -> None:
    """Check that nothing is seen, however often somebody looks. Two members."""
    surroundings = Surroundings()
    for _ in range(50):
        assert surroundings.look(variables, 2, waits=True) == {}


@pytest.fixture
def port() -> Iterator[int]:
    """Have a connection to the port of a group."""
    with (
        socket.create_server((LOOPBACK, 0)) as server,
        socket.create_connection(server.getsockname()),
        server.accept()[0],
    ):
        yield server.getsockname()[1]


def test_a_node_whose_packets_are_all_lost_is_cut_off_until_a_connection_works(
    remote_host: RemoteHost,
) -> None:
    with ExitStack() as exits:
        listening = exits.enter_context(socket.create_server((LOOPBACK, 0)))
        port = listening.getsockname()[1]
        remotes = [remote_host, exits.enter_context(RemoteHost(1))]
        connections = []
        for remote in remotes:
            address = remote.address, port
            with remote.entered():
                exits.enter_context(socket.create_server(address))
            connections.append(socket.create_connection(address))
            exits.enter_context(connections[-1])
        variables = variables_of(port)
        wait_to_see(variables, is_cut=False)
        with remotes[0].cut_off(), remotes[1].cut_off():
            for connection in connections:
                connection.sendall(b"keepalive")
            wait_to_see(variables, is_cut=True)
        exits.enter_context(socket.create_connection((remote_host.address, port)))
        wait_to_see(variables, is_cut=False)


@pytest.mark.parametrize("name", ["datadir", "log_bin_basename"])
def test_a_disk_without_room_is_full(port: int, name: str, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    # A file system that only shows has no room either.
    full = {"datadir": "/proc", "log_bin_basename": "/proc/log"}[name]
    other = {"datadir": str(tmp_path), "log_bin_basename": str(tmp_path / "log")}
    wait_to_see(variables_of(port, **other), is_full=False)
    assert os.statvfs("/proc").f_bavail == 0
    wait_to_see(variables_of(port, **other | {name: full}), is_full=True)


def test_a_host_without_the_group_shows_no_disk() -> None:
    with socket.socket() as unused_one:
        unused_one.bind((LOOPBACK, 0))
        unused = unused_one.getsockname()[1]
        check_nothing_is_shown(variables_of(unused, datadir="/proc"))
        check_nothing_is_shown({b"datadir": b"/proc"})


# In a process of its own: without a descriptor, none of pytest's threads could go on.
LOOK_TWICE = """
import ast, resource, sys, threading
from app.database.surroundings import Surroundings
variables, surroundings = ast.literal_eval(sys.argv[1]), Surroundings()
if variables[b"datadir"] == b"/":
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
for _ in range(2):
    print(surroundings.look(variables, 3, waits=True))
    for thread in threading.enumerate()[1:]:
        thread.join()
"""


@pytest.mark.parametrize("folder", ["\0", "/"])
def test_a_look_that_fails_shows_nothing_and_ends_without_a_traceback(
    port: int, folder: str
) -> None:
    variables = repr(variables_of(port, datadir=folder))
    looking = (sys.executable, "-c", LOOK_TWICE, variables)
    done = subprocess.run(looking, check=True, capture_output=True)
    assert (done.stdout, done.stderr) == (b"{}\n" * 2, b"")


class Hangs(dict[bytes, bytes]):
    """Variables that nobody can read until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = threading.Event()
        self.read = 0

    def get(self, *_: object) -> bytes:
        """Hang."""
        self.read += 1
        self.let_go.wait(20)
        return b""


def test_a_look_that_hangs_holds_nobody_and_no_second_one_begins(port: int) -> None:
    variables, surroundings = Hangs(), Surroundings()
    for _ in range(9):
        assert surroundings.look(variables, 2, waits=True) == {}
    assert variables.read == 1
    variables.let_go.set()
    wait_for(
        "another look",
        lambda: surroundings.look(variables_of(port, datadir="/proc"), 2, waits=True),
    )
