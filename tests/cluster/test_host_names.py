"""MYSQL_HOST as a name: a resolver that hangs, several addresses, the certificate of the name."""

import os
import socket
from contextlib import suppress
from pathlib import Path

from harness.certificates import make_authority, make_certificate
from harness.ports import LOOPBACK
from harness.service import Service
from harness.waiting import wait_for
from tests.conftest import Services, needs_root, settings_for
from tests.fake_mysql import OK, Peer, fake_mysql, galera, server_context
from tests.http.test_metrics import scrape
from tests.http.test_process import run, with_file_in_etc

pytestmark = needs_root

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
OTHER_ADDRESS = "127.0.0.2"


def askers(resolver: socket.socket) -> set[object]:
    """Return who has asked a name server that answers nobody: each lookup has a port of its own."""
    found = set()
    with suppress(BlockingIOError):
        while True:
            found.add(resolver.recvfrom(512)[1])
    return found


def polls_of(service: Service) -> float:
    """Return how many polls have timed out."""
    return scrape(service)['polls_total{outcome="timeout"}']


def test_a_hung_resolver_is_asked_once_and_holds_up_neither_the_deadline_nor_the_end(
    services: Services, tmp_path: Path
) -> None:
    number = os.getpid()
    # No other run of these tests has this address.
    address = f"127.53.{number // 254 % 254 + 1}.{number % 254 + 1}"
    file = tmp_path / "resolv.conf"
    file.write_text(f"nameserver {address}\noptions timeout:30 attempts:2\n")
    settings = {**SETTINGS, "MYSQL_SOCKET": "", "CLUSTERCHECK_POLL_INTERVAL": "0.05"}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as resolver:
        resolver.bind((address, 53))
        resolver.setblocking(False)  # noqa: FBT003 (socket's own signature)
        wrapper = with_file_in_etc("resolv.conf", file)
        service = services.start_through(wrapper, settings)
        reply = service.wait_for_verdict(503, "timeout")
        assert "while looking up the host's name" in reply.body
        polls = polls_of(service)
        wait_for(
            "six more polls", lambda: service.get() and polls_of(service) >= polls + 6
        )
        assert len(askers(resolver)) == 1
        # After 10 s, it would be killed.
        assert service.stop() == 0
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
    there = galera({"wsrep_cluster_size": "7"})
    with (
        fake_mysql(galera()) as before,
        fake_mysql(there, (OTHER_ADDRESS, before.port)),
    ):
        settings = settings_for(before) | SETTINGS
        service = services.start_through(with_file_in_etc("hosts", hosts), settings)
        service.wait_for_verdict(200, "synced")
        hosts.write_text(f"{OTHER_ADDRESS} {NAME}\n")

        def has_moved() -> bool:
            node = service.status()["node"]
            return bool(node and node["wsrep_cluster_size"] == 7)

        wait_for("the other server", has_moved, seconds=_AT_ONCE_SECONDS)
