"""TLS that ends badly: no descriptor is left behind, and who refuses is not asked four times a second."""

import asyncio
import contextlib
import gc
import os
import socket
import ssl
import stat
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from app.database.login import Database
from app.database.poller import Poller
from app.node_state import PollFailure
from app.reason import Reason
from harness.certificates import Certificate, make_authority, make_certificate
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

DEADLINE_SECONDS = 0.5
ATTEMPTS = 4
_LONGEST_SECONDS = 10.0
NAME = "127.0.0.1"
LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])

Loop = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """Make an authority that the poller trusts."""
    return make_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def context(authority: Certificate, tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """Make a server's side of TLS."""
    return server_context(make_certificate(tmp_path_factory.mktemp("server"), "server", authority, NAME))


def polling(
    server: FakeMySQL, authority: Certificate, new_loop: Loop, scenario: Callable[[Poller], Awaitable[None]]
) -> None:
    """Run a scenario with an poller that asks this server for TLS."""

    async def running() -> None:
        where = Database(host=NAME, port=server.port, username="someone", password="x", ssl_ca=str(authority.cert))
        poller = Poller(where, DEADLINE_SECONDS)
        try:
            await scenario(poller)
        finally:
            await poller.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(running())


def refuses(context: ssl.SSLContext, packet: bytes, over: threading.Event) -> Behaviour:
    """Answer the login within TLS with these bytes, and then neither read nor close."""

    def behaviour(peer: Peer) -> None:
        peer.start_tls(context)
        peer.receive()
        peer.connection.sendall(packet)
        over.wait(_LONGEST_SECONDS)

    return behaviour


def hangs_in_the_handshake(over: threading.Event) -> Behaviour:
    """Offer TLS, and then neither read nor close."""

    def behaviour(peer: Peer) -> None:
        peer.greet(capabilities=TLS_CAPABILITIES)
        over.wait(_LONGEST_SECONDS)

    return behaviour


def connections_to(port: int) -> int:
    """Count this process's descriptors of connections to a port, the client's end alone."""
    gc.collect()
    found = 0
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as duplicate:
                    found += duplicate.getpeername()[1:2] == (port,)
    return found


@LOOPS
@pytest.mark.parametrize(
    "fault",
    [
        *("error 1040", "error 1203", "a packet out of order"),
        *(pytest.param(fault, marks=pytest.mark.long) for fault in ("a handshake that hangs", "a login that hangs")),
    ],
)
def test_a_server_that_refuses_over_tls_and_never_closes_leaks_no_descriptor(
    authority: Certificate, context: ssl.SSLContext, new_loop: Loop, fault: str
) -> None:
    over = threading.Event()
    behaviour = {
        "error 1040": refuses(context, packet(3, error(1040)), over),
        "error 1203": refuses(context, packet(3, error(1203)), over),
        "a packet out of order": refuses(context, packet(99, b"\0"), over),
        "a handshake that hangs": hangs_in_the_handshake(over),
        "a login that hangs": refuses(context, packet(3, OK), over),
    }[fault]

    async def scenario(poller: Poller) -> None:
        for _ in range(ATTEMPTS):
            assert isinstance(await poller.poll(), PollFailure)
        async with asyncio.timeout(_LONGEST_SECONDS):
            while connections_to(server.port):  # noqa: ASYNC110 (nothing tells when a descriptor is gone)
                await asyncio.sleep(0.01)

    with fake_mysql(behaviour) as server:
        try:
            polling(server, authority, new_loop, scenario)
            # A login has more time than a poll: the polls wait for the same one.
            assert server.connections == (1 if "hangs" in fault else ATTEMPTS)
        finally:
            over.set()


@LOOPS
def test_a_rejected_certificate_is_paced_as_a_refusal(tmp_path: Path, context: ssl.SSLContext, new_loop: Loop) -> None:
    async def scenario(poller: Poller) -> None:
        first = await poller.poll()
        assert isinstance(first, PollFailure)
        assert first.reason is Reason.ERROR
        assert "certificate not accepted: " in first.detail
        for _ in range(10 * ATTEMPTS):
            assert first == await poller.poll()

    with fake_mysql(lambda peer: peer.start_tls(context)) as server:
        polling(server, make_authority(tmp_path), new_loop, scenario)
        assert server.connections == 1


def test_our_own_certificate_refused_is_paced_and_named(tmp_path: Path, authority: Certificate) -> None:
    strict = server_context(make_certificate(tmp_path, "strict", authority, NAME))
    strict.verify_mode = ssl.CERT_REQUIRED

    def behaviour(peer: Peer) -> None:
        peer.start_tls(strict)

    async def scenario(poller: Poller) -> None:
        first = await poller.poll()
        assert isinstance(first, PollFailure)
        assert "no TLS connection to 127.0.0.1" in first.detail
        assert "certificate required" in first.detail
        for _ in range(10 * ATTEMPTS):
            assert first == await poller.poll()

    with fake_mysql(behaviour) as server:
        polling(server, authority, uvloop.new_event_loop, scenario)
        assert server.connections == 1


def test_a_server_without_tls_is_told_nothing_and_paced_where_tls_is_required(authority: Certificate) -> None:
    received: list[bytes] = []

    def greets_and_listens(peer: Peer) -> None:
        peer.greet()
        received.append(peer.connection.recv(65536))

    async def scenario(poller: Poller) -> None:
        first = await poller.poll()
        assert isinstance(first, PollFailure)
        assert first.detail.endswith("offers no TLS, but MYSQL_SSL* or the option file requires it")
        for _ in range(10 * ATTEMPTS):
            assert first == await poller.poll()

    with fake_mysql(greets_and_listens) as server:
        polling(server, authority, uvloop.new_event_loop, scenario)
        wait_for("the server to see the end of the connection", lambda: received)
        assert (received, server.connections) == ([b""], 1)
