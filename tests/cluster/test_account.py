"""The account: who may log in, who gets its password, whether that of the manifests is enough."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.galera import Installation, Node
from harness.ports import LOOPBACK
from tests.http.test_commands import check_as
from tests.http.test_process import run

CONTRIB = Path(__file__).parents[2] / "contrib"

NOBODY = 65534


@pytest.fixture(scope="module")
def node(installation: Installation) -> Iterator[Node]:
    """Run a server that is no member of a cluster, and has no TLS (MariaDB 11.8 has by default)."""
    started = installation.node("accounts", ["--skip-ssl"])
    started.start()
    started.wait_until_up()
    yield started
    started.stop()


@pytest.mark.skipif(
    os.geteuid() != 0,
    reason="becomes another user of the operating system, which needs root",
)
def test_check_by_root_logs_in_with_the_unix_socket_account_of_the_service(
    node: Node,
) -> None:
    # The server knows this number by another name than check, which finds it as that of the
    # service's user.
    environ = {"MYSQL_SOCKET": str(node.socket), "MYSQL_USERNAME": "nobody"}
    refused = check_as("root", environ, user_id=NOBODY)
    assert refused.stdout.startswith("NOT available access-denied: ")
    assert "user id 65534" in refused.stdout
    node.sql(
        "CREATE USER 'nobody'@'localhost' IDENTIFIED VIA unix_socket WITH MAX_USER_CONNECTIONS 5"
    )
    assert check_as("root", environ, user_id=NOBODY).stdout.startswith(
        "NOT available not-galera: "
    )
    # Root itself may not use that account.
    assert run("check", **environ).stdout.startswith("NOT available access-denied: ")


def test_the_account_for_kubernetes_is_enough(node: Node, tmp_path: Path) -> None:
    for (host,) in node.sql("SELECT host FROM mysql.user WHERE user='clustercheck'"):
        node.sql(f"DROP USER 'clustercheck'@'{host}'")
    (tmp_path / "password").write_text("change-me")
    node.sql((CONTRIB / "kubernetes/account.sql").read_text())
    settings = {
        "MYSQL_HOST": LOOPBACK,
        "MYSQL_PORT": str(node.port),
        "MYSQL_USERNAME": "clustercheck",
        "MYSQL_PASSWORD_FILE": str(tmp_path / "password"),
    }
    # The node is no member of a cluster.
    assert run("check", **settings).stdout.startswith("NOT available not-galera: ")
