"""TLS that ends badly: no descriptor is left behind, and nobody is told anything."""

import asyncio
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from app.database.poller import poll_once
from app.verdict.node_state import PollFailure
from harness.certificates import make_authority, make_certificate
from harness.ports import LOOPBACK
from harness.waiting import wait_for
from tests.fake_mysql import (
    OK,
    TLS_CAPABILITIES,
    Peer,
    error,
    fake_mysql,
    packet,
    server_context,
)
from tests.unit.polling import LOOPS, Loop, database_of, polls_of

ATTEMPTS = 4
_LONGEST_SECONDS = 10.0


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
def test_a_server_that_refuses_over_tls_and_closes_late_leaks_no_descriptor(
    tmp_path: Path, new_loop: Loop, answer: bytes | None
) -> None:
    authority = make_authority(tmp_path)
    context = server_context(make_certificate(tmp_path, "server", authority, LOOPBACK))
    over = threading.Event()

    def neither_reads_nor_closes(peer: Peer) -> None:
        if answer is None:
            peer.greet(capabilities=TLS_CAPABILITIES)
        else:
            peer.start_tls(context)
            peer.receive()
            peer.connection.sendall(answer)
        over.wait(_LONGEST_SECONDS)

    with ExitStack() as exits:
        server = exits.enter_context(fake_mysql(neither_reads_nor_closes))
        database = replace(database_of(server), mysql_ssl_ca=str(authority.cert))
        polls = exits.enter_context(polls_of(database, new_loop=new_loop))
        exits.callback(over.set)
        for _ in range(ATTEMPTS):
            polls.failure()
        over.set()
        polls.check_closed(server)


def test_a_server_without_tls_is_told_nothing_where_tls_is_required() -> None:
    received: list[bytes] = []

    def greets_and_listens(peer: Peer) -> None:
        peer.greet()
        received.append(peer.connection.recv(65536))

    with fake_mysql(greets_and_listens) as server:
        database = replace(database_of(server), mysql_ssl=True)
        result = asyncio.run(poll_once(database, 10.0))
        assert isinstance(result, PollFailure)
        assert "offers no TLS, but MYSQL_SSL* requires it" in result.detail
        wait_for("the server to see the end of the connection", lambda: received)
    assert received == [b""]
