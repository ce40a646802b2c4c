"""MYSQL_HOST as a name: a resolver that hangs, several addresses, the certificate of the name."""

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.certificates import make_authority, make_certificate
from harness.ports import LOOPBACK
from harness.service import Service
from harness.waiting import wait_for
from tests.conftest import Services, settings_for
from tests.fake_mysql import OK, FakeMySQL, Peer, fake_mysql, galera, server_context
from tests.http.test_metrics import scrape
from tests.http.test_process import run

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0,
    reason="only root may put files of its own in place of those in /etc",
)

NAME = "db1.example"
SETTINGS = {
    "MYSQL_HOST": NAME,
    "MYSQL_USERNAME": "someone",
    "CLUSTERCHECK_DEADLINE": "0.4",
}
# Long before the resolver gives up, which is after a minute, and enough for Python to start or end
# on a busy machine.
_AT_ONCE_SECONDS = 10.0
# Nobody listens there.
DEAD_ADDRESS = "127.0.0.9"


def with_file_in_etc(name: str, path: Path) -> list[str]:
    """Give a wrapper whose command finds a file in /etc that nobody else sees."""
    return [
        "unshare",
        "--mount",
        "sh",
        "-ec",
        f'mount --bind \'{path}\' /etc/{name}; exec "$0" "$@"',
    ]


class SilentResolver:
    """A name server that takes every question and answers none."""

    def __init__(self, directory: Path, listening: socket.socket) -> None:
        file = directory / "resolv.conf"
        file.write_text(
            f"nameserver {listening.getsockname()[0]}\noptions timeout:30 attempts:2\n"
        )
        self.wrapper = with_file_in_etc("resolv.conf", file)
        self._listening = listening
        self._askers: set[tuple[str, int]] = set()

    @property
    def lookups(self) -> int:
        """How many lookups have been begun. Each asks from a port of its own."""
        while True:
            try:
                _, asker = self._listening.recvfrom(512)
            except BlockingIOError:
                return len(self._askers)
            self._askers.add(asker)


@pytest.fixture
def resolver(tmp_path: Path) -> Iterator[SilentResolver]:
    """Listen where resolvers do, at an address that no other run of these tests has."""
    number = os.getpid()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind((f"127.53.{number // 254 % 254 + 1}.{number % 254 + 1}", 53))
        listening.setblocking(False)  # noqa: FBT003 (socket's own signature)
        yield SilentResolver(tmp_path, listening)


def polls_of(service: Service) -> float:
    """Return how many polls have timed out."""
    return scrape(service)['polls_total{outcome="timeout"}']


def test_a_hung_resolver_is_asked_once_and_holds_up_neither_the_deadline_nor_the_end(
    services: Services, resolver: SilentResolver
) -> None:
    settings = {**SETTINGS, "MYSQL_SOCKET": "", "CLUSTERCHECK_POLL_INTERVAL": "0.05"}
    service = services.start_through(resolver.wrapper, settings)
    service.wait_until_up()
    reply = service.wait_for_verdict(503, "timeout")
    assert "while looking up the host's name" in reply.body

    polls = polls_of(service)
    wait_for("six more polls", lambda: polls_of(service) >= polls + 6)
    assert resolver.lookups == 1
    asked_at = time.monotonic()
    assert service.stop() == 0
    assert time.monotonic() - asked_at < _AT_ONCE_SECONDS
    log = service.log.read_text()
    assert "never retrieved" not in log
    assert "Traceback" not in log


def test_a_server_is_verified_by_its_name_at_the_second_of_its_addresses(
    tmp_path: Path,
) -> None:
    authority = make_authority(tmp_path)
    context = server_context(make_certificate(tmp_path, "server", authority, NAME))
    hosts = tmp_path / "hosts"
    hosts.write_text(f"{DEAD_ADDRESS} {NAME}\n{LOOPBACK} {NAME}\n")

    def behaviour(peer: Peer) -> None:
        peer.start_tls(context)
        peer.receive()
        peer.send(OK)
        peer.answer_queries()

    with fake_mysql(behaviour) as server:
        settings = settings_for(server) | {
            "MYSQL_HOST": NAME,
            "MYSQL_SSL_CA": str(authority.cert),
        }
        done = run("check", through=with_file_in_etc("hosts", hosts), **settings)
    assert done.returncode == 0, done.stdout


def test_the_polls_follow_a_name_that_moves(services: Services, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text(f"{LOOPBACK} {NAME}\n")
    with fake_mysql(galera()) as before:
        there = FakeMySQL(
            galera({"wsrep_cluster_size": "7"}), ("127.0.0.2", before.port)
        )
        with there, there.serving():
            settings = settings_for(before) | SETTINGS
            service = services.start_through(with_file_in_etc("hosts", hosts), settings)
            service.wait_until_up()
            service.wait_for_verdict(200, "synced")
            hosts.write_text(f"127.0.0.2 {NAME}\n")

            def has_moved() -> bool:
                node = service.status()["node"]
                return bool(node and node["wsrep_cluster_size"] == 7)

            wait_for("the other server", has_moved, seconds=_AT_ONCE_SECONDS)
