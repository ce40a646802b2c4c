"""caching_sha2_password, which MariaDB 10.11 lacks: the three ways it is spoken, against a hand-written peer."""

import asyncio
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from app.database.connection import Database
from app.database.observer import Observer
from app.node_state import Cause, NodeState, Unobserved
from harness.certificates import make_authority, make_certificate
from tests.fake_mysql import (
    OK,
    SYNCED_STATUS,
    SYNCED_VARIABLES,
    TLS_CAPABILITIES,
    Peer,
    error,
    fake_mysql,
)

PLUGIN = "caching_sha2_password"
FULL_AUTHENTICATION, PUBLIC_KEY_PLEASE = b"\x01\x04", b"\x02"
PASSWORD = "geheim é"
DEADLINE_SECONDS = 10.0


def observed(database: Database) -> NodeState | Unobserved:
    """Observe once."""

    async def once() -> NodeState | Unobserved:
        observer = Observer(database, DEADLINE_SECONDS)
        try:
            return await observer.observe()
        finally:
            await observer.close()

    return asyncio.run(once())


def let_in_if_right(peer: Peer, password: bytes) -> None:
    """End the login, and answer queries if the password was the right one."""
    if password != PASSWORD.encode() + b"\0":
        peer.send(error(1045))
        return
    peer.send(OK)
    peer.answer_queries(SYNCED_STATUS, SYNCED_VARIABLES)


def asks_for_the_clear_password(peer: Peer) -> None:
    """Log in over a channel that is held to be secure."""
    peer.greet(PLUGIN)
    peer.receive()
    peer.send(FULL_AUTHENTICATION)
    let_in_if_right(peer, peer.receive())


@contextmanager
def on_unix_socket(path: Path) -> Iterator[None]:
    """Serve one client on a unix socket."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                asks_for_the_clear_password(Peer(connection))

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join(DEADLINE_SECONDS)


def test_over_a_unix_socket_the_password_is_sent_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with on_unix_socket(path):
        seen = observed(Database(socket=str(path), username="someone", password=PASSWORD))
    assert isinstance(seen, NodeState)


def test_over_tls_the_password_is_sent_within_it(tmp_path: Path) -> None:
    authority = make_authority(tmp_path)
    server = make_certificate(tmp_path, "server", authority, "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.cert, server.key)

    def behaviour(peer: Peer) -> None:
        peer.greet(PLUGIN, TLS_CAPABILITIES)
        peer.receive()
        with context.wrap_socket(peer.connection, server_side=True) as peer.connection:
            peer.receive()
            peer.send(FULL_AUTHENTICATION)
            let_in_if_right(peer, peer.receive())

    with fake_mysql(behaviour) as listening:
        seen = observed(
            Database(
                host="127.0.0.1",
                port=listening.port,
                username="someone",
                password=PASSWORD,
                ssl_ca=str(authority.cert),
            ),
        )
    assert isinstance(seen, NodeState), seen


def test_over_plain_tcp_the_password_is_encrypted_where_the_extra_is_there() -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM,
        serialization.PublicFormat.SubjectPublicKeyInfo,
    )

    def behaviour(peer: Peer) -> None:
        peer.greet(PLUGIN)
        peer.receive()
        peer.send(FULL_AUTHENTICATION)
        assert peer.receive() == PUBLIC_KEY_PLEASE
        peer.send(b"\x01" + public)
        oaep = padding.OAEP(mgf=padding.MGF1(hashes.SHA1()), algorithm=hashes.SHA1(), label=None)  # noqa: S303 (the protocol's)
        scrambled = key.decrypt(peer.receive(), oaep)
        salt = b"saltsaltsaltsaltsalt"
        let_in_if_right(peer, bytes(byte ^ salt[at % len(salt)] for at, byte in enumerate(scrambled)))

    with fake_mysql(behaviour) as listening:
        seen = observed(Database(host="127.0.0.1", port=listening.port, username="someone", password=PASSWORD))
    assert isinstance(seen, NodeState), seen


def test_over_plain_tcp_without_the_extra_the_reason_says_so() -> None:
    def behaviour(peer: Peer) -> None:
        peer.greet(PLUGIN)
        peer.receive()
        peer.send(FULL_AUTHENTICATION)
        peer.receive()
        peer.send(b"\x01-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----\n")
        peer.hang()

    # As if it were not installed: an import of it fails.
    program = "import sys; sys.modules['cryptography'] = None; from app.__main__ import main; sys.exit(main(['check']))"
    with fake_mysql(behaviour) as listening:
        environ = {
            "MYSQL_HOST": "127.0.0.1",
            "MYSQL_PORT": str(listening.port),
            "MYSQL_USERNAME": "someone",
            "MYSQL_PASSWORD": "geheim",
        }
        done = subprocess.run(
            [sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=20, check=False
        )
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == (
        "NOT available access-denied: user someone authenticates with caching_sha2_password or sha256_password, which"
        " over plain TCP needs the Python package cryptography: install it, or use the socket or TLS\n"
    )


@pytest.mark.parametrize("password", ["", "wrong"])
def test_a_wrong_password_is_access_denied(tmp_path: Path, password: str) -> None:
    path = tmp_path / "s"
    with on_unix_socket(path):
        seen = observed(Database(socket=str(path), username="someone", password=password))
    assert isinstance(seen, Unobserved)
    assert seen.cause is Cause.ACCESS_DENIED
