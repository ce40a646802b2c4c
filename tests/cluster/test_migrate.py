"""From xinetd to the service: beside a real node, the migrated service answers as what it replaces did."""

import os
import sys
from pathlib import Path

import pytest

from harness.galera import Node
from harness.ports import LOOPBACK, Ports
from harness.service import Service, without_settings
from harness.waiting import wait_for
from tests.cluster.test_clustercheck import COMMAND, SIMPLE_ACCOUNT, SIMPLE_PASSWORD, clustercheck
from tests.http.test_process import run


@pytest.mark.parametrize(("donor", "readonly"), [("1", "0"), ("0", "1")])
def test_the_migrated_service_answers_as_the_command_that_it_replaces(
    lone: Node, tmp_path: Path, ports: Ports, donor: str, readonly: str
) -> None:
    lone.sql(f"CREATE OR REPLACE USER '{SIMPLE_ACCOUNT}'@'localhost' IDENTIFIED BY '{SIMPLE_PASSWORD}'")
    disabled, option_file, xinetd = tmp_path / "node.disabled", tmp_path / "my.cnf", tmp_path / "mysqlchk"
    option_file.write_text(f"[client]\nsocket={lone.socket}\n")
    option_file.chmod(0o600)
    arguments = (SIMPLE_ACCOUNT, SIMPLE_PASSWORD, donor, "/dev/null", readonly, str(option_file))
    port = ports.free()
    xinetd.write_text(
        f"service mysqlchk\n{{\n port = {port}\n bind = {LOOPBACK}\n server = {COMMAND}\n"
        f" server_args = {' '.join(arguments)}\n env = CLUSTERCHECK_DISABLED_FILE={disabled}\n"
        " only_from = 127.0.0.0/8\n}\n"
    )
    env_file = str(tmp_path / "clustercheckd.env")
    done = run("migrate", "--password-file", str(tmp_path / "password"), "--output", env_file, str(xinetd))
    assert done.returncode == 0, done.stderr
    # From nothing but the env file.
    unset = ("env", "-u", "CLUSTERCHECK_HOST", "-u", "CLUSTERCHECK_PORT", "-u", "CLUSTERCHECK_DISABLED_FILE")
    command = (*unset, sys.executable, "-m", "app", "--env-file", env_file)
    service = Service(tmp_path, port, {}, name="migrated", command=command)
    environ = {**without_settings(os.environ), "CLUSTERCHECK_DISABLED_FILE": str(disabled)}

    def both_say(status: int) -> None:
        assert clustercheck(environ, *arguments)[0] == int(status != 200)
        wait_for(f"clustercheckd to answer {status}", lambda: service.get().status == status, seconds=10)

    try:
        service.wait_until_up()
        for variable, allowed in (("wsrep_desync", donor), ("read_only", readonly)):
            both_say(200)
            lone.sql(f"SET GLOBAL {variable}=ON")
            try:
                both_say(200 if allowed == "1" else 503)
            finally:
                lone.sql(f"SET GLOBAL {variable}=OFF")
                lone.wait_for_state("Synced")
        disabled.touch()
        both_say(503)
        disabled.unlink()
        both_say(200)
        # Whatever path was asked for, the script never read it.
        assert service.get("/mysqlchk").status == 200
    finally:
        service.stop()
