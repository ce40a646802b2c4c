"""From the script to the service: the migrated env file, beside a real node, answers as the script did."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.galera import Node
from harness.ports import LOOPBACK, Ports
from harness.service import Service, without_settings
from harness.waiting import wait_for
from tests.http.test_process import SECONDS, run

# A shell check of our own, with the packages' way to take its settings.
_SCRIPT = """#!/bin/bash
MYSQL_USERNAME="${1-clustercheckuser}"
MYSQL_PASSWORD="${2-clustercheckpassword!}"
AVAILABLE_WHEN_DONOR=${3:-0}
AVAILABLE_WHEN_READONLY=${5:-1}
DEFAULTS_EXTRA_FILE=${6:-/etc/my.cnf}
query() {
    mariadb --defaults-extra-file="$DEFAULTS_EXTRA_FILE" --user="$MYSQL_USERNAME" --password="$MYSQL_PASSWORD" \\
        -nNE --connect-timeout=10 -e "$1" | tail -1
}
answer() { printf 'HTTP/1.1 %s\\r\\n' "$1"; exit; }
if [ -e "$CLUSTERCHECK_DISABLED_FILE" ]; then answer 503; fi
state=$(query "SHOW STATUS LIKE 'wsrep_local_state'")
if [ "$state" = 4 ] || { [ "$state" = 2 ] && [ "$AVAILABLE_WHEN_DONOR" = 1 ]; }; then
    if [ "$AVAILABLE_WHEN_READONLY" -eq 0 ] && [ "$(query "SHOW GLOBAL VARIABLES LIKE 'read_only'")" = ON ]; then
        answer 503
    fi
    answer 200
fi
answer 503
"""
# xinetd knows no quotes.
_SIMPLE = "migrated"


class Migration:
    """A host whose xinetd runs a script for one node, before and after the migration."""

    def __init__(self, directory: Path, node: Node, port: int, donor: str, readonly: str) -> None:
        self.directory, self.port = directory, port
        self.disabled, self._script = directory / "node.disabled", directory / "clustercheck"
        self._script.write_text(_SCRIPT)
        self._script.chmod(0o755)
        option_file = directory / "my.cnf"
        option_file.write_text(f"[client]\nsocket={node.socket}\n")
        self._arguments = (_SIMPLE, _SIMPLE, donor, "/dev/null", readonly, str(option_file))

    def script_says(self) -> int:
        """Run the script as xinetd does; return the status of its answer."""
        environ = {**without_settings(os.environ), "CLUSTERCHECK_DISABLED_FILE": str(self.disabled)}
        command = [str(self._script), *self._arguments]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False)
        return int(done.stdout.split()[1])

    @contextmanager
    def migrated(self) -> Iterator[Service]:
        """Migrate, and start clustercheckd from nothing but the env file."""
        service, env_file = self.directory / "mysqlchk", self.directory / "clustercheckd.env"
        service.write_text(
            f"service mysqlchk\n{{\n disable = no\n type = UNLISTED\n port = {self.port}\n bind = {LOOPBACK}\n"
            f" wait = no\n user = root\n server = {self._script}\n server_args = {' '.join(self._arguments)}\n"
            f" env = CLUSTERCHECK_DISABLED_FILE={self.disabled}\n only_from = 127.0.0.0/8\n}}\n"
        )
        password = self.directory / "password"
        done = run("migrate", "--password-file", str(password), "--output", str(env_file), str(service))
        assert done.returncode == 0, done.stderr
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


@pytest.mark.parametrize(("donor", "readonly"), [("1", "0"), ("0", "1")])
def test_the_migrated_service_answers_as_the_script_did(
    lone: Node, tmp_path: Path, ports: Ports, donor: str, readonly: str
) -> None:
    lone.sql(f"CREATE OR REPLACE USER '{_SIMPLE}'@'localhost' IDENTIFIED BY '{_SIMPLE}'")
    migration = Migration(tmp_path, lone, ports.free(), donor, readonly)
    with migration.migrated() as service:

        def both_say(status: int) -> None:
            assert migration.script_says() == status
            wait_for(f"clustercheckd to answer {status}", lambda: service.get().status == status, seconds=10)

        for variable, status in (
            ("wsrep_desync", 200 if donor == "1" else 503),
            ("read_only", 200 if readonly == "1" else 503),
        ):
            both_say(200)
            lone.sql(f"SET GLOBAL {variable}=ON")
            try:
                both_say(status)
            finally:
                lone.sql(f"SET GLOBAL {variable}=OFF")
                lone.wait_for_state("Synced")
        migration.disabled.touch()
        both_say(503)
        migration.disabled.unlink()
        both_say(200)
        # Whatever path was asked for, the script never read it.
        assert service.get("/mysqlchk").status == 200
