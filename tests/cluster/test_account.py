"""A refused login: the statement that `check` prints, typed on a real node, makes the next check succeed."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.galera import Installation, Node
from harness.ports import LOOPBACK
from harness.service import without_settings
from harness.stack import Stack
from tests.http.test_process import SECONDS, run

CONTRIB = Path(__file__).parents[2] / "contrib"

CHOSEN = "chosen, it's \\ free"
AVAILABLE = "available synced: wsrep_local_state is 4 (Synced)\n"

# Imported first: this user may not be able to read where the project is checked out.
CHECK_AS_NOBODY = """
import os, pwd, sys
from app.__main__ import main
nobody = pwd.getpwnam("nobody")
os.setgroups([])
os.setgid(nobody.pw_gid)
os.setuid(nobody.pw_uid)
sys.exit(main(["check"]))
"""


def statement_in(printed: str) -> str:
    """Give the one statement among the printed lines, as it would be copied."""
    (statement,) = re.findall(r"^  ((?:CREATE|ALTER) USER .*;)$", printed, re.MULTILINE)
    return str(statement)


def type_on(node: Node, statement: str, password: str = CHOSEN) -> None:
    """Type the statement, with a password where it says so."""
    literal = password.replace("\\", "\\\\").replace("'", "''")
    node.sql(statement.replace("PASSWORD", literal))


def over_tcp(node: Node) -> dict[str, str]:
    """Give settings that lead to a node over TCP."""
    return {"MYSQL_HOST": LOOPBACK, "MYSQL_PORT": str(node.port)}


def test_over_the_socket_with_a_password(stack: Stack) -> None:
    node = stack.nodes[0]
    # A name that needs quotes: it is the administrator who would pay for a wrong one.
    settings = {"MYSQL_SOCKET": str(node.socket), "MYSQL_USERNAME": "o'brien", "MYSQL_PASSWORD": CHOSEN}
    refused = run("check", **settings)
    assert refused.returncode == 1
    first, _, statement, *notes = refused.stdout.splitlines()
    # MariaDB has another number (1698) where it would have tried another plugin.
    assert first.startswith("NOT available access-denied: the server refused user o'brien (error 1")
    assert statement == "  CREATE USER 'o''brien'@'localhost' IDENTIFIED BY 'PASSWORD' WITH MAX_USER_CONNECTIONS 3;"
    assert notes == [
        "Replace PASSWORD with the password that is set for clustercheckd.",
        "If the account already exists, type ALTER USER instead of CREATE USER.",
    ]
    assert CHOSEN not in refused.stdout + refused.stderr
    type_on(node, statement_in(refused.stdout))
    assert run("check", **settings).stdout == AVAILABLE
    # A password that has changed since: the account exists.
    settings["MYSQL_PASSWORD"] = "another"
    statement = statement_in(run("check", **settings).stdout)
    type_on(node, statement.replace("CREATE USER", "ALTER USER"), "another")
    assert run("check", **settings).stdout == AVAILABLE


def test_over_tcp_without_a_password_yet(stack: Stack, tmp_path: Path) -> None:
    node = stack.nodes[0]
    settings = {**over_tcp(node), "MYSQL_USERNAME": "fresh"}
    refused = run("check", **settings)
    statement = statement_in(refused.stdout)
    # This server looks names up.
    assert "CREATE USER 'fresh'@'localhost' IDENTIFIED BY" in statement
    assert "and set MYSQL_PASSWORD_FILE to that file." in refused.stdout
    type_on(node, statement)
    file = tmp_path / "password"
    file.write_text(CHOSEN)
    assert run("check", **settings, MYSQL_PASSWORD_FILE=str(file)).stdout == AVAILABLE


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user of the operating system, which needs root")
def test_over_the_socket_without_a_password_it_is_unix_socket(stack: Stack) -> None:
    node = stack.nodes[0]
    settings = {"MYSQL_SOCKET": str(node.socket), "MYSQL_USERNAME": "nobody"}
    refused = run("check", **settings)
    assert statement_in(refused.stdout) == "CREATE USER 'nobody'@'localhost' IDENTIFIED VIA unix_socket;"
    assert "To try the account, type: runuser -u nobody -- clustercheckd check" in refused.stdout
    type_on(node, statement_in(refused.stdout))
    done = subprocess.run(
        [sys.executable, "-c", CHECK_AS_NOBODY],
        env={**without_settings(os.environ), **settings},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.stdout == AVAILABLE, done.stderr


def test_an_account_with_a_plugin_that_is_not_supported_is_altered(installation: Installation) -> None:
    node = installation.node("altered", ["--plugin-load-add=auth_ed25519"])
    node.start()
    node.wait_until_up()
    try:
        node.sql("CREATE USER 'modern'@'localhost' IDENTIFIED VIA ed25519 USING PASSWORD('x')")
        settings = {"MYSQL_SOCKET": str(node.socket), "MYSQL_USERNAME": "modern", "MYSQL_PASSWORD": CHOSEN}
        statement = statement_in(run("check", **settings).stdout)
        assert statement.startswith("ALTER USER 'modern'@'localhost' IDENTIFIED BY 'PASSWORD'")
        type_on(node, statement)
        assert run("check", **settings).stdout.startswith("NOT available not-galera: ")
    finally:
        node.stop()


def test_a_host_that_no_account_is_for_gets_one(installation: Installation) -> None:
    node = installation.node("host", ["--skip-name-resolve"])
    node.start()
    node.wait_until_up()
    try:
        # Without an account for this host the server does not even greet it (error 1130).
        for user, host in node.sql("SELECT user, host FROM mysql.global_priv"):
            if host in (LOOPBACK, "%"):
                node.sql(f"DROP USER '{user}'@'{host}'")
        settings = {**over_tcp(node), "MYSQL_USERNAME": "first", "MYSQL_PASSWORD": CHOSEN}
        refused = run("check", **settings).stdout
        assert refused.startswith("NOT available host-blocked: ")
        statement = statement_in(refused)
        assert f"'first'@'{LOOPBACK}'" in statement
        type_on(node, statement)
        assert run("check", **settings).stdout.startswith("NOT available not-galera: ")
    finally:
        node.stop()


@pytest.fixture
def without_account(installation: Installation) -> Iterator[Node]:
    """Run a node that has no account for clustercheckd yet."""
    node = installation.node("manifests")
    node.start()
    node.wait_until_up()
    for host in ("localhost", LOOPBACK):
        node.sql(f"DROP USER 'clustercheck'@'{host}'")
    yield node
    node.stop()


def test_the_account_that_compose_makes_is_enough(without_account: Node, tmp_path: Path) -> None:
    (tmp_path / "clustercheck").write_text(CHOSEN)
    script = (CONTRIB / "compose/account.sh").read_text()
    # The two functions are those of the image's entrypoint, which sources the script.
    functions = f"""
docker_process_sql() {{ mariadb --no-defaults --socket={without_account.socket}; }}
docker_sql_escape_string_literal() {{ printf %s "$1" | sed -e 's/[\\\\]/\\\\\\\\/g' -e "s/'/''/g"; }}
"""
    subprocess.run(["bash", "-ec", functions + script.replace("/secret/", f"{tmp_path}/")], check=True, timeout=SECONDS)
    is_enough(without_account, tmp_path / "clustercheck")


def test_the_account_for_kubernetes_is_enough(without_account: Node, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("change-me")
    without_account.sql((CONTRIB / "kubernetes/account.sql").read_text())
    is_enough(without_account, tmp_path / "password")


def is_enough(node: Node, password: Path) -> None:
    """Check that clustercheckd reads the node, which is no member of a cluster."""
    settings = {**over_tcp(node), "MYSQL_USERNAME": "clustercheck", "MYSQL_PASSWORD_FILE": str(password)}
    assert run("check", **settings).stdout.startswith("NOT available not-galera: ")
