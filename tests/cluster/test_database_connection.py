"""Option files, accounts and TLS against real MariaDB servers."""

import getpass
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pymysql
import pytest

from harness.certificates import make_certificate
from harness.galera import ACCOUNT, PASSWORD, Installation, Node
from harness.ports import LOOPBACK
from tests import real_rows
from tests.cluster.test_verdicts import assert_node_is
from tests.conftest import Services, needs_root
from tests.http.test_commands import check_as
from tests.http.test_process import run
from tests.unit.manifests import ROOT

NOBODY = 65534
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
    """A MariaDB server with a certificate, and accounts that may come over TLS only.

    files: its authority, a client's certificate and key.
    """

    node: Node
    files: Mapping[str, Path]

    def checked(self, more: Mapping[str, str]) -> str:
        """Return what check says about it over TCP, with the files' names filled in."""
        settings = {
            "MYSQL_HOST": LOOPBACK,
            "MYSQL_PORT": str(self.node.port),
            "MYSQL_USERNAME": "secret",
            "MYSQL_PASSWORD": "geheim",
        } | {name: value.format(**self.files) for name, value in more.items()}
        return run("check", **settings).stdout


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
    yield TlsServer(
        node, {"ca": authority.cert, "cert": client.cert, "key": client.key}
    )
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


def install(node: Node, plugin: str) -> None:
    """Have a server load an authentication plugin, or skip the test."""
    try:
        node.sql(f"INSTALL SONAME 'auth_{plugin}'")
    except pymysql.MySQLError as fault:
        pytest.skip(f"NOT TESTED: this server has no {plugin}: {fault}")


# parsec came with MariaDB 11.6.
@pytest.mark.parametrize(
    ("plugin", "name"), [("ed25519", "client_ed25519"), ("parsec", "parsec")]
)
def test_a_plugin_that_is_not_supported_is_named_unless_the_account_has_another_one(
    tls_server: TlsServer, plugin: str, name: str
) -> None:
    node = tls_server.node
    install(node, plugin)
    modern = f"{plugin} USING PASSWORD('x')"
    for user, plugins, password, words in (
        ("modern", modern, "x", f"the plugin {name}, which "),
        ("either", f"{modern} OR mysql_native_password USING PASSWORD('y')", "y", READ),
        ("or", f"mysql_native_password USING PASSWORD('y') OR {modern}", "y", READ),
        ("neither", f"{modern} OR mysql_native_password USING PASSWORD('y')", "z", ""),
    ):
        node.sql(
            f"CREATE OR REPLACE USER '{user}'@'localhost' IDENTIFIED VIA {plugins}"
        )
        account = {"MYSQL_USERNAME": user, "MYSQL_PASSWORD": password}
        said = run("check", MYSQL_SOCKET=str(node.socket), **account).stdout
        assert (words or "access-denied: the server refused user neither") in said


def test_pam_takes_its_time_to_refuse_and_is_named_unless_another_plugin_comes_first(
    tls_server: TlsServer,
) -> None:
    node = tls_server.node
    install(node, "pam")
    pam, native = "pam USING 'other'", "mysql_native_password USING PASSWORD('y')"
    named = "access-denied: user pam authenticates with the plugin dialog, which "
    for plugins, words in (
        (pam, named),
        (f"{pam} OR {native}", named),
        (f"{native} OR {pam}", READ),
    ):
        node.sql(f"CREATE OR REPLACE USER 'pam'@'localhost' IDENTIFIED VIA {plugins}")
        account = {"MYSQL_USERNAME": "pam", "MYSQL_PASSWORD": "y"}
        said = run("check", MYSQL_SOCKET=str(node.socket), **account).stdout
        assert words in said


@needs_root
def test_check_by_root_logs_in_with_the_unix_socket_account_of_the_service(
    tls_server: TlsServer,
) -> None:
    node = tls_server.node
    # The server knows this number by another name than check, which finds it as that of the
    # service's user.
    environ = {"MYSQL_SOCKET": str(node.socket), "MYSQL_USERNAME": "nobody"}
    refused = check_as("root", environ, user_id=NOBODY)
    assert refused.stdout.startswith("NOT available access-denied: ")
    assert "user id 65534" in refused.stdout
    node.sql(
        "CREATE USER 'nobody'@'localhost' IDENTIFIED VIA unix_socket WITH MAX_USER_CONNECTIONS 6"
    )
    assert check_as("root", environ, user_id=NOBODY).stdout.startswith(
        "NOT available not-galera: "
    )
    # Root itself may not use that account.
    assert run("check", **environ).stdout.startswith("NOT available access-denied: ")


def test_the_account_for_kubernetes_is_enough(
    tls_server: TlsServer, tmp_path: Path
) -> None:
    node, password = tls_server.node, tmp_path / "password"
    for (host,) in node.sql("SELECT host FROM mysql.user WHERE user='clustercheck'"):
        node.sql(f"DROP USER 'clustercheck'@'{host}'")
    password.write_text("change-me")
    node.sql((ROOT / "contrib" / "kubernetes" / "account.sql").read_text())
    account = {"MYSQL_USERNAME": "clustercheck", "MYSQL_PASSWORD": ""}
    assert READ in tls_server.checked({**account, "MYSQL_PASSWORD_FILE": str(password)})


def test_a_server_without_galera_is_not_galera_and_unix_socket_needs_no_password(
    tls_server: TlsServer, services: Services
) -> None:
    node = tls_server.node
    service = services.start(
        MYSQL_SOCKET=str(node.socket), MYSQL_USERNAME=getpass.getuser()
    )
    service.wait_for_verdict(503, "not-galera")
    service.wait_for_log("(without a password)")
    assert_node_is(service, real_rows.NOT_GALERA)
