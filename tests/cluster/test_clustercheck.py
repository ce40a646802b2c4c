"""The drop-in on real nodes, and under the programs that run the script: its bytes and statuses."""

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from harness.galera import ACCOUNT, PASSWORD, Node
from harness.ports import LOOPBACK, Ports, listens
from harness.process import Process, with_system_path
from harness.service import read_to_end, without_settings
from harness.waiting import wait_for

COMMAND = str(Path(sys.executable).parent / "clustercheck")
SECONDS = 20

XINETD = """service mysqlchk
{
    type = UNLISTED
    port = %s
    bind = 127.0.0.1
    socket_type = stream
    wait = no
    user = root
    server = %s
    server_args = - 1 /dev/null 1 %s
    env = %s
    per_source = UNLIMITED
    cps = 1000 1
}
"""
REQUESTS = [
    b"OPTIONS / HTTP/1.0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nUser-Agent: " + b"y" * 500 + b"\r\n\r\n",
    b"",
]


def printed(status: str, length: int, what: str) -> bytes:
    """Return the script's answer."""
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nConnection: close\r\n"
        f"Content-Length: {length}\r\n\r\nPercona XtraDB Cluster Node is {what}.\r\n"
    ).encode()


SYNCED = 0, printed("200 OK", 40, "synced")
NOT_SYNCED = 1, printed("503 Service Unavailable", 44, "not synced")
READ_ONLY = 1, printed("503 Service Unavailable", 43, "read-only")
DISABLED = 1, printed("503 Service Unavailable", 51, "manually disabled")

Ask = Callable[..., tuple[int, bytes]]


def variables_for(node: Node, directory: Path) -> dict[str, str]:
    """Return the variables that lead to a node."""
    return {
        "MYSQL_SOCKET": str(node.socket),
        "CLUSTERCHECK_DISABLED_FILE": str(directory / "disabled"),
        # Not what is tested here but once: a busy machine must not decide.
        "CLUSTERCHECK_DEADLINE": "5",
    }


@pytest.fixture
def ask(lone: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Return a function that asks a node, and returns exit code and output."""
    monkeypatch.chdir(tmp_path)
    environ = with_system_path(without_settings(os.environ)) | variables_for(
        lone, tmp_path
    )

    def run(
        *arguments: str, command: Sequence[str] = (COMMAND,), **variables: str
    ) -> tuple[int, bytes]:
        done = subprocess.run(
            [*command, *arguments],
            env={**environ, **variables},
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.stderr == b""
        return done.returncode, done.stdout

    return run


def test_its_bytes_for_every_state_of_a_real_node(lone: Node, ask: Ask) -> None:
    strict = (ACCOUNT, PASSWORD)
    lenient = (ACCOUNT, PASSWORD, "1")
    assert ask(*strict) == ask(*lenient) == SYNCED
    with lone.setting("wsrep_desync", "ON", "OFF"):
        assert ask(*strict) == NOT_SYNCED
        assert ask(*lenient) == SYNCED
    with lone.setting("read_only", "ON", "OFF"):
        assert ask(*lenient) == SYNCED
        assert ask(*lenient, "/dev/null", "0") == READ_ONLY
    Path("disabled").touch()
    # A drained node says so whatever else is wrong.
    assert ask(*strict, "x", "errors") == DISABLED
    assert Path("errors").read_text().startswith("disabled: ")


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("MYSQL_PASSWORD", "wrong", "access-denied"),
        ("MYSQL_PORT", "x", "error: MYSQL_PORT"),
        ("MYSQL_HOST", "db2", "error: MYSQL_SOCKET"),
        ("AVAILABLE_WHEN_READONLY", "0;", "error: AVAILABLE_WHEN_READONLY"),
        ("CLUSTERCHECK_DISABLED_FILE", "x", "error: CLUSTERCHECK_DISABLED_FILE"),
        ("CLUSTERCHECK_DEADLINE", "inf", "error: CLUSTERCHECK_DEADLINE"),
    ],
)
def test_what_is_wrong_is_in_the_error_file(
    ask: Ask, name: str, value: str, reason: str
) -> None:
    variables = {"MYSQL_USERNAME": ACCOUNT, "ERR_FILE": "errors", name: value}
    assert ask(**variables) == NOT_SYNCED
    assert Path("errors").read_text().startswith(reason)


@pytest.mark.skipif(os.geteuid() != 0, reason="xinetd runs its services as root here")
@pytest.mark.parametrize("runner", ["xinetd", "socat"])
def test_under_xinetd_and_socat_no_health_check_is_reset(
    lone: Node, tmp_path: Path, ports: Ports, runner: str
) -> None:
    port = ports.free()
    option_file = tmp_path / "my.cnf"
    option_file.write_text(f'[client]\nuser={ACCOUNT}\npassword="{PASSWORD}"\n')
    option_file.chmod(0o600)
    variables = variables_for(lone, tmp_path)
    passed_on = " ".join(f"{name}={value}" for name, value in variables.items())
    xinetd = tmp_path / "xinetd.conf"
    xinetd.write_text(XINETD % (port, COMMAND, option_file, passed_on))
    commands = {
        "xinetd": f"xinetd -dontfork -f {xinetd} -pidfile {tmp_path}/pid",
        "socat": f"socat TCP-LISTEN:{port},bind={LOOPBACK},reuseaddr,fork"
        f" 'EXEC:{COMMAND} - 1 /dev/null 1 {option_file}'",
    }
    environ = with_system_path(os.environ) | variables
    process = Process(
        runner, shlex.split(commands[runner]), tmp_path / "log", environ=environ
    )
    try:
        wait_for(f"{runner} to listen", lambda: process.check() and listens(port))
        for request in REQUESTS * 5:
            with socket.create_connection((LOOPBACK, port), timeout=5) as connection:
                connection.sendall(request)
                # A reset would be an error.
                assert read_to_end(connection) == SYNCED[1]
    finally:
        process.stop()
