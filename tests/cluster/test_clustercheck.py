"""The drop-in beside a real node and its service: the script's bytes and exit statuses."""

import os
import shlex
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from harness.galera import Node
from harness.ports import LOOPBACK, Ports, listens
from harness.process import Process, with_system_path
from harness.service import Service, read_to_end, service_beside
from harness.waiting import wait_for
from tests.measured import within

COMMAND = str(Path(__file__).parents[2] / "packaging" / "clustercheck")
SECONDS = 20

REQUESTS = [
    b"OPTIONS / HTTP/1.0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nUser-Agent: " + b"y" * 500 + b"\r\n\r\n",
    b"GET / HTTP/1.0\n\n",
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

STATES = {"desynced": "wsrep_desync", "read-only": "read_only"}
"""The variables that bring a node into a state, in which a strict policy refuses it."""
STRICT = "/?available_when_readonly=0"
# What the arguments and variables mean on a node in such a state.
CASES = [
    ("desynced", "", "", NOT_SYNCED),
    ("desynced", "user password", "", NOT_SYNCED),
    ("desynced", "user password 1", "", SYNCED),
    ("desynced", "- 1", "", SYNCED),
    ("desynced", "user '' 01", "", NOT_SYNCED),
    ("desynced", "user password available_when_donor=1", "", NOT_SYNCED),
    ("desynced", "", "AVAILABLE_WHEN_DONOR=1", SYNCED),
    ("desynced", "user password ''", "AVAILABLE_WHEN_DONOR=1", SYNCED),
    ("desynced", "user password 0", "AVAILABLE_WHEN_DONOR=1", NOT_SYNCED),
    ("read-only", "", "", SYNCED),
    ("read-only", "user password 1 /dev/null 0", "", READ_ONLY),
    ("read-only", "- 1 /dev/null 0", "", READ_ONLY),
    ("read-only", "- 1 /dev/null -1", "", SYNCED),
    ("read-only", "- 1 /dev/null 00", "", READ_ONLY),
    ("read-only", "", "AVAILABLE_WHEN_READONLY=0", READ_ONLY),
    ("read-only", "- 1 /dev/null 1", "AVAILABLE_WHEN_READONLY=0", SYNCED),
]


def run(port: int, arguments: str = "", variables: str = "") -> tuple[int, bytes, str]:
    """Run the drop-in as keepalived and Zabbix do: by a shell, with nothing on standard input."""
    # They wait for the end of its output.
    done = subprocess.run(
        ["sh", "-c", f"{COMMAND} {arguments}"],
        env=dict(word.split("=") for word in variables.split())
        | {"CLUSTERCHECK_PORT": str(port)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.fixture(scope="module")
def service(
    lone: Node, tmp_path_factory: pytest.TempPathFactory, ports: Ports
) -> Iterator[Service]:
    """Run a service with the default policy."""
    with service_beside(lone, tmp_path_factory.mktemp("service"), ports) as running:
        running.wait_for_verdict(200, "synced")
        yield running


@pytest.mark.parametrize("state", STATES)
def test_the_arguments_and_variables_mean_what_they_mean_to_the_script(
    lone: Node, service: Service, state: str
) -> None:
    everything = "user password 0 /dev/null 0 /etc/my.cnf more"
    service.wait_for_verdict(200, "synced", target=STRICT)
    assert run(service.port, everything) == (*SYNCED, "")
    with lone.setting(STATES[state], "ON", "OFF"):
        service.wait_for_verdict(503, state, target=STRICT)
        for of_state, arguments, variables, expected in CASES:
            if of_state == state:
                said = run(service.port, arguments, variables)
                assert said == (*expected, ""), (arguments, variables)


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
            assert run(service.port) == (*SYNCED, "")
            assert run(service.port, "- 0") == (*NOT_SYNCED, "")
        with lone.setting("read_only", "ON", "OFF"):
            service.wait_for_verdict(503, "read-only")
            assert run(service.port) == (*READ_ONLY, "")
        service.disabled_file.touch()
        assert run(service.port) == (*DISABLED, "")


@contextmanager
def program(*answers: bytes, backlog: int = 8) -> Iterator[int]:
    """Listen on a port, and answer one connection each. Without an answer, accept none."""

    def serve() -> None:
        with suppress(OSError):
            for answer in answers:
                connection, _ = listening.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(answer)

    with socket.create_server((LOOPBACK, 0), backlog=backlog) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
    thread.join()


def is_no_answer(said: tuple[int, bytes, str], port: int) -> None:
    """Check that the drop-in has refused, and told why in one line."""
    assert said[:2] == NOT_SYNCED
    assert f"no clustercheckd answers at 127.0.0.1/{port}: CLUSTERCHECK_PORT" in said[2]
    assert said[2].count("\n") == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\0\xff\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nWelcome\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nPercona XtraDB Cluster Node is not synced.\r\n",
        b"HTTP/1.1 302 Found\r\n\r\nPercona XtraDB Cluster Node is synced.\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\nx: Percona XtraDB Cluster Node is synced.\r\n",
    ],
)
def test_an_answer_that_is_no_verdict_is_a_503(answer: bytes) -> None:
    with program(answer) as port:
        is_no_answer(run(port), port)


def test_it_waits_a_second_at_most_for_a_service_that_is_absent_or_hangs(
    service: Service, ports: Ports
) -> None:
    closed = ports.free()
    is_no_answer(run(closed), closed)
    began_at = time.monotonic()
    with service.process.paused():
        is_no_answer(run(service.port), service.port)
    # The kernel answers no more connections than this.
    with program(backlog=0) as port, socket.create_connection((LOOPBACK, port)):
        is_no_answer(run(port), port)
    within("both answers", time.monotonic() - began_at, 2.5)


XINETD = """service mysqlchk
{
    type = UNLISTED
    port = %s
    bind = 127.0.0.1
    socket_type = stream
    wait = no
    user = root
    server = %s
    server_args = - 1 /dev/null 1 /etc/my.cnf
    env = CLUSTERCHECK_PORT=%s
    per_source = UNLIMITED
    cps = 1000 1
}
"""
Run = Callable[[int, int], Process]


@pytest.fixture(params=["xinetd", "socat"])
def under(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    """Return a function that has xinetd or socat run the drop-in on a port, to ask another."""
    if os.geteuid() != 0 and request.param == "xinetd":
        pytest.skip("xinetd runs its services as root here")
    started: list[Process] = []

    def start(port: int, asked: int) -> Process:
        configuration = tmp_path / "xinetd.conf"
        configuration.write_text(XINETD % (port, COMMAND, asked))
        commands = {
            "xinetd": f"xinetd -dontfork -f {configuration} -pidfile {tmp_path}/pid",
            "socat": f"socat TCP-LISTEN:{port},bind={LOOPBACK},reuseaddr,fork EXEC:'{COMMAND} - 1'",
        }
        process = Process(
            request.param,
            shlex.split(commands[request.param]),
            tmp_path / "log",
            environ=with_system_path({**os.environ, "CLUSTERCHECK_PORT": str(asked)}),
        )
        started.append(process)
        wait_for("it to listen", lambda: process.check() and listens(port))
        return process

    yield start
    for process in started:
        process.kill()


def ask(port: int, request: bytes) -> bytes:
    """Send a request, and read the answer. Raises OSError if the connection is reset."""
    with socket.create_connection((LOOPBACK, port), timeout=5) as connection:
        connection.sendall(request)
        return read_to_end(connection)


def test_under_xinetd_and_socat_no_health_check_is_reset(
    service: Service, under: Run, ports: Ports
) -> None:
    port = ports.free()
    under(port, service.port)
    for request in REQUESTS * 5:
        assert ask(port, request) == SYNCED[1]


def test_on_the_port_that_it_asks_it_starts_one_process_more_and_no_other(
    under: Run, ports: Ports
) -> None:
    port = ports.free()
    process = under(port, port)
    # xinetd's clients would read a line on standard error as part of the answer.
    assert ask(port, REQUESTS[0]) == NOT_SYNCED[1]
    list_them = ["ps", "-o", "stat=,comm=", "-s", str(process.pid)]

    def all_have_ended() -> bool:
        lines = subprocess.check_output(list_them, text=True).splitlines()
        return not [line for line in lines if line[0] != "Z" and "clustercheck" in line]

    wait_for("each of them to end", all_have_ended, seconds=5)
