"""How the password is proved, on mock peers: what MariaDB 10.11 lacks, and impostor servers."""

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from pymysql.constants import CLIENT

from app.database.poller import poll_once
from app.verdict.node_state import NodeState, PollFailure
from app.verdict.reason import Reason
from harness.waiting import wait_for
from tests.fake_mysql import (
    CAPABILITIES,
    OK,
    FakeMySQL,
    Peer,
    auth_switch,
    error,
    fake_mysql,
)
from tests.unit.polling import database_of

PLUGIN = "caching_sha2_password"
FULL_AUTHENTICATION, PUBLIC_KEY_PLEASE = b"\x01\x04", b"\x02"
PASSWORD = "geheim é"
DEADLINE_SECONDS = 10.0
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def polled(server: FakeMySQL) -> NodeState | PollFailure:
    """Poll once."""
    return poll_once(
        replace(database_of(server), mysql_password=PASSWORD), DEADLINE_SECONDS
    )


def let_in_if_right(peer: Peer, password: bytes) -> None:
    """End the login, and answer queries if the password was the right one."""
    if password != PASSWORD.encode() + b"\0":
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
    let_in_if_right(
        peer, bytes(byte ^ salt[at % len(salt)] for at, byte in enumerate(scrambled))
    )


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


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([b"\x01" + b"s" * 20, error(1045)], id="parsec sends its salt"),
        pytest.param([], id="closes"),
        pytest.param([b"\x02Password: "] * 9, id="asks on and on"),
        pytest.param([error(1045)], id="refuses"),
    ],
)
def test_a_plugin_of_which_we_know_nothing_is_named(answers: list[bytes]) -> None:
    def behaviour(peer: Peer) -> None:
        peer.greet()
        peer.receive()
        peer.send(auth_switch("dialog"))
        for answer in answers:
            peer.receive()
            peer.send(answer)
        peer.receive()

    with fake_mysql(behaviour) as server:
        result = polled(server)
    assert isinstance(result, PollFailure)
    assert result.reason is Reason.ACCESS_DENIED
    assert "plugin dialog, which clustercheckd does not support" in result.detail


def test_a_default_plugin_that_is_none_of_ours_does_not_keep_our_account_out() -> None:
    def behaviour(peer: Peer) -> None:
        # As a server does whose authentication_policy names PAM, for an account with a password of
        # its own.
        peer.greet(CLEAR)
        peer.receive()
        peer.send(auth_switch("mysql_native_password"))
        if len(peer.receive()) == 20:
            peer.send(OK)
            peer.answer_queries()

    with fake_mysql(behaviour) as server:
        assert isinstance(polled(server), NodeState)
