"""TLS that ends badly: no descriptor is left behind, and nobody is told anything."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest
import uvloop

from harness.certificates import Certificate, make_authority, make_certificate
from harness.ports import LOOPBACK
from harness.waiting import wait_for
from tests.fake_mysql import (
    OK,
    TLS_CAPABILITIES,
    Behaviour,
    FakeMySQL,
    Peer,
    error,
    fake_mysql,
    packet,
    server_context,
)
from tests.unit.polling import LOOPS, Loop, Polls, database_of, polls_of

ATTEMPTS = 4
_LONGEST_SECONDS = 10.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """Make an authority that the poller trusts."""
    return make_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def context(
    authority: Certificate, tmp_path_factory: pytest.TempPathFactory
) -> ssl.SSLContext:
    """Make a server's side of TLS."""
    return server_context(
        make_certificate(
            tmp_path_factory.mktemp("server"), "server", authority, LOOPBACK
        )
    )


@contextmanager
def polling_over_tls(
    behaviour: Behaviour, authority: Certificate, new_loop: Loop = uvloop.new_event_loop
) -> Iterator[tuple[Polls, FakeMySQL]]:
    """Run a poller that asks its server for TLS."""
    with (
        fake_mysql(behaviour) as server,
        polls_of(
            replace(database_of(server), mysql_ssl_ca=str(authority.cert)),
            new_loop=new_loop,
        ) as polls,
    ):
        yield polls, server


@LOOPS
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(packet(3, error(1040)), id="error 1040"),
        pytest.param(packet(99, b"\0"), id="a packet out of order"),
        pytest.param(packet(3, OK), id="a login that hangs", marks=pytest.mark.long),
        pytest.param(None, id="a handshake that hangs", marks=pytest.mark.long),
    ],
)
def test_a_server_that_refuses_over_tls_and_never_closes_leaks_no_descriptor(
    authority: Certificate,
    context: ssl.SSLContext,
    new_loop: Loop,
    answer: bytes | None,
) -> None:
    over = threading.Event()

    def neither_reads_nor_closes(peer: Peer) -> None:
        if answer is None:
            peer.greet(capabilities=TLS_CAPABILITIES)
        else:
            peer.start_tls(context)
            peer.receive()
            peer.connection.sendall(answer)
        over.wait(_LONGEST_SECONDS)

    with (
        polling_over_tls(neither_reads_nor_closes, authority, new_loop) as (
            polls,
            server,
        ),
        ExitStack() as exits,
    ):
        exits.callback(over.set)
        for _ in range(ATTEMPTS):
            polls.failure()
        polls.check_closed(server)


def test_a_server_without_tls_is_told_nothing_where_tls_is_required(
    authority: Certificate,
) -> None:
    received: list[bytes] = []

    def greets_and_listens(peer: Peer) -> None:
        peer.greet()
        received.append(peer.connection.recv(65536))

    with polling_over_tls(greets_and_listens, authority) as (polls, _):
        assert "offers no TLS, but MYSQL_SSL* requires it" in polls.failure().detail
        wait_for("the server to see the end of the connection", lambda: received)
    assert received == [b""]
