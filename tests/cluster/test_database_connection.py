"""Secrets, option files and TLS against real MariaDB servers; what MariaDB lacks against a hand-written one."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.certificates import Certificate, make_authority, make_certificate
from harness.galera import ACCOUNT, PASSWORD, Installation, Node
from harness.ports import LOOPBACK
from tests.conftest import Services
from tests.http.test_process import run

# The server listens there too, and its certificate does not say so.
OTHER_ADDRESS = "127.0.0.2"


def test_a_rotated_password_needs_no_restart(lone: Node, services: Services, tmp_path: Path) -> None:
    file = tmp_path / "password"
    account = "'rotated'@'localhost'"
    lone.sql(f"CREATE OR REPLACE USER {account} IDENTIFIED BY 'first'")
    file.write_text("first\n")
    settings = {"MYSQL_SOCKET": str(lone.socket), "MYSQL_USERNAME": "rotated", "MYSQL_PASSWORD_FILE": str(file)}
    service = services.start(**settings)
    service.wait_for_verdict(200, "synced")
    # The connection that is open goes on; a new one, as after a restart of the server, is refused.
    lone.sql(f"ALTER USER {account} IDENTIFIED BY 'second'")
    kill_sessions(lone, "rotated")
    service.wait_for_verdict(503, "access-denied")
    file.write_text("second\n")
    service.wait_for_verdict(200, "synced")
    # The other order costs no answer at all.
    before = service.status()["changes"]
    file.write_text("third")
    lone.sql(f"ALTER USER {account} IDENTIFIED BY 'third'")
    kill_sessions(lone, "rotated")
    service.wait_for_verdict(200, "synced")
    assert service.status()["changes"] == before


def kill_sessions(node: Node, user: str) -> None:
    """Kill every session of a user."""
    for name, number in node.sql("SELECT user, id FROM information_schema.processlist"):
        if name == user:
            node.sql(f"KILL {number}")


def test_a_defaults_file_is_enough(lone: Node, services: Services, tmp_path: Path) -> None:
    directory = tmp_path / "conf.d"
    directory.mkdir()
    for path, text in (
        (directory / "account.cnf", f"[client]\nuser = {ACCOUNT} # ours\npassword='{PASSWORD}'\nquick\n"),
        (tmp_path / "my.cnf", f"[client]\nsocket={lone.socket}\n!includedir {directory}\n[mysql]\nuser=mallory\n"),
    ):
        path.write_text(text)
        path.chmod(0o600)
    service = services.start(MYSQL_SOCKET="", DEFAULTS_EXTRA_FILE=str(tmp_path / "my.cnf"))
    service.wait_for_verdict(200, "synced")
    assert PASSWORD not in service.log.read_text()


@dataclass(frozen=True)
class TlsServer:
    """A MariaDB server with a certificate, its authority, and an account that may come over TLS only."""

    node: Node
    authority: Certificate
    client: Certificate

    def settings(self, **environ: str) -> dict[str, str]:
        """Give settings that lead to it over TCP."""
        return {
            "MYSQL_SOCKET": "",
            "MYSQL_HOST": LOOPBACK,
            "MYSQL_PORT": str(self.node.port),
            "MYSQL_USERNAME": "secret",
            "MYSQL_PASSWORD": "geheim",
            **environ,
        }


@pytest.fixture(scope="module")
def tls_server(installation: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    """Run a MariaDB server with TLS, without Galera: what is asked is whether it can be read."""
    directory = tmp_path_factory.mktemp("tls")
    authority = make_authority(directory)
    server = make_certificate(directory, "server", authority, LOOPBACK)
    client = make_certificate(directory, "client", authority, LOOPBACK)
    place = installation.directory / "certificates"
    place.mkdir()
    for file in (authority.cert, server.cert, server.key):
        copy = place / file.name
        copy.write_bytes(file.read_bytes())
        installation.give_to_server(copy)
    files = {"ca": authority.cert, "cert": server.cert, "key": server.key}
    options = [f"--ssl-{option}={place / file.name}" for option, file in files.items()]
    node = installation.node("tls-server", [*options, f"--bind-address={LOOPBACK},{OTHER_ADDRESS}"])
    node.start()
    node.wait_until_up()
    node.sql(f"CREATE USER 'secret'@'{LOOPBACK}' IDENTIFIED BY 'geheim' REQUIRE SSL")
    node.sql(f"CREATE USER 'mutual'@'{LOOPBACK}' IDENTIFIED BY 'geheim' REQUIRE X509")
    yield TlsServer(node, authority, client)
    node.stop()


class TestTls:
    """Required means never plain text, and verification is on unless switched off."""

    def test_a_trusted_server_is_read(self, tls_server: TlsServer, services: Services) -> None:
        service = services.start(**tls_server.settings(MYSQL_SSL_CA=str(tls_server.authority.cert)))
        service.wait_for_verdict(503, "not-galera")
        assert "(with a password, over TLS)" in service.log.read_text()

    def test_without_tls_the_account_is_refused_and_check_says_that_it_needs_only_the_setting(
        self, tls_server: TlsServer
    ) -> None:
        refused = run("check", **tls_server.settings()).stdout
        assert refused.startswith("NOT available access-denied: ")
        assert "; if it has REQUIRE SSL, set MYSQL_SSL=1. " in refused
        with_tls = {"MYSQL_SSL": "1", "MYSQL_SSL_CA": str(tls_server.authority.cert)}
        assert run("check", **tls_server.settings(**with_tls)).stdout.startswith("NOT available not-galera: ")
        assert "REQUIRE SSL" not in run("check", **tls_server.settings(**with_tls, MYSQL_PASSWORD="wrong")).stdout

    def test_an_authority_nobody_trusts_is_refused_unless_verification_is_off(
        self, tls_server: TlsServer, services: Services
    ) -> None:
        # The system's authorities have not signed it.
        reply = services.start(**tls_server.settings(MYSQL_SSL="1")).wait_for_verdict(503, "error")
        assert "no TLS connection to 127.0.0.1" in reply.body
        assert "certificate not accepted: " in reply.body
        services.start(**tls_server.settings(MYSQL_SSL="1", MYSQL_SSL_VERIFY="none")).wait_for_verdict(
            503, "not-galera"
        )

    def test_a_certificate_for_another_host_is_refused_unless_only_the_issuer_counts(
        self,
        tls_server: TlsServer,
        services: Services,
    ) -> None:
        settings = tls_server.settings(MYSQL_HOST=OTHER_ADDRESS, MYSQL_SSL_CA=str(tls_server.authority.cert))
        reply = services.start(**settings).wait_for_verdict(503, "error")
        assert "certificate not accepted: " in reply.body
        services.start(**settings, MYSQL_SSL_VERIFY="ca").wait_for_verdict(503, "not-galera")

    def test_a_client_certificate_is_shown(self, tls_server: TlsServer, services: Services) -> None:
        ours = {
            "MYSQL_USERNAME": "mutual",
            "MYSQL_SSL_CA": str(tls_server.authority.cert),
            "MYSQL_SSL_CERT": str(tls_server.client.cert),
            "MYSQL_SSL_KEY": str(tls_server.client.key),
        }
        services.start(**tls_server.settings(**ours)).wait_for_verdict(503, "not-galera")

    def test_a_server_without_tls_gets_no_credentials(self, installation: Installation, services: Services) -> None:
        # MariaDB 11.8 has TLS on by default.
        node = installation.node("no-tls", ["--skip-ssl"])
        node.start()
        node.wait_until_up()
        address = {"MYSQL_SOCKET": "", "MYSQL_HOST": LOOPBACK, "MYSQL_PORT": str(node.port)}
        account = {"MYSQL_USERNAME": ACCOUNT, "MYSQL_PASSWORD": PASSWORD}
        service = services.start(**address, **account, MYSQL_SSL="1", MYSQL_SSL_VERIFY="none")
        reply = service.wait_for_verdict(503, "error")
        assert (
            f"error: {LOOPBACK}:{node.port} offers no TLS, but MYSQL_SSL* or the option file requires it" in reply.body
        )
        node.stop()


def test_an_account_with_ed25519_is_told_the_plugin_and_what_to_do(tls_server: TlsServer, services: Services) -> None:
    node = tls_server.node
    node.sql("INSTALL SONAME 'auth_ed25519'")
    node.sql("CREATE USER 'modern'@'localhost' IDENTIFIED VIA ed25519 USING PASSWORD('x')")
    service = services.start(MYSQL_SOCKET=str(node.socket), MYSQL_USERNAME="modern", MYSQL_PASSWORD="x")
    assert service.wait_for_verdict(503, "access-denied").body.endswith(
        "access-denied: user modern authenticates with the plugin client_ed25519, which clustercheckd does not"
        " support: change it to unix_socket, mysql_native_password or caching_sha2_password\r\n"
    )
