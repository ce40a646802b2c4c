"""Option files and TLS against real MariaDB servers; what MariaDB lacks against a mock server."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.certificates import Certificate, make_certificate
from harness.galera import ACCOUNT, PASSWORD, Installation, Node
from harness.ports import LOOPBACK
from tests.http.test_process import run

# The server listens there too, and its certificate does not say so.
OTHER_ADDRESS = "127.0.0.2"


def test_a_defaults_file_is_enough(lone: Node, tmp_path: Path) -> None:
    file = tmp_path / "my.cnf"
    file.write_text(
        f"[client]\nuser = {ACCOUNT} # ours\npassword='{PASSWORD}'\nquick\n"
        f"socket={lone.socket}\n[mysqldump]\nuser=mallory\n"
    )
    file.chmod(0o600)
    done = run("check", DEFAULTS_EXTRA_FILE=str(file))
    assert done.stdout.startswith("available synced: ")
    assert PASSWORD not in done.stdout + done.stderr


@dataclass(frozen=True)
class TlsServer:
    """A MariaDB server with a certificate, and accounts that may come over TLS only."""

    node: Node
    authority: Certificate
    client: Certificate

    def checked(self, more: Mapping[str, str]) -> str:
        """Return what check says about it over TCP."""
        places = {
            "ca": self.authority.cert,
            "cert": self.client.cert,
            "key": self.client.key,
        }
        account = {"MYSQL_USERNAME": "secret", "MYSQL_PASSWORD": "geheim"}
        settings = account | {
            name: value.format(**places) for name, value in more.items()
        }
        return run(
            "check",
            **{"MYSQL_HOST": LOOPBACK, "MYSQL_PORT": str(self.node.port), **settings},
        ).stdout


@pytest.fixture(scope="module")
def tls_server(
    installation: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TlsServer]:
    """Run a MariaDB server with TLS, without Galera: what is asked is whether it can be read."""
    authority, server = installation.certified("tls")
    directory = tmp_path_factory.mktemp("tls")
    client = make_certificate(directory, "client", authority, LOOPBACK)
    files = {"ca": authority.cert, "cert": server.cert, "key": server.key}
    options = [f"--ssl-{option}={file}" for option, file in files.items()]
    node = installation.node(
        "tls-server", [*options, f"--bind-address={LOOPBACK},{OTHER_ADDRESS}"]
    )
    node.start()
    node.wait_until_up()
    node.sql(f"CREATE USER 'secret'@'{LOOPBACK}' IDENTIFIED BY 'geheim' REQUIRE SSL")
    node.sql(f"CREATE USER 'mutual'@'{LOOPBACK}' IDENTIFIED BY 'geheim' REQUIRE X509")
    yield TlsServer(node, authority, client)
    node.stop()


CA = {"MYSQL_SSL_CA": "{ca}"}
OTHER_HOST = {"MYSQL_HOST": OTHER_ADDRESS, **CA}
CLIENT = {
    "MYSQL_USERNAME": "mutual",
    "MYSQL_SSL_CERT": "{cert}",
    "MYSQL_SSL_KEY": "{key}",
}
READ = "not-galera: "
NOT_ACCEPTED = ": certificate not accepted: "


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param(CA, READ, id="a trusted server"),
        pytest.param({}, "access-denied: ", id="no TLS, which the account requires"),
        # The system's authorities have not signed it.
        pytest.param({"MYSQL_SSL": "1"}, NOT_ACCEPTED, id="an authority nobody trusts"),
        pytest.param(
            {"MYSQL_SSL": "1", "MYSQL_SSL_VERIFY": "none"}, READ, id="no verification"
        ),
        pytest.param(OTHER_HOST, NOT_ACCEPTED, id="a certificate for another host"),
        pytest.param(
            OTHER_HOST | {"MYSQL_SSL_VERIFY": "ca"}, READ, id="only the issuer counts"
        ),
        pytest.param(
            CA | {"MYSQL_USERNAME": "mutual"},
            "access-denied: ",
            id="no client certificate",
        ),
        pytest.param(CA | CLIENT, READ, id="a client certificate"),
    ],
)
def test_tls_is_verified_unless_switched_off(
    tls_server: TlsServer, settings: Mapping[str, str], words: str
) -> None:
    assert words in tls_server.checked(settings)


def test_a_plugin_that_is_not_supported_is_named_unless_the_account_has_another_one(
    tls_server: TlsServer,
) -> None:
    node = tls_server.node
    node.sql("INSTALL SONAME 'auth_ed25519'")
    modern = "ed25519 USING PASSWORD('x')"
    for user, plugins, password, words in (
        ("modern", modern, "x", "client_ed25519"),
        ("either", f"{modern} OR mysql_native_password USING PASSWORD('y')", "y", READ),
        ("or", f"mysql_native_password USING PASSWORD('y') OR {modern}", "y", READ),
        ("neither", f"{modern} OR mysql_native_password USING PASSWORD('y')", "z", ""),
    ):
        node.sql(f"CREATE USER '{user}'@'localhost' IDENTIFIED VIA {plugins}")
        account = {"MYSQL_USERNAME": user, "MYSQL_PASSWORD": password}
        said = run("check", MYSQL_SOCKET=str(node.socket), **account).stdout
        assert (words or "access-denied: the server refused user neither") in said
