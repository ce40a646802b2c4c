"""A reload, which no client sees: the process executes itself, or keeps what it has."""

import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from harness.ports import LOOPBACK, Ports
from harness.service import read_to_end
from harness.waiting import wait_for
from tests.conftest import Services, settings_for
from tests.fake_mysql import FakeMySQL, error, galera, greets_then
from tests.http.test_process import run
from tests.http.test_systemd import Manager

SECONDS = 10
HEALTH_CHECK = b"GET / HTTP/1.0\r\n\r\n"


class Reloaded:
    """A service beside a Synced node, all of whose settings but the node's are in an env file."""

    def __init__(self, services: Services, node: FakeMySQL, port: int) -> None:
        self.port = port
        self.env_file = services.directory / "settings.env"
        self.write()
        address = {"CLUSTERCHECK_HOST": "", "CLUSTERCHECK_PORT": ""}
        environ = settings_for(node, CLUSTERCHECK_ENV_FILE=str(self.env_file), **address)
        self.service = services.start_through((), environ, port=port)
        self.service.wait_until_up()
        self.service.wait_for_verdict(200, "synced")

    def write(self, *lines: str) -> None:
        """Write the env file."""
        address = (f"CLUSTERCHECK_HOST={LOOPBACK}", f"CLUSTERCHECK_PORT={self.port}")
        # At once: the next program may read it at any time.
        written = self.env_file.with_suffix(".new")
        written.write_text("\n".join([*address, *lines]))
        written.replace(self.env_file)

    def reload(self, *lines: str) -> None:
        """Write the env file, and ask for a reload."""
        self.write(*lines)
        self.service.process.send(signal.SIGHUP)

    def wait_for(self, event: str, count: int) -> str:
        """Wait until the log has an event so many times, and return the last such line."""
        log = self.service.log

        def lines() -> list[str]:
            return [line for line in log.read_text().splitlines() if f" {event} " in line]

        wait_for(event, lambda: len(lines()) >= count, seconds=SECONDS)
        return lines()[-1]

    @property
    def max_recv_queue(self) -> int | None:
        """The setting that tests change."""
        limit: int | None = self.service.status()["policy"]["max_recv_queue"]
        return limit


@pytest.fixture
def reloaded(services: Services, node: FakeMySQL, ports: Ports) -> Reloaded:
    """Start a service to reload."""
    return Reloaded(services, node, ports.free())


@contextmanager
def asked_all_the_time(port: int) -> Iterator[Counter[str]]:
    """Send health checks one after the other, from four clients.

    Give their answers, and what went wrong.
    """
    answers: Counter[str] = Counter()
    ended = threading.Event()

    def ask() -> None:
        while not ended.is_set():
            try:
                with connect(port) as connection:
                    connection.sendall(HEALTH_CHECK)
                    answers[read_to_end(connection).partition(b"\r\n")[0].decode()] += 1
            except OSError as fault:
                answers[repr(fault)] += 1

    with ThreadPoolExecutor() as clients:
        for _ in range(4):
            clients.submit(ask)
        try:
            yield answers
        finally:
            ended.set()


def connect(port: int) -> socket.socket:
    """Connect, and say nothing."""
    return socket.create_connection((LOOPBACK, port), timeout=SECONDS)


def test_a_reload_takes_the_new_settings_and_refuses_no_health_check(reloaded: Reloaded) -> None:
    with asked_all_the_time(reloaded.port) as answers:
        for count, limit in enumerate((7, 8, 9), 2):
            reloaded.reload(f"MAX_RECV_QUEUE={limit}")
            reloaded.wait_for("INFO started", count)
            assert reloaded.max_recv_queue == limit
        wait_for("many answers", lambda: answers.total() > 100, seconds=SECONDS)
    assert set(answers) == {"HTTP/1.1 200 OK"}
    # It is still the process that was started, and nothing is left open of those before.
    assert reloaded.service.process.descriptors < 20
    assert reloaded.service.stop() == 0


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("MAX_RECV_QUEUE=many", ", line 3: MAX_RECV_QUEUE: many: "),
        ("MYSQL_PASSWORD_FILE=/none", "MYSQL_PASSWORD_FILE: /none: "),
        ("CLUSTERCHECK_HOST=*", "CLUSTERCHECK_HOST and CLUSTERCHECK_PORT need: "),
        ("CLUSTERCHECK_PORT=1", "CLUSTERCHECK_HOST and CLUSTERCHECK_PORT need: "),
    ],
)
def test_settings_that_cannot_be_used_are_one_line_and_the_old_ones_go_on(
    reloaded: Reloaded, line: str, names: str
) -> None:
    with asked_all_the_time(reloaded.port) as answers:
        reloaded.reload(line)
        assert names in reloaded.wait_for("ERROR not reloaded", 1)
        before = answers.total()
        wait_for("more answers", lambda: answers.total() > before + 10, seconds=SECONDS)
    assert set(answers) == {"HTTP/1.1 200 OK"}
    # Once it is put right, the next one succeeds.
    reloaded.reload("MAX_RECV_QUEUE=5")
    reloaded.wait_for("INFO started", 2)
    assert reloaded.max_recv_queue == 5


def test_an_account_that_is_refused_does_not_cost_a_drained_node_its_session(
    reloaded: Reloaded, node: FakeMySQL
) -> None:
    node.behaviour = greets_then(error(1045))
    reloaded.service.disabled_file.touch()
    reloaded.reload("MAX_RECV_QUEUE=5")
    assert "access-denied: " in reloaded.wait_for("ERROR not reloaded", 1)
    reloaded.service.disabled_file.unlink()
    assert reloaded.service.get().status == 200
    node.behaviour = galera()
    reloaded.reload("MAX_RECV_QUEUE=5")
    reloaded.wait_for("INFO started", 2)
    assert reloaded.max_recv_queue == 5


def test_a_health_check_that_waits_for_a_poll_is_answered_before(
    reloaded: Reloaded, node: FakeMySQL
) -> None:
    # Without a result that is young enough, the answer waits for the poll, which gets none in its
    # session.
    with closing(connect(reloaded.port)) as connection:
        with reloaded.service.process.paused():
            node.hang_all()
            node.behaviour = galera()
            connection.sendall(HEALTH_CHECK)
        reloaded.reload()
        reloaded.wait_for("INFO reloading", 1)
        assert read_to_end(connection)[:12] in (b"HTTP/1.1 200", b"HTTP/1.1 503")


def test_systemd_hears_of_no_stop_and_its_watchdog_is_fed_after_a_reload(
    services: Services, node: FakeMySQL
) -> None:
    with closing(Manager(services.directory)) as manager:
        service = services.beside(node, NOTIFY_SOCKET=manager.address)
        manager.wait_for("READY", "1")
        service.process.send(signal.SIGHUP)
        manager.wait_for("READY", "1", times=len(manager.values("READY")) + 1)
        manager.wait_for("WATCHDOG", "1", times=len(manager.values("WATCHDOG")) + 2)
        assert manager.values("STOPPING") == []
        # systemd keeps the socket that it has.
        assert manager.values("FDSTORE") == ["1"]


CREDENTIAL = "MYSQL_PASSWORD_FILE=/run/credentials/clustercheckd.service/password"


def test_the_settings_can_be_checked_without_a_service(tmp_path: Path) -> None:
    env_file = tmp_path / "env"
    for line, status, output in (
        # What only the service can read, it checks itself.
        (CREDENTIAL, 0, "the settings"),
        (f"{CREDENTIAL}\nMYSQL_PASSWORD=x", 2, "clustercheckd: MYSQL_PASSWORD and "),
        ("MYSQL_PASSWORD_FILE=/none/password", 2, "clustercheckd: MYSQL_PASSWORD_FILE: /none"),
        ("MAX_RECV_QUEUE=many", 2, f"clustercheckd: {env_file}, line 1: MAX_RECV_QUEUE: many: "),
    ):
        env_file.write_text(line)
        done = run("serve", "--check-settings", "--env-file", str(env_file))
        assert done.returncode == status
        assert (done.stdout + done.stderr).startswith(output)
