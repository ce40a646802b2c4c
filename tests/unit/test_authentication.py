"""How the password is proved, against mock peers: what MariaDB 10.11 lacks, and impostor servers."""

from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from pymysql.constants import CLIENT

from app.database.login import Database
from app.database.poller import poll_once
from app.verdict.node_state import NodeState, PollFailure
from app.verdict.reason import Reason
from harness.certificates import make_authority, make_certificate
from tests.fake_mysql import (
    CAPABILITIES,
    OK,
    FakeMySQL,
    Peer,
    auth_switch,
    error,
    fake_mysql,
    server_context,
)
from tests.unit.polling import LOOPS, Loop, database_of, polls_of

PLUGIN = "caching_sha2_password"
FULL_AUTHENTICATION, PUBLIC_KEY_PLEASE = b"\x01\x04", b"\x02"
PASSWORD = "geheim é"
DEADLINE_SECONDS = 10.0


def polled(server: FakeMySQL) -> NodeState | PollFailure:
    """Poll once."""
    return poll_once(replace(database_of(server), password=PASSWORD), DEADLINE_SECONDS)


def let_in_if_right(peer: Peer, password: bytes) -> None:
    """End the login, and answer queries if the password was the right one."""
    if password != PASSWORD.encode() + b"\0":
        peer.send(error(1045))
        return
    peer.send(OK)
    peer.answer_queries()


def asks_for_the_clear_password(peer: Peer) -> None:
    """Log in over a channel that is held to be secure."""
    peer.greet(PLUGIN)
    peer.receive()
    peer.send(FULL_AUTHENTICATION)
    let_in_if_right(peer, peer.receive())


def asks_for_the_encrypted_password(peer: Peer) -> None:
    """Log in over a channel that is held to be open to all: the password is encrypted with the
    server's key.
    """
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    peer.greet(PLUGIN)
    peer.receive()
    peer.send(FULL_AUTHENTICATION)
    assert peer.receive() == PUBLIC_KEY_PLEASE
    peer.send(b"\x01" + public)
    oaep = padding.OAEP(mgf=padding.MGF1(hashes.SHA1()), algorithm=hashes.SHA1(), label=None)  # noqa: S303 (the protocol's)
    scrambled = key.decrypt(peer.receive(), oaep)
    salt = b"saltsaltsaltsaltsalt"
    let_in_if_right(peer, bytes(byte ^ salt[at % len(salt)] for at, byte in enumerate(scrambled)))


@pytest.mark.parametrize(("password", "right"), [(PASSWORD, True), ("", False), ("wrong", False)])
def test_over_a_unix_socket_the_password_is_sent_as_it_is(
    tmp_path: Path, password: str, *, right: bool
) -> None:
    path = str(tmp_path / "s")
    with fake_mysql(asks_for_the_clear_password, path):
        seen = poll_once(
            Database(socket=path, username="someone", password=password), DEADLINE_SECONDS
        )
    if right:
        assert isinstance(seen, NodeState)
    else:
        assert seen == PollFailure(
            Reason.ACCESS_DENIED, "the server refused user someone (error 1045)"
        )


@LOOPS
def test_over_tls_the_password_is_sent_within_it(tmp_path: Path, new_loop: Loop) -> None:
    authority = make_authority(tmp_path)
    context = server_context(make_certificate(tmp_path, "server", authority, "127.0.0.1"))

    def behaviour(peer: Peer) -> None:
        peer.start_tls(context, PLUGIN)
        peer.receive()
        peer.send(FULL_AUTHENTICATION)
        let_in_if_right(peer, peer.receive())

    with fake_mysql(behaviour) as server:
        database = replace(database_of(server), password=PASSWORD, ssl_ca=str(authority.cert))
        with polls_of(database, new_loop=new_loop) as polls:
            polls.state()


def test_over_plain_tcp_the_password_is_encrypted() -> None:
    with fake_mysql(asks_for_the_encrypted_password) as server:
        assert isinstance(polled(server), NodeState)


CLEAR, OLD = "mysql_clear_password", "mysql_old_password"
WITHOUT_PLUGINS = CAPABILITIES & ~CLIENT.PLUGIN_AUTH
# name, plugin of the greeting, capabilities, what answers the login, the plugin that is refused
SPOOFED = [
    ("in clear by switch", "mysql_native_password", CAPABILITIES, auth_switch(CLEAR), CLEAR),
    ("in clear by greeting and switch", CLEAR, CAPABILITIES, auth_switch(CLEAR), CLEAR),
    ("in clear after caching_sha2", PLUGIN, CAPABILITIES, auth_switch(CLEAR), CLEAR),
    ("by the hash before 4.1", "mysql_native_password", CAPABILITIES, auth_switch(OLD), OLD),
    ("by that hash as before 5.5", "mysql_native_password", CAPABILITIES, b"\xfe", OLD),
    (
        "by that hash, with a name cut off",
        "mysql_native_password",
        CAPABILITIES,
        b"\xfemysql_native_password",
        OLD,
    ),
    (
        "by that hash, without plugins",
        "",
        WITHOUT_PLUGINS,
        auth_switch("mysql_native_password"),
        OLD,
    ),
    (
        "by a plugin nobody knows",
        "nobody knows",
        CAPABILITIES,
        auth_switch("nobody knows"),
        "nobody?knows",
    ),
    (
        "by a plugin without a name",
        "mysql_native_password",
        CAPABILITIES,
        auth_switch(""),
        "unknown",
    ),
]


@pytest.mark.parametrize(
    ("greeting", "capabilities", "switch", "refused"),
    [row[1:] for row in SPOOFED],
    ids=[row[0] for row in SPOOFED],
)
def test_a_spoofed_server_never_gets_the_password_in_clear(
    greeting: str, capabilities: int, switch: bytes, refused: str
) -> None:
    received: list[bytes] = []

    def behaviour(peer: Peer) -> None:
        peer.greet(greeting, capabilities)
        received.append(peer.receive())
        peer.send(switch)
        received.append(peer.receive())

    with fake_mysql(behaviour) as server:
        seen = polled(server)
    assert seen == PollFailure(
        Reason.ACCESS_DENIED,
        f"user someone authenticates with the plugin {refused}, which clustercheckd does not support:"
        " change it to unix_socket, mysql_native_password or caching_sha2_password",
    )
    # The scramble alone; after the switch, not a byte.
    assert (len(received), received[1]) == (2, b"")
    assert b"someone\0" in received[0]
    assert PASSWORD.encode() not in received[0]


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
