"""The drop-in, on real nodes and under the programs that run the script: the same bytes, the same
exit codes.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from harness.galera import ACCOUNT, PASSWORD, Node
from harness.ports import LOOPBACK, Ports, listens
from harness.process import Process, with_system_path
from harness.service import read_to_end, without_settings
from harness.waiting import wait_for

COMMAND = str(Path(sys.executable).parent / "clustercheck")
SECONDS = 20


def printed(status: str, length: int, body: str) -> bytes:
    """Give the script's answer."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: {length}\r\n"
    return f"{head}\r\n{body}\r\n".encode()


SYNCED = printed("200 OK", 40, "Percona XtraDB Cluster Node is synced.")
NOT_SYNCED = printed("503 Service Unavailable", 44, "Percona XtraDB Cluster Node is not synced.")
READ_ONLY = printed("503 Service Unavailable", 43, "Percona XtraDB Cluster Node is read-only.")
DISABLED = printed(
    "503 Service Unavailable", 51, "Percona XtraDB Cluster Node is manually disabled."
)


def variables(node: Node, directory: Path) -> dict[str, str]:
    """Give an environment that leads to a node."""
    return {
        **with_system_path(without_settings(os.environ)),
        "MYSQL_SOCKET": str(node.socket),
        "CLUSTERCHECK_DISABLED_FILE": str(directory / "disabled"),
        # Not what is tested here but once: a busy machine must not decide.
        "CLUSTERCHECK_DEADLINE": "5",
    }


def clustercheck(
    environ: Mapping[str, str], *arguments: str, command: Sequence[str] = (COMMAND,)
) -> tuple[int, bytes]:
    """Run the command; give exit code and output."""
    done = subprocess.run(
        [*command, *arguments], env=environ, capture_output=True, timeout=SECONDS, check=False
    )
    assert done.stderr == b""
    return done.returncode, done.stdout


def option_file(directory: Path) -> str:
    """Write a file with the account; give its path."""
    path = directory / "my.cnf"
    path.write_text(f'[client]\nuser={ACCOUNT}\npassword="{PASSWORD}"\n')
    path.chmod(0o600)
    return str(path)


def test_its_bytes_for_every_state_of_a_real_node(lone: Node, tmp_path: Path) -> None:
    environ = variables(lone, tmp_path)
    strict, lenient = (ACCOUNT, PASSWORD), (ACCOUNT, PASSWORD, "1")
    assert clustercheck(environ, *strict) == clustercheck(environ, *lenient) == (0, SYNCED)
    with lone.setting("wsrep_desync", "ON", "OFF"):
        assert clustercheck(environ, *strict) == (1, NOT_SYNCED)
        assert clustercheck(environ, *lenient) == (0, SYNCED)
    with lone.setting("read_only", "ON", "OFF"):
        assert clustercheck(environ, *lenient) == (0, SYNCED)
        assert clustercheck(environ, *lenient, "/dev/null", "0") == (1, READ_ONLY)
    (tmp_path / "disabled").touch()
    errors = tmp_path / "errors"
    assert clustercheck(environ, *strict, "0", str(errors)) == (1, DISABLED)
    assert f"disabled: {tmp_path}/disabled exists, made at " in errors.read_text()


def test_what_is_wrong_is_in_the_error_file(lone: Node, tmp_path: Path) -> None:
    errors = tmp_path / "errors"
    environ = {**variables(lone, tmp_path), "ERR_FILE": str(errors), "MYSQL_USERNAME": ACCOUNT}
    for variable, value, said in (
        (
            "MYSQL_PASSWORD",
            "wrong",
            "access-denied: the server refused user clustercheck (error 1045)",
        ),
        (
            "MYSQL_PORT",
            "x",
            "error: MYSQL_PORT is not a port: set it to a number from 1 to 65535\n",
        ),
        (
            "MYSQL_HOST",
            "db2",
            f"error: MYSQL_SOCKET={environ['MYSQL_SOCKET']} and MYSQL_HOST=db2 name two servers",
        ),
        ("AVAILABLE_WHEN_READONLY", "0;", "error: AVAILABLE_WHEN_READONLY=0;: must be 0 or 1\n"),
        (
            "CLUSTERCHECK_DISABLED_FILE",
            "x",
            "error: CLUSTERCHECK_DISABLED_FILE must be an absolute path\n",
        ),
        (
            "CLUSTERCHECK_DEADLINE",
            "inf",
            "error: CLUSTERCHECK_DEADLINE: 'inf' is not a duration; examples: ",
        ),
    ):
        assert clustercheck({**environ, variable: value}) == (1, NOT_SYNCED)
        assert errors.read_text().startswith(said)
    # Emptied once all is well, as by the script.
    assert clustercheck({**environ, "CLUSTERCHECK_DEADLINE": "5000ms"}, ACCOUNT, PASSWORD) == (
        0,
        SYNCED,
    )
    assert errors.read_text() == ""
    # That it cannot be written changes no answer.
    os.mkfifo(tmp_path / "fifo")
    for path in (str(tmp_path / "fifo"), "/no/such/directory/file"):
        assert clustercheck(environ, ACCOUNT, PASSWORD, "0", path) == (0, SYNCED)


def test_the_account_comes_from_variables_and_from_the_defaults_file(
    lone: Node, tmp_path: Path
) -> None:
    environ = variables(lone, tmp_path)
    account = {"MYSQL_USERNAME": ACCOUNT, "MYSQL_PASSWORD": PASSWORD}
    assert clustercheck({**environ, **account}) == (0, SYNCED)
    # Positional arguments go before variables.
    assert clustercheck({**environ, **account}, ACCOUNT, "wrong") == (1, NOT_SYNCED)
    assert clustercheck(environ, "", "", "0", "", "1", option_file(tmp_path)) == (0, SYNCED)


def test_its_configuration_files_are_read_and_never_run(lone: Node, tmp_path: Path) -> None:
    marker, errors, file = tmp_path / "marker", tmp_path / "errors", tmp_path / "clustercheck"
    file.write_text(
        f"# comment\ntouch {marker}\nexport MYSQL_USERNAME={ACCOUNT} # comment\nMYSQL_PASSWORD='{PASSWORD}'\n"
        f"AVAILABLE_WHEN_READONLY=1; ERR_FILE={errors}#x # more\nDEFAULTS_EXTRA_FILE=$(touch {marker})\n"
    )
    errors = tmp_path / "errors#x"
    program = (
        f"import sys; from app.script.clustercheck import main; sys.exit(main([], ['{file}']))"
    )
    assert clustercheck(variables(lone, tmp_path), command=(sys.executable, "-c", program)) == (
        0,
        SYNCED,
    )
    assert not marker.exists()
    assert f"{file}, line 6: DEFAULTS_EXTRA_FILE is used as written" in errors.read_text()


def test_help_names_the_arguments() -> None:
    for flag in ("-h", "--help"):
        code, output = clustercheck(os.environ, flag)
        assert (code, b"<user> <pass> <available_when_donor=0|1> <log_file>" in output) == (0, True)


def check(port: int, request: bytes) -> bytes:
    """Ask as a load balancer does; a reset is an error."""
    with socket.create_connection((LOOPBACK, port), timeout=5) as connection:
        connection.sendall(request)
        return read_to_end(connection)


REQUESTS = [
    b"OPTIONS / HTTP/1.0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nUser-Agent: " + b"y" * 500 + b"\r\n\r\n",
    b"",
]


_PASSED_ON = ("MYSQL_SOCKET", "CLUSTERCHECK_DISABLED_FILE", "CLUSTERCHECK_DEADLINE")


def xinetd(directory: Path, port: int, environ: Mapping[str, str]) -> Process:
    """Start an xinetd of our own."""
    configuration = directory / "xinetd.conf"
    passed = " ".join(f"{name}={environ[name]}" for name in _PASSED_ON)
    configuration.write_text(
        f"service mysqlchk\n{{\n type = UNLISTED\n port = {port}\n bind = {LOOPBACK}\n socket_type = stream\n"
        f" protocol = tcp\n wait = no\n user = root\n server = {COMMAND}\n env = {passed}\n"
        f" server_args = - 1 /dev/null 1 {option_file(directory)}\n per_source = UNLIMITED\n cps = 1000 1\n}}\n"
    )
    command = [
        "xinetd",
        "-dontfork",
        "-f",
        str(configuration),
        "-pidfile",
        str(directory / "xinetd.pid"),
    ]
    return Process("xinetd", command, directory / "xinetd.log", environ=environ)


def socat(directory: Path, port: int, environ: Mapping[str, str]) -> Process:
    """Start a socat that runs the command for each connection."""
    listen = f"TCP-LISTEN:{port},bind={LOOPBACK},reuseaddr,fork"
    program = f"EXEC:{COMMAND} - 1 /dev/null 1 {option_file(directory)}"
    return Process("socat", ["socat", listen, program], directory / "socat.log", environ=environ)


Runner = Callable[[Path, int, Mapping[str, str]], Process]


@pytest.mark.skipif(os.geteuid() != 0, reason="xinetd runs its services as root here")
@pytest.mark.parametrize("runner", [xinetd, socat])
def test_under_xinetd_and_socat_no_health_check_is_reset(
    lone: Node, tmp_path: Path, ports: Ports, runner: Runner
) -> None:
    port = ports.free()
    environ = variables(lone, tmp_path)
    process = runner(tmp_path, port, environ)
    try:
        wait_for(f"{runner.__name__} to listen", lambda: process.check() and listens(port))
        for request in REQUESTS * 5:
            assert check(port, request) == SYNCED
    finally:
        process.stop()
