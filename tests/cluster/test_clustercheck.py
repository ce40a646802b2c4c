"""The drop-in beside a real node and its service: the script's bytes and exit statuses."""

import os
import shlex
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.script import script_command
from harness.galera import Node
from harness.ports import LOOPBACK, Ports, listens
from harness.process import Process, with_system_path
from harness.service import (
    Service,
    read_to_end,
    service_beside,
)
from harness.waiting import wait_for
from tests.fake_mysql import fake_mysql
from tests.http.test_process import run as run_command
from tests.http.test_requests import REQUESTS
from tests.http.test_status import answers
from tests.measured import done_within
from tests.unit.manifests import ROOT

COMMAND = str(ROOT / "packaging" / "clustercheck")
SECONDS = 20
LENGTHS = {"synced": 40, "not synced": 44, "read-only": 43, "manually disabled": 51}

# What the arguments and variables mean on a node in a state that a strict policy refuses.
STRICT = "/?available_when_readonly=0"
VARIABLES = {"desynced": "wsrep_desync", "read-only": "read_only"}
CASES = """
desynced  |                                  |                           | not synced
desynced  | user password                    |                           | not synced
desynced  | user password 1                  |                           | synced
desynced  | - 1                              |                           | synced
desynced  | user '' 01                       |                           | not synced
desynced  | user password available_when_donor=1 |                       | not synced
desynced  |                                  | AVAILABLE_WHEN_DONOR=1    | synced
desynced  | user password ''                 | AVAILABLE_WHEN_DONOR=1    | synced
desynced  | user password 0                  | AVAILABLE_WHEN_DONOR=1    | not synced
read-only |                                  |                           | synced
read-only | user password 1 /dev/null 0      |                           | read-only
read-only | - 1 /dev/null 0                  |                           | read-only
read-only | - 1 /dev/null -1                 |                           | synced
read-only | - 1 /dev/null 00                 |                           | read-only
read-only | - 1 /dev/null no                 |                           | read-only
read-only |                                  | AVAILABLE_WHEN_READONLY=0 | read-only
read-only | - 1 /dev/null 1                  | AVAILABLE_WHEN_READONLY=0 | synced
"""


def printed(words: str) -> str:
    """Return the script's answer."""
    status = "200 OK" if words == "synced" else "503 Service Unavailable"
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nConnection: close\r\n"
        f"Content-Length: {LENGTHS[words]}\r\n\r\nPercona XtraDB Cluster Node is {words}.\r\n"
    )


def run(port: int, arguments: str = "", variables: str = "") -> tuple[str, str]:
    """Run the drop-in as Zabbix does, by a shell; return the words of its answer, and its errors."""
    done = subprocess.run(
        ["sh", "-c", f"{variables} CLUSTERCHECK_PORT={port} {COMMAND} {arguments}"],
        env={},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    (words,) = (each for each in LENGTHS if printed(each).encode() == done.stdout)
    assert done.returncode == (words != "synced")
    return words, done.stderr.decode()


@pytest.fixture(scope="module")
def service(
    lone: Node, tmp_path_factory: pytest.TempPathFactory, ports: Ports
) -> Iterator[Service]:
    """Run a service with the default policy."""
    with service_beside(lone, tmp_path_factory.mktemp("service"), ports) as running:
        yield running


@pytest.mark.parametrize("state", VARIABLES)
def test_the_arguments_and_variables_mean_what_they_mean_to_the_script(
    lone: Node, service: Service, state: str
) -> None:
    service.wait_for_verdict(200, "synced", target=STRICT)
    assert run(service.port, "user password 0 log 0 /etc/my.cnf") == ("synced", "")
    with lone.setting(VARIABLES[state], "ON", "OFF"):
        service.wait_for_verdict(503, state, target=STRICT)
        for case in CASES.strip().splitlines():
            of_state, *given, words = map(str.strip, case.split("|"))
            if of_state == state:
                assert run(service.port, *given) == (words, ""), case


def test_what_is_not_set_is_as_the_service_has_it_and_a_drain_is_a_503(
    lone: Node, tmp_path: Path, ports: Ports
) -> None:
    settings = {
        "AVAILABLE_WHEN_DONOR": "1",
        "AVAILABLE_WHEN_READONLY": "0",
        "CLUSTERCHECK_DRAIN_STATUS": "404",
    }
    with service_beside(lone, tmp_path, ports, **settings) as service:
        with lone.setting("wsrep_desync", "ON", "OFF"):
            service.wait_for_verdict(200, "donor")
            assert run(service.port) == ("synced", "")
        with lone.setting("read_only", "ON", "OFF"):
            service.wait_for_verdict(503, "read-only")
            assert run(service.port) == ("read-only", "")
        service.disabled_file.touch()
        assert run(service.port) == ("manually disabled", "")


def test_it_asks_where_the_service_listens(
    lone: Node, tmp_path: Path, ports: Ports
) -> None:
    with service_beside(lone, tmp_path, ports, CLUSTERCHECK_HOST="*") as service:
        service.wait_for_verdict(200, "synced")
        for host in ("127.0.0.1", "::1", "[::1]", "'*'"):
            where = f"CLUSTERCHECK_HOST={host}"
            assert run(service.port, "", where) == ("synced", "")


def test_it_computes_no_argument(service: Service, tmp_path: Path) -> None:
    service.wait_for_verdict(200, "synced", target=STRICT)
    computed = f"'x[$(touch {tmp_path}/file)]'"
    assert run(service.port, f"- {computed} log {computed}") == ("synced", "")
    assert not Path(tmp_path, "file").exists()


def assert_no_answer(port: int) -> None:
    """Check that the drop-in refuses, and tells why in one line."""
    told = f"no clustercheckd answers at 127.0.0.1/{port}: set CLUSTERCHECK_HOST and CLUSTERCHECK_PORT as it has them"
    assert run(port) == ("not synced", f"clustercheck: {told}\n")


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "\0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\nWelcome\r\n",
        "HTTP/1.1 200 OK\r\n\r\nPercona XtraDB Cluster Node is not synced.\r\n",
        "HTTP/1.1 302 Found\r\n\r\nPercona XtraDB Cluster Node is synced.\r\n",
        "HTTP/1.1 400 Bad Request\r\n\r\nx: Percona XtraDB Cluster Node is synced.\r\n",
    ],
)
def test_an_answer_that_is_no_verdict_is_a_503(answer: str) -> None:
    with fake_mysql(answers(answer.encode(), head=b"")) as server:
        assert_no_answer(server.port)


def test_it_waits_a_second_at_most_for_a_service_that_is_absent_or_hangs(
    service: Service, ports: Ports
) -> None:
    assert_no_answer(ports.free())
    with done_within("both answers", 2.5):
        with service.process.paused():
            assert_no_answer(service.port)
        # The kernel takes one connection for a program that accepts none.
        full = socket.create_server((LOOPBACK, 0), backlog=0)
        with full, socket.create_connection(full.getsockname()):
            assert_no_answer(full.getsockname()[1])


XINETD = """service mysqlchk
{
    type = UNLISTED
    port = %s
    bind = 127.0.0.1
    socket_type = stream
    wait = no
    user = root
    server = %s
    server_args = %s
    env = CLUSTERCHECK_PORT=%s
    per_source = UNLIMITED
    cps = 1000 1
}
"""
RUNNERS = {
    "xinetd": "xinetd -dontfork -f {0}/conf -pidfile {0}/pid",
    "socat": "socat TCP-LISTEN:{1},bind=127.0.0.1,reuseaddr,fork EXEC:'{2} - 1'",
    # Only standard output is the client's connection, as in a unit with StandardOutput=socket.
    "unit": "socat TCP-LISTEN:{1},bind=127.0.0.1,reuseaddr,fork EXEC:{0}/unit,nofork",
}


@contextmanager
def under(
    runner: str,
    port: int,
    asked: int,
    directory: Path,
    program: Sequence[str] = (COMMAND, "- 1 /dev/null 1 /etc/my.cnf"),
) -> Iterator[Process]:
    """Have xinetd or socat run the drop-in on a port, to ask another; xinetd any program."""
    if os.geteuid() != 0 and runner == "xinetd":
        pytest.skip("xinetd runs its services as root here")
    (directory / "conf").write_text(XINETD % (port, *program, asked))
    unit = directory / "unit"
    unit.write_text(f"#!/bin/sh\nexec {COMMAND} - 1 </dev/null 2>>{directory}/log\n")
    unit.chmod(0o755)
    command = shlex.split(RUNNERS[runner].format(directory, port, COMMAND))
    environ = with_system_path({**os.environ, "CLUSTERCHECK_PORT": str(asked)})
    process = Process(runner, command, directory / "log", environ=environ)
    try:
        wait_for("it to listen", lambda: process.check() and listens(port))
        yield process
    finally:
        process.kill()


def ask(port: int, request: bytes) -> str:
    """Send a request, and read the answer. Raises OSError if the connection is reset."""
    with socket.create_connection((LOOPBACK, port), timeout=5) as connection:
        connection.sendall(request)
        return read_to_end(connection).decode()


@pytest.mark.parametrize("runner", RUNNERS)
def test_whatever_starts_it_no_health_check_is_reset(
    service: Service, runner: str, ports: Ports, tmp_path: Path
) -> None:
    service.wait_for_verdict(200, "synced", target=STRICT)
    with under(runner, port := ports.free(), service.port, tmp_path):
        for request in (*REQUESTS.values(), b""):
            assert ask(port, request) == printed("synced")


@pytest.mark.parametrize("runner", RUNNERS)
def test_on_the_port_that_it_asks_it_does_not_start_itself_again_and_again(
    runner: str, ports: Ports, tmp_path: Path
) -> None:
    port = ports.free()
    with under(runner, port, port, tmp_path) as process:
        # A client of xinetd would read standard error as part of the answer.
        assert ask(port, REQUESTS["keepalived"]) == printed("not synced")
        listing = (
            f"ps -o stat=,comm= -s {process.pid} | grep -v ^Z | grep -c clustercheck"
        )
        wait_for(
            "each of them to end",
            lambda: subprocess.call(["sh", "-c", listing]) == 1,
            seconds=5,
        )


def status_line(port: int, request: bytes) -> bytes:
    """Return the first line of an answer, after which the script resets the connection."""
    with socket.create_connection((LOOPBACK, port), timeout=5) as connection:
        connection.sendall(request)
        return connection.recv(65536).partition(b"\r\n")[0]


def test_a_script_that_answers_in_place_of_the_service_is_named(
    lone: Node, ports: Ports, tmp_path: Path
) -> None:
    environ = {
        "CLUSTERCHECK_HOST": LOOPBACK,
        "CLUSTERCHECK_PORT": str(port := ports.free()),
        "CLUSTERCHECK_DISABLED_FILE": str(tmp_path / "disabled"),
    }
    told = f"{LOOPBACK}:{port}: something else answers there (200 OK): the clustercheck script?"
    with under("xinetd", port, 1, tmp_path, script_command(lone, tmp_path)):
        done = run_command("status", **environ)
        assert (done.returncode, told in done.stdout) == (1, True)
        for command in ("drain", "undrain"):
            done = run_command(command, **environ)
            assert (done.returncode, f"not confirmed: {told}" in done.stderr) == (
                1,
                True,
            )


@pytest.mark.long
def test_each_form_that_the_script_answers_has_its_status_here(
    lone: Node, ports: Ports, tmp_path: Path
) -> None:
    script = ports.free()
    with (
        service_beside(lone, tmp_path, ports, CLUSTERCHECK_ANY_PATH="1") as service,
        under("xinetd", script, 1, tmp_path, script_command(lone, tmp_path)),
    ):

        def assert_alike(line: bytes) -> None:
            for name, request in {**REQUESTS, "nothing": b""}.items():
                if b"available_when_donor=1" in request:
                    continue  # a policy of its own
                lines = [status_line(port, request) for port in (script, service.port)]
                assert lines == [line, line], name

        service.wait_for_verdict(200, "synced", target=STRICT)
        assert_alike(b"HTTP/1.1 200 OK")
        with lone.setting("wsrep_desync", "ON", "OFF"):
            service.wait_for_verdict(503, "desynced")
            assert_alike(b"HTTP/1.1 503 Service Unavailable")
