"""From the script to the service: the migrated env file, beside a real node, answers as the script did."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.galera import ACCOUNT, PASSWORD, Node
from harness.ports import LOOPBACK, Ports
from harness.service import Service, without_settings
from harness.stack import Stack
from harness.waiting import wait_for
from tests.http.test_process import SECONDS, run

# Two shell checks of our own, one for each generation's way to take its settings.
_CHECK = """
query() {
    mariadb --defaults-extra-file="$DEFAULTS_EXTRA_FILE" ${MYSQL_USERNAME:+--user="$MYSQL_USERNAME"} \\
        ${MYSQL_PASSWORD:+--password="$MYSQL_PASSWORD"} ${MYSQL_HOST:+--host="$MYSQL_HOST"} \\
        ${MYSQL_PORT:+--port="$MYSQL_PORT"} -nNE --connect-timeout=10 -e "$1" 2>"$ERR_FILE" | tail -1
}
answer() { printf 'HTTP/1.1 %s\\r\\n' "$1"; exit "$2"; }
if [ -e "DIRECTORY/node.disabled" ]; then answer 503 1; fi
state=$(query "SHOW STATUS LIKE 'wsrep_local_state'")
if [ "$state" = 4 ] || { [ "$state" = 2 ] && [ "$AVAILABLE_WHEN_DONOR" = 1 ]; }; then
    if [ "$AVAILABLE_WHEN_READONLY" -eq 0 ] && [ "$(query "SHOW GLOBAL VARIABLES LIKE 'read_only'")" = ON ]; then
        answer 503 1
    fi
    answer 200 0
fi
answer 503 1
"""
_POSITIONAL = """#!/bin/bash
MYSQL_USERNAME="${1-clustercheckuser}"
MYSQL_PASSWORD="${2-clustercheckpassword!}"
AVAILABLE_WHEN_DONOR=${3:-0}
ERR_FILE="${4:-/dev/null}"
AVAILABLE_WHEN_READONLY=${5:-1}
DEFAULTS_EXTRA_FILE=${6:-/etc/my.cnf}
"""
_VARIABLES = """#!/bin/bash
if [ -f DIRECTORY/sysconfig ]; then
    . DIRECTORY/sysconfig
fi
MYSQL_USERNAME="${MYSQL_USERNAME-clustercheckuser}"
MYSQL_PASSWORD="${MYSQL_PASSWORD-clustercheckpassword!}"
MYSQL_HOST="${MYSQL_HOST:-127.0.0.1}"
MYSQL_PORT="${MYSQL_PORT:-3306}"
ERR_FILE="${ERR_FILE:-/dev/null}"
AVAILABLE_WHEN_DONOR=${AVAILABLE_WHEN_DONOR:-0}
AVAILABLE_WHEN_READONLY=${AVAILABLE_WHEN_READONLY:-1}
DEFAULTS_EXTRA_FILE=${DEFAULTS_EXTRA_FILE:-DIRECTORY/empty.cnf}
"""
# xinetd knows no quotes.
_SIMPLE = "migrated"


class Migration:
    """A host that runs a script for one node, by way of an xinetd service."""

    def __init__(self, directory: Path, node: Node, port: int, script: str) -> None:
        self.directory = directory
        self.node = node
        self.port = port
        self.disabled = directory / "node.disabled"
        self._script = directory / "clustercheck"
        self._script.write_text((script + _CHECK).replace("DIRECTORY", str(directory)))
        self._script.chmod(0o755)
        self._arguments: tuple[str, ...] = ()

    def option_file(self, name: str, text: str) -> Path:
        """Write an option file."""
        path = self.directory / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    def service(self, *arguments: str) -> Path:
        """Write the xinetd service."""
        self._arguments = arguments
        path = self.directory / "mysqlchk"
        path.write_text(
            f"service mysqlchk\n{{\n disable = no\n type = UNLISTED\n port = {self.port}\n bind = {LOOPBACK}\n"
            f" wait = no\n user = root\n server = {self._script}\n server_args = {' '.join(arguments)}\n"
            " only_from = 127.0.0.0\n}\n"
        )
        return path

    def script_says(self) -> int:
        """Run the script as xinetd does; give the status of its answer."""
        done = subprocess.run(
            [self._script, *self._arguments],
            env=without_settings(os.environ),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return int(done.stdout.split()[1])

    @contextmanager
    def migrated(self, service: Path) -> Iterator[Service]:
        """Migrate, and start clustercheckd from nothing but the printed file."""
        done = run("migrate", "--password-file", str(self.directory / "password"), str(service))
        assert done.returncode == 0, done.stderr
        env_file = self.directory / "clustercheckd.env"
        env_file.write_text(done.stdout)
        command = (
            *("env", "-u", "CLUSTERCHECK_HOST", "-u", "CLUSTERCHECK_PORT", "-u", "CLUSTERCHECK_DISABLED_FILE"),
            *(sys.executable, "-m", "app", "--env-file", str(env_file)),
        )
        running = Service(self.directory, self.port, {}, name="migrated", command=command)
        try:
            running.wait_until_up()
            yield running
        finally:
            running.stop()


def answers_as_the_script_did(migration: Migration, service: Service, *, donor: int, read_only: int) -> None:
    """Compare the two in each state; donor and read_only: the status that both are to give then."""
    node = migration.node

    def both_say(status: int) -> None:
        assert migration.script_says() == status
        wait_for(f"clustercheckd to answer {status}", lambda: service.get().status == status, seconds=10)

    for statement, undo, status in (
        ("SET GLOBAL wsrep_desync=ON", "SET GLOBAL wsrep_desync=OFF", donor),
        ("SET GLOBAL read_only=ON", "SET GLOBAL read_only=OFF", read_only),
    ):
        both_say(200)
        node.sql(statement)
        try:
            both_say(status)
        finally:
            node.sql(undo)
            node.wait_for_state("Synced")
    migration.disabled.touch()
    both_say(503)
    migration.disabled.unlink()
    both_say(200)
    # Whatever path was asked for, the script never read it.
    assert service.get("/mysqlchk").status == 200


@pytest.fixture
def node(stack: Stack) -> Node:
    """Give a node with an account whose name and password need no quotes."""
    node = stack.nodes[1]
    for host in ("localhost", LOOPBACK):
        node.sql(f"CREATE OR REPLACE USER '{_SIMPLE}'@'{host}' IDENTIFIED BY '{_SIMPLE}'")
    return node


def test_a_script_that_takes_arguments(node: Node, tmp_path: Path, ports: Ports) -> None:
    migration = Migration(tmp_path, node, ports.free(), _POSITIONAL)
    file = migration.option_file("my.cnf", f"[client]\nsocket={node.socket}\n")
    service = migration.service(_SIMPLE, _SIMPLE, "1", "/dev/null", "0", str(file))
    with migration.migrated(service) as running:
        answers_as_the_script_did(migration, running, donor=200, read_only=503)


def test_a_script_that_takes_variables(node: Node, tmp_path: Path, ports: Ports) -> None:
    migration = Migration(tmp_path, node, ports.free(), _VARIABLES)
    migration.option_file("empty.cnf", "")
    (tmp_path / "sysconfig").write_text(
        f"MYSQL_USERNAME={ACCOUNT}\nMYSQL_PASSWORD='{PASSWORD}'\nMYSQL_HOST={LOOPBACK}\nMYSQL_PORT={node.port}\n"
    )
    # It ignores its arguments, wrong as they are.
    with migration.migrated(migration.service("nobody", "wrong", "1", "/dev/null", "0")) as running:
        answers_as_the_script_did(migration, running, donor=503, read_only=200)
