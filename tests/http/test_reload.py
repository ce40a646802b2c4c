"""A reload, which no client sees: the process executes itself with its listening socket, or keeps
what it has.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest

from harness.ports import LOOPBACK, Ports
from harness.service import Service, read_to_end, without_settings
from harness.waiting import wait_for
from tests.conftest import Services, settings_for
from tests.fake_mysql import FakeMySQL, error, galera, greets_then

SECONDS = 10
NO_FILE = "No such file or directory"


class Reloaded:
    """A service beside a Synced node, all of whose settings but the node's are in an env file."""

    def __init__(self, services: Services, node: FakeMySQL, ports: Ports) -> None:
        self.port = ports.free()
        self.env_file = services.directory / "settings.env"
        self.write()
        address = {
            "CLUSTERCHECK_HOST": "",
            "CLUSTERCHECK_PORT": "",
            "CLUSTERCHECK_ENV_FILE": str(self.env_file),
        }
        self.service = services.start_through((), {**settings_for(node), **address}, port=self.port)
        self.service.wait_until_up()
        self.service.wait_for_verdict(200, "synced")

    def write(self, *lines: str) -> None:
        """Write the env file."""
        address = (f"CLUSTERCHECK_HOST={LOOPBACK}", f"CLUSTERCHECK_PORT={self.port}")
        # At once: the next program may read it at any time.
        written = self.env_file.with_suffix(".new")
        written.write_text("".join(f"{line}\n" for line in (*address, *lines)))
        written.replace(self.env_file)

    def lines(self, event: str) -> list[str]:
        """Return the lines of the log with an event."""
        return [line for line in self.service.log.read_text().splitlines() if f" {event} " in line]

    def ask(self) -> None:
        """Ask for a reload."""
        self.service.process.send(signal.SIGHUP)

    def wait_for(self, event: str, count: int) -> None:
        """Wait until the log has an event so many times."""
        wait_for(
            f"{event}, {count} times", lambda: len(self.lines(event)) >= count, seconds=SECONDS
        )


@pytest.fixture
def reloaded(services: Services, node: FakeMySQL, ports: Ports) -> Reloaded:
    """Start a service to reload."""
    return Reloaded(services, node, ports)


@contextmanager
def asked_all_the_time(port: int) -> Iterator[Counter[str]]:
    """Send health checks one after the other, from four clients.

    Give their answers, and what went wrong.
    """
    seen: Counter[str] = Counter()
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            try:
                with socket.create_connection((LOOPBACK, port), timeout=SECONDS) as connection:
                    connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
                    answer = connection.makefile("rb").read()
            except OSError as fault:
                seen[repr(fault)] += 1
            else:
                seen[answer.partition(b"\r\n")[0].decode()] += 1

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def connect(port: int) -> socket.socket:
    """Connect, and say nothing."""
    return socket.create_connection((LOOPBACK, port), timeout=SECONDS)


def test_a_reload_takes_the_new_settings_and_refuses_no_health_check(reloaded: Reloaded) -> None:
    with asked_all_the_time(reloaded.port) as seen:
        for count, limit in enumerate((7, 8, 9), 2):
            reloaded.write(f"MAX_RECV_QUEUE={limit}")
            reloaded.ask()
            reloaded.wait_for("INFO started", count)
            assert reloaded.service.status()["policy"]["max_recv_queue"] == limit
        wait_for("many answers", lambda: seen.total() > 100, seconds=SECONDS)
    assert set(seen) == {"HTTP/1.1 200 OK"}
    # It is still the process that was started, and nothing is left open of those before.
    assert reloaded.service.process.exit_code is None
    assert reloaded.service.process.descriptors < 20
    assert reloaded.service.stop() == 0


def test_reloads_in_a_row_kill_nothing_and_the_last_settings_stay(reloaded: Reloaded) -> None:
    for limit in range(12):
        reloaded.write(f"MAX_RECV_QUEUE={limit}")
        reloaded.ask()
        # Some of these come while the next program starts.
        reloaded.service.get("/livez")
        reloaded.ask()
    wait_for(
        "the last",
        lambda: reloaded.service.status()["policy"]["max_recv_queue"] == 11,
        seconds=SECONDS,
    )
    assert reloaded.service.stop() == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("MAX_RECV_QUEUE=many", ", line 3: MAX_RECV_QUEUE: many is "),
        ("MYSQL_PASSWORD_FILE=/none", f", line 3: MYSQL_PASSWORD_FILE: /none: {NO_FILE}"),
        ("MAX_SYNC_WAIT=1\nCLUSTERCHECK_LOGIN_INTERVAL=0", ", line 3: MAX_SYNC_WAIT: with "),
        (
            "CLUSTERCHECK_HOST=*",
            "CLUSTERCHECK_HOST: a reload keeps the address; run: systemctl restart clustercheckd",
        ),
        (
            "CLUSTERCHECK_PORT=1",
            "CLUSTERCHECK_PORT: a reload keeps the address; run: systemctl restart clustercheckd",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_one_line_and_the_old_ones_go_on(
    reloaded: Reloaded, line: str, said: str
) -> None:
    with asked_all_the_time(reloaded.port) as seen:
        reloaded.write(line)
        reloaded.ask()
        reloaded.wait_for("ERROR not reloaded", 1)
        answers = seen.total()
        wait_for("more answers", lambda: seen.total() > answers + 10, seconds=SECONDS)
    assert set(seen) == {"HTTP/1.1 200 OK"}
    [only] = reloaded.lines("ERROR not reloaded")
    assert said in only
    # Once it is put right, the next one succeeds.
    reloaded.write("MAX_RECV_QUEUE=5")
    reloaded.ask()
    reloaded.wait_for("INFO started", 2)
    assert reloaded.service.status()["policy"]["max_recv_queue"] == 5


def test_an_account_that_is_refused_does_not_cost_an_available_node_its_session(
    reloaded: Reloaded, node: FakeMySQL
) -> None:
    node.behaviour = greets_then(error(1045))
    reloaded.write("MAX_RECV_QUEUE=5")
    reloaded.ask()
    reloaded.wait_for("ERROR not reloaded", 1)
    assert "would not be: access-denied: " in reloaded.lines("ERROR not reloaded")[0]
    assert reloaded.service.get().status == 200
    node.behaviour = galera()
    reloaded.ask()
    reloaded.wait_for("INFO started", 2)
    assert reloaded.service.status()["policy"]["max_recv_queue"] == 5


def test_a_health_check_that_waits_for_a_poll_is_answered_before(
    reloaded: Reloaded, node: FakeMySQL
) -> None:
    # Without a result that is young enough, the answer waits for the poll, which gets none in its
    # session.
    with ExitStack() as exits:
        with reloaded.service.process.paused():
            node.hang_all()
            node.behaviour = galera()
            waiting = [exits.enter_context(connect(reloaded.port)) for _ in range(5)]
            for connection in waiting:
                connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        reloaded.ask()
        reloaded.wait_for("INFO reloading", 1)
        assert {read_to_end(connection)[:12] for connection in waiting} <= {
            b"HTTP/1.1 200",
            b"HTTP/1.1 503",
        }


def test_what_drains_does_not_start_again(services: Services, node: FakeMySQL) -> None:
    service = services.beside(node, CLUSTERCHECK_DRAIN_SECONDS="30")
    service.process.terminate()
    service.wait_for_verdict(503, "shutting-down")
    service.process.send(signal.SIGHUP)
    service.wait_for_verdict(503, "shutting-down")
    assert service.log.read_text().count("INFO started ") == 1
    assert service.stop() == 0


def test_systemd_hears_of_no_stop_and_its_watchdog_is_fed_after_a_reload(
    services: Services, node: FakeMySQL
) -> None:
    address = str(services.directory / "notify")
    told: list[str] = []

    def has_been_told(line: str, times: int) -> bool:
        with suppress(BlockingIOError):
            while True:
                told.extend(manager.recv(4096).decode().splitlines())
        return told.count(line) >= times

    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as manager:
        manager.bind(address)
        manager.settimeout(0)
        service = services.beside(node, NOTIFY_SOCKET=address, WATCHDOG_USEC="2000000")
        wait_for("ready", lambda: has_been_told("READY=1", 1), seconds=SECONDS)
        service.process.send(signal.SIGHUP)
        wait_for("ready again", lambda: has_been_told("READY=1", 2), seconds=SECONDS)
        fed = told.count("WATCHDOG=1")
        wait_for("its food", lambda: has_been_told("WATCHDOG=1", fed + 2), seconds=SECONDS)
        assert "STOPPING=1" not in told
        # systemd keeps the socket that it has.
        assert told.count("FDSTORE=1") == 1


def test_flags_stay_flags(services: Services, node: FakeMySQL, ports: Ports) -> None:
    port = ports.free()
    command = (sys.executable, "-m", "app", "serve", "--max-recv-queue", "3", "--port", str(port))
    service = Service(services.directory, port, settings_for(node), command=command)
    try:
        service.wait_until_up()
        service.process.send(signal.SIGHUP)
        wait_for(
            "the next start",
            lambda: service.log.read_text().count("INFO started ") == 2,
            seconds=SECONDS,
        )
        assert service.status()["policy"]["max_recv_queue"] == 3
    finally:
        service.stop()


def check_settings(env_file: Path) -> subprocess.CompletedProcess[str]:
    """Run what ExecReload= runs first."""
    command = [
        sys.executable,
        "-m",
        "app",
        "serve",
        "--check-settings",
        "--env-file",
        str(env_file),
    ]
    return subprocess.run(
        command, env=without_settings(os.environ), capture_output=True, text=True, check=False
    )


def test_the_settings_can_be_checked_without_a_service(tmp_path: Path) -> None:
    env_file = tmp_path / "env"
    env_file.write_text("MYSQL_USERNAME=someone\nMYSQL_PORT=3306\n")
    done = check_settings(env_file)
    assert (done.returncode, done.stdout, done.stderr) == (0, "the settings can be used\n", "")
    env_file.write_text("MYSQL_USERNAME=someone\nMYSQL_PASSWORD_FILE=/none/password\n")
    done = check_settings(env_file)
    assert (
        done.stderr
        == f"clustercheckd: {env_file}, line 2: MYSQL_PASSWORD_FILE: /none/password: {NO_FILE}\n"
    )
    # What only the service can read, it checks itself.
    env_file.write_text("MYSQL_PASSWORD_FILE=/run/credentials/clustercheckd.service/password\n")
    assert check_settings(env_file).returncode == 0
    env_file.write_text("MYSQL_USERNAME=someone\nMAX_RECV_QUEUE=many\n")
    done = check_settings(env_file)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"clustercheckd: {env_file}, line 2: MAX_RECV_QUEUE: many is ")
