"""How the password is proved, on mock peers: what MariaDB 10.11 lacks, and impostor servers."""

import asyncio
import socket
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from pymysql.constants import CLIENT

from app.database.poller import poll_once
from app.settings.settings import Settings
from app.verdict.node_state import NodeState, PollFailure
from app.verdict.reason import Reason
from harness.waiting import wait_for
from tests.fake_mysql import (
    CAPABILITIES,
    OK,
    Behaviour,
    FakeMySQL,
    Peer,
    auth_switch,
    error,
    fake_mysql,
    reset,
)
from tests.unit.polling import LOOPS, Loop, database_of

PLUGIN = "caching_sha2_password"
FULL_AUTHENTICATION, PUBLIC_KEY_PLEASE = b"\x01\x04", b"\x02"
PASSWORD = "geheim é"
DEADLINE_SECONDS = 10.0
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def polled(server: FakeMySQL) -> NodeState | PollFailure:
    """Poll once."""
    database = replace(database_of(server), mysql_password=PASSWORD)
    return asyncio.run(poll_once(database, DEADLINE_SECONDS))


def let_in_if(peer: Peer, *, is_right: bool) -> None:
    """End the login, and answer queries if what was sent is right."""
    if not is_right:
        peer.send(error(1045))
        return
    peer.send(OK)
    peer.answer_queries()


def asks_for_the_encrypted_password(peer: Peer) -> None:
    """Log in over a channel that is open to all: the server's key encrypts the password."""
    public = KEY.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    peer.greet(PLUGIN)
    peer.receive()
    peer.send(FULL_AUTHENTICATION)
    assert peer.receive() == PUBLIC_KEY_PLEASE
    peer.send(b"\x01" + public)
    sha1 = hashes.SHA1()  # noqa: S303 (the protocol's)
    oaep = padding.OAEP(mgf=padding.MGF1(sha1), algorithm=sha1, label=None)
    scrambled = KEY.decrypt(peer.receive(), oaep)
    salt = b"saltsaltsaltsaltsalt"
    sent = bytes(byte ^ salt[at % len(salt)] for at, byte in enumerate(scrambled))
    let_in_if(peer, is_right=sent == PASSWORD.encode() + b"\0")


def test_over_plain_tcp_the_password_is_encrypted() -> None:
    with fake_mysql(asks_for_the_encrypted_password) as server:
        result = polled(server)
    assert isinstance(result, NodeState), result


NATIVE, CLEAR, OLD = (
    "mysql_native_password",
    "mysql_clear_password",
    "mysql_old_password",
)
NO_PLUGIN = ""


@pytest.mark.parametrize(
    ("greeting", "switch", "refused"),
    [
        (NATIVE, auth_switch(CLEAR), CLEAR),
        (CLEAR, auth_switch(CLEAR), CLEAR),
        (PLUGIN, auth_switch(CLEAR), CLEAR),
        # The hash from before MySQL 4.1, by its name, as before 5.5, and in broken packets.
        (NATIVE, auth_switch(OLD), OLD),
        (NATIVE, b"\xfe", OLD),
        (NATIVE, b"\xfe" + NATIVE.encode(), OLD),
        (NO_PLUGIN, auth_switch(NATIVE), OLD),
        # Plugins that nobody knows.
        (NATIVE, auth_switch("a b"), "a?b"),
        (NATIVE, auth_switch(""), "unknown"),
    ],
)
def test_a_spoofed_server_never_gets_the_password_in_clear(
    greeting: str, switch: bytes, refused: str
) -> None:
    received: list[bytes] = []

    def behaviour(peer: Peer) -> None:
        without = 0 if greeting else CLIENT.PLUGIN_AUTH
        peer.greet(greeting, CAPABILITIES & ~without)
        received.append(peer.receive())
        peer.send(switch)
        received.append(peer.receive())

    with fake_mysql(behaviour) as server:
        result = polled(server)
    assert isinstance(result, PollFailure)
    assert result.reason is Reason.ACCESS_DENIED
    assert f"plugin {refused}, " in result.detail
    # The scramble alone; after the switch, not a byte.
    wait_for("the end of the connection", lambda: len(received) == 2)
    answer, after_the_switch = received
    assert after_the_switch == b""
    assert b"someone\0" in answer
    assert PASSWORD.encode() not in answer


SALT = b"\x01P\0" + b"s" * 18  # parsec's
QUESTION = b"\x01\x04Password: "  # PAM's
SCRAMBLE = auth_switch(NATIVE), 20


def asks(question: bytes, then: Behaviour) -> Behaviour:
    """Answer the empty packet with a question, and the next one otherwise."""

    def behaviour(peer: Peer) -> None:
        peer.send(question)
        assert peer.receive() == b""
        then(peer)

    return behaviour


def asks_for_ever(peer: Peer) -> None:
    """Answer each empty packet with a question."""
    while True:
        asks(QUESTION, lambda _: None)(peer)


def refuses(peer: Peer) -> None:
    """Say that the password was not the right one."""
    peer.send(error(1045))


def closes(peer: Peer) -> None:
    """End the connection."""
    peer.connection.shutdown(socket.SHUT_RDWR)


AFTER: dict[str, Behaviour] = {
    "it refuses, as ed25519": refuses,
    "it sends a salt and refuses, as parsec": asks(SALT, refuses),
    "it asks and refuses, as PAM": asks(QUESTION, refuses),
    "it asks and takes its time, as PAM": asks(QUESTION, Peer.hang),
    "it asks and closes": asks(QUESTION, closes),
    "it asks without an end": asks_for_ever,
    "it takes its time": Peer.hang,
    "it closes": closes,
    "it resets": lambda peer: reset(peer.connection),
    "it sends nonsense": lambda peer: peer.connection.sendall(bytes(100)),
}


@LOOPS
@pytest.mark.parametrize("after", AFTER)
# To caching_sha2_password, PAM's question looks like a request for the password.
@pytest.mark.parametrize(("greeting", "plugin"), [(NATIVE, "parsec"), (PLUGIN, CLEAR)])
def test_an_unsupported_plugin_is_named_whatever_the_server_does_after_an_empty_packet(
    greeting: str, plugin: str, after: str, new_loop: Loop
) -> None:
    received: list[bytes] = []

    def behaviour(peer: Peer) -> None:
        peer.greet(greeting)
        peer.receive()
        peer.send(auth_switch(plugin))
        received.append(peer.receive())
        AFTER[after](peer)

    # As the service polls, with the deadline of its settings.
    with (
        fake_mysql(behaviour) as server,
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        polling = poll_once(database_of(server), Settings().clustercheck_deadline)
        result = runner.run(polling)
    assert isinstance(result, PollFailure)
    assert result.reason is Reason.ACCESS_DENIED
    assert f"the plugin {plugin}, which clustercheckd does not support" in result.detail
    assert received == [b""]


@pytest.mark.parametrize(
    ("greeting", "steps"),
    [
        (NATIVE, [(auth_switch("dialog"), 0), (QUESTION, 0), (QUESTION, 0), SCRAMBLE]),
        (
            NATIVE,
            [
                (auth_switch("client_ed25519"), 0),
                (auth_switch("parsec"), 0),
                (SALT, 0),
                SCRAMBLE,
            ],
        ),
        # The default of a server whose authentication_policy names PAM.
        (CLEAR, [SCRAMBLE]),
        # One that needs no answer.
        (NATIVE, [(auth_switch("dialog"), 0)]),
    ],
)
def test_the_next_plugin_of_an_account_is_used(
    greeting: str, steps: list[tuple[bytes, int]]
) -> None:
    def behaviour(peer: Peer) -> None:
        peer.greet(greeting)
        peer.receive()
        for sent, answer_bytes in steps:
            peer.send(sent)
            assert len(peer.receive()) == answer_bytes
        let_in_if(peer, is_right=True)

    with fake_mysql(behaviour) as server:
        assert isinstance(polled(server), NodeState)
