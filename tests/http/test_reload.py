"""A reload, which no client sees: a successor takes over, or the process goes on."""

import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness.ports import LOOPBACK, Ports
from harness.process import output_of
from harness.service import Service, read_to_end
from harness.waiting import meanwhile, wait_for
from tests.conftest import Services, settings_for
from tests.fake_mysql import (
    READ_IN_SYNC,
    FakeMySQL,
    Peer,
    error,
    fake_mysql,
    galera,
    packet,
    waits_for,
)
from tests.http.conftest import HEALTH_CHECK, REFUSED
from tests.http.test_commands import here
from tests.http.test_metrics import scrape
from tests.http.test_process import begin, run
from tests.http.test_status import answers
from tests.measured import DisturbedError, for_seconds

SECONDS = 10
AS_BEFORE = "its verdict was synced and is synced: wsrep_local_state is 4 (Synced)"


class Reloaded:
    """A service beside a Synced node, all of whose settings are in an env file."""

    def __init__(self, services: Services, node: FakeMySQL, port: int) -> None:
        self.port = port
        self.node = node
        self.env_file = services.directory / "settings.env"
        self.disabled_file = services.directory / "disabled"
        self.write()
        self.environ = {"CLUSTERCHECK_ENV_FILE": str(self.env_file)}
        # Variables would take precedence over the file.
        wrapper = (
            "env",
            "--unset=MYSQL_SOCKET",
            "--unset=CLUSTERCHECK_HOST",
            "--unset=CLUSTERCHECK_PORT",
            "--unset=CLUSTERCHECK_DISABLED_FILE",
        )
        self.service = services.start_through(wrapper, self.environ, port=port)
        self.service.wait_for_verdict(200, "synced")

    def write(self, *lines: str) -> None:
        """Write the env file."""
        settings = settings_for(
            self.node,
            CLUSTERCHECK_HOST=LOOPBACK,
            CLUSTERCHECK_PORT=str(self.port),
            CLUSTERCHECK_DISABLED_FILE=str(self.disabled_file),
        )
        first = [f"{name}={text}" for name, text in settings.items()]
        self.env_file.write_text("\n".join([*first, *lines]))

    def reload(self, *lines: str, **environ: str) -> tuple[int, str]:
        """Write the env file, and run `clustercheckd reload`.

        Return its exit status and output.
        """
        self.write(*lines)
        done = run("reload", **self.environ, **environ)
        return done.returncode, done.stdout + done.stderr

    def succeed(self, *lines: str) -> None:
        """Do the same, which must succeed."""
        status, output = self.reload(*lines)
        assert status == 0, output

    def take(self, *lines: str) -> None:
        """Write the env file, and have the service take it, without a process that waits."""
        self.write(*lines)
        sent_at = datetime.now(UTC)
        self.service.process.send(signal.SIGHUP)
        wait_for(
            "the reload",
            lambda: datetime.fromisoformat(self.outcome["at"]) >= sent_at,
        )

    def begin(self) -> None:
        """Reload until the successor accepts."""
        told = self.service.manager.values
        count = len(told("MAINPID"))
        self.service.process.send(signal.SIGHUP)
        wait_for("a successor", lambda: len(told("MAINPID")) > count)

    @property
    def outcome(self) -> dict[str, Any]:
        """What /status shows of the last reload."""
        outcome: dict[str, Any] = self.service.status()["last_reload"]
        return outcome

    @property
    def max_recv_queue(self) -> object:
        """The setting that tests change."""
        return self.service.status()["policy"]["max_recv_queue"]


@pytest.fixture
def ending(services: Services, node: FakeMySQL, ports: Ports) -> Reloaded:
    """Start a service to reload and to end."""
    return Reloaded(services, node, ports.free())


@pytest.fixture(scope="module")
def lasting(shared_services: Services, ports: Ports) -> Iterator[Reloaded]:
    """Start a service to reload, once for all tests that do not end it."""
    with fake_mysql(galera()) as server:
        yield Reloaded(shared_services, server, ports.free())


@pytest.fixture
def reloaded(lasting: Reloaded) -> Iterator[Reloaded]:
    """Return a service to reload, and give it its first settings again."""
    node = lasting.node
    yield lasting
    lasting.node, node.behaviour = node, galera()
    lasting.disabled_file.unlink(missing_ok=True)
    lasting.take()
    lasting.service.wait_for_verdict(200, "synced")
    assert lasting.max_recv_queue is None


@contextmanager
def no_health_check_fails(service: Service) -> Iterator[None]:
    """Send health checks one after the other, from six clients: each gets a 200.

    Two of them are connected for a while before they ask.
    """
    answers: list[bytes] = []

    def ask(_: object) -> None:
        answers.append(service.send(HEALTH_CHECK)[:15])

    def connect_and_ask_later(ending: threading.Event) -> None:
        with service.connect() as client:
            ending.wait(0.2)
            client.sendall(HEALTH_CHECK)
            answers.append(read_to_end(client)[:15])

    # Not as fast as can be: the service would have to share its CPU with the clients.
    with (
        meanwhile(ask, 0.005, threads=4),
        meanwhile(connect_and_ask_later, 0.005, threads=2),
    ):
        yield
        wait_for("an answer", lambda: answers)
    assert set(answers) == {b"HTTP/1.1 200 OK"}


def test_a_reload_takes_the_new_settings_and_refuses_no_health_check(
    ending: Reloaded,
) -> None:
    descriptors = ending.service.process.descriptors
    told = f"{LOOPBACK}:{ending.port} uses the settings as they are now"
    with no_health_check_fails(ending.service):
        for limit in (7, 8, 9):
            old = ending.service.process
            assert ending.reload(f"MAX_RECV_QUEUE={limit}") == (
                0,
                f"{told}, with {ending.env_file}; {AS_BEFORE}\n",
            )
            assert ending.max_recv_queue == limit
            wait_for("it to go", lambda: old.exit_code == 0)  # noqa: B023
    # A successor has what its predecessor had.
    wait_for(
        "the rest to be closed",
        lambda: ending.service.process.descriptors <= descriptors + 1,
    )
    assert ending.service.stop() == 0


def test_a_reload_drains_nothing(ending: Reloaded) -> None:
    drains = "CLUSTERCHECK_DRAIN_SECONDS=60"
    ending.succeed(drains)
    old = ending.service.process
    with no_health_check_fails(ending.service):
        ending.succeed(drains)
        wait_for("it to go", lambda: old.exit_code == 0, seconds=SECONDS)


def test_every_setting_takes_effect(reloaded: Reloaded, tmp_path: Path) -> None:
    service = reloaded.service
    reloaded.take("CLUSTERCHECK_ALLOW_FROM=10.0.0.0/8", "CLUSTERCHECK_ANY_PATH=1")
    # This host may always ask.
    assert service.get("/any/path").status == 200
    drained = tmp_path / "drained"
    drained.touch()
    reloaded.take(
        f"CLUSTERCHECK_DISABLED_FILE={drained}",
        "CLUSTERCHECK_DRAIN_STATUS=404",
        "CLUSTERCHECK_LOG_FORMAT=json",
    )
    service.wait_for_log('"reason": "disabled"')
    service.wait_for_log('"event": "reloaded"')
    reply = service.get("/?max_recv_queue=5")
    assert (reply.status, reply.reason) == (404, "disabled")
    assert service.get("/any/path").reason == ""
    line = service.log.read_text().splitlines()[-1]
    assert json.loads(line)["level"] == "info"
    reloaded.take("CLUSTERCHECK_LOG_LEVEL=error")
    service.wait_for_verdict(200, "synced")
    assert service.log.read_text().splitlines()[-1] == line


def test_the_paths_of_the_settings_may_have_any_byte(
    services: Services, node: FakeMySQL, tmp_path: Path
) -> None:
    env_file, options = (tmp_path / f"{name}\udcff" for name in ("settings", "options"))
    env_file.write_text("MAX_RECV_QUEUE=5\nMYSQL_USER=1\n")
    options.touch()
    environ = {
        "CLUSTERCHECK_ENV_FILE": str(env_file),
        "DEFAULTS_EXTRA_FILE": str(options),
    }
    service = services.beside(node, **environ)
    shown = f"{tmp_path}/settings\\udcff"
    where = service.status()["settings"]["MAX_RECV_QUEUE"]["source"]
    assert where == f"{shown}, line 1"
    done = run(
        "reload",
        CLUSTERCHECK_HOST=LOOPBACK,
        CLUSTERCHECK_PORT=str(service.port),
        **environ,
    )
    assert (done.returncode, f"with {shown}; {AS_BEFORE}" in done.stdout) == (0, True)


def test_another_database_is_read_before_it_takes_over(reloaded: Reloaded) -> None:
    with fake_mysql(galera({"wsrep_cluster_size": "7"})) as other:
        reloaded.node = other
        with no_health_check_fails(reloaded.service):
            reloaded.succeed()
            assert reloaded.service.status()["node"]["wsrep_cluster_size"] == 7


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("MAX_RECV_QUEUE=many", ", line 7: MAX_RECV_QUEUE: must be "),
        ("MYSQL_PASSWORD_FILE=/none", "MYSQL_PASSWORD_FILE: /none: "),
        ("CLUSTERCHECK_HOST=192.0.2.1", "cannot listen on CLUSTERCHECK_HOST=192.0.2.1"),
        ("CLUSTERCHECK_HOST=none.invalid", "CLUSTERCHECK_HOST: must be an address"),
    ],
)
def test_settings_that_cannot_be_used_are_told_and_the_old_ones_go_on(
    reloaded: Reloaded, line: str, names: str
) -> None:
    service = reloaded.service
    before = len(service.log.read_text())
    main = str(service.process.pid)
    with no_health_check_fails(service):
        # As systemd runs it: it finds the service whatever the address.
        status, output = reloaded.reload(line, MAINPID=main)
        assert status == 2
        assert output.startswith("clustercheckd: not reloaded: ")
        [complaint] = reloaded.outcome["complaints"]
    _, logged = service.log.read_text()[before:].split(" ERROR not reloaded ")
    for told in (output, complaint, logged):
        assert names in told
    assert scrape(service)["last_reload_successful"] == 0
    # Once it is put right, the next one succeeds.
    reloaded.succeed("MAX_RECV_QUEUE=5")
    assert reloaded.max_recv_queue == 5
    assert reloaded.outcome["complaints"] == []
    assert scrape(service)["last_reload_successful"] == 1


def test_settings_with_which_the_node_cannot_be_read_are_refused(
    reloaded: Reloaded,
) -> None:
    reloaded.node.behaviour = REFUSED
    # Drained too: a node that is to come back must not lose its session.
    reloaded.disabled_file.touch()
    status, output = reloaded.reload("MAX_RECV_QUEUE=5")
    assert status == 1
    assert (
        "the node can be read, and could not be with these settings: access-denied: "
        in output
    )
    reloaded.disabled_file.unlink()
    assert reloaded.service.get().status == 200
    assert reloaded.outcome["failure"]["reason"] == "access-denied"
    reloaded.node.behaviour = galera()
    reloaded.succeed("MAX_RECV_QUEUE=5")
    assert reloaded.max_recv_queue == 5


def test_a_node_that_cannot_be_read_anyway_takes_new_settings(
    unreachable: Service,
) -> None:
    done = run("reload", **here(unreachable))
    assert done.returncode == 0, done.stderr


def test_a_reload_in_a_hang_is_refused_and_one_after_it_forgets_nothing(
    reloaded: Reloaded,
) -> None:
    goes_on, refused = threading.Event(), {READ_IN_SYNC: packet(1, error(1205))}
    goes_on.set()

    reloaded.node.behaviour = galera(
        hangs_at=lambda _: not goes_on.wait(6 * SECONDS), answers=refused
    )
    reloaded.node.drop_connections()
    reloaded.service.wait_for_verdict(200, "synced")
    goes_on.clear()
    reloaded.service.wait_for_verdict(503, "timeout")
    for _ in for_seconds(3):
        assert reloaded.service.get().status == 503
    for _ in range(5):
        status, output = reloaded.reload()
        assert (status, "not reloaded: the server hangs: " in output) == (1, True)
    # Logins that were given up, and none of a successor.
    assert reloaded.node.open <= 6
    goes_on.set()
    # No read in sync shows that it is back: the successor waits for one as well.
    reloaded.service.wait_for_verdict(503, "blocked")
    reloaded.service.process.send(signal.SIGHUP)
    for _ in for_seconds(3):
        assert reloaded.service.get().status == 503


@pytest.mark.long
def test_a_server_that_begins_to_hang_keeps_six_sessions_of_both_at_most(
    ending: Reloaded,
) -> None:
    hangs, goes_on = threading.Event(), threading.Event()
    node = ending.node
    node.behaviour = galera(
        hangs_at=lambda _: hangs.is_set() and not goes_on.wait(12 * SECONDS)
    )
    ending.succeed()
    try:
        ending.service.process.send(signal.SIGHUP)
        wait_for("a successor", lambda: successors(ending.service))
        count = node.connections
        hangs.set()
        # A login has a limit of a minute once two were given up.
        for _ in for_seconds(8 * SECONDS):
            assert node.open <= 6
        assert node.connections > count
        assert ending.outcome["complaints"]
    finally:
        goes_on.set()
    ending.service.wait_for_verdict(200, "synced")
    wait_for("a reload", lambda: ending.reload()[0] == 0)


@pytest.mark.long
def test_how_long_reads_in_sync_have_waited_is_known_after_a_reload(
    ending: Reloaded,
) -> None:
    answered = threading.Event()
    answered.set()
    # Longer than a successor waits for its own read in sync.
    limit = "MAX_SYNC_WAIT=12"
    ending.node.behaviour = galera(
        hangs_at=lambda statement: (
            statement == READ_IN_SYNC and not answered.wait(4 * SECONDS)
        )
    )
    ending.succeed(limit)
    answered.clear()
    ending.service.wait_for_verdict(503, "blocked", seconds=20)
    with meanwhile(lambda _: refuses(ending.service), 0.01):
        ending.take(limit)
        for _ in for_seconds(1):
            pass
    answered.set()
    ending.service.wait_for_verdict(200, "synced")


def refuses(service: Service) -> None:
    """Check that a health check gets a 503."""
    assert service.get().status == 503


def test_a_reload_while_the_server_begins_to_hang_does_not_blame_the_settings(
    reloaded: Reloaded,
) -> None:
    reloaded.node.behaviour = Peer.hang
    with reloaded.service.process.paused():
        reloaded.node.drop_connections()
    _, output = reloaded.reload()
    assert "could not be with these settings" not in output


@pytest.mark.parametrize("delay_seconds", [0.0, 0.001, 0.003, 0.01, 0.03, 0.1])
def test_a_stop_in_the_middle_of_a_reload_drains_and_ends_with_0(
    ending: Reloaded, node: FakeMySQL, delay_seconds: float
) -> None:
    ending.succeed("CLUSTERCHECK_DRAIN_SECONDS=1")
    process = ending.service.process
    process.send(signal.SIGHUP)
    for _ in for_seconds(delay_seconds):
        pass
    process.terminate()
    ending.service.wait_for_log(" INFO draining ")
    reply = ending.service.get()
    assert (reply.status, reply.reason) == (503, "shutting-down")
    # Of two pollers, one is left.
    wait_for("the sessions of the other to end", lambda: node.open <= 3, seconds=1)
    assert process.stop() == 0
    wait_for("no session to be left", lambda: node.open == 0)


def successors(service: Service) -> list[int]:
    """Return the processes of a service beside its main one."""
    main = service.process
    shown = output_of("ps", "-o", "pid=,stat=,comm=", "-s", str(main.session))
    running = re.findall(r"^ *(\d+) [^Z]\S* +python", shown, re.MULTILINE)
    return [pid for pid in map(int, running) if pid != main.pid]


@contextmanager
def in_the_middle(ending: Reloaded, seconds: int = 30) -> Iterator[int]:
    """Begin a reload whose successor gets no answer of the node; give its process id."""
    ending.succeed("CLUSTERCHECK_LOGIN_INTERVAL=0")
    is_tried = threading.Event()

    def hang(peer: Peer) -> None:
        is_tried.set()
        peer.hang()

    with fake_mysql(hang) as silent:
        node, ending.node = ending.node, silent
        ending.write(f"CLUSTERCHECK_DEADLINE={seconds}")
        ending.service.process.send(signal.SIGHUP)
        assert is_tried.wait(SECONDS)
        (successor,) = successors(ending.service)
        ending.node = node
        yield successor


def test_a_reload_shares_no_port_with_another_service(
    ending: Reloaded, reloaded: Reloaded
) -> None:
    # For a moment, two processes had this port.
    reloaded.succeed("CLUSTERCHECK_HOST=*")
    main = str(ending.service.process.pid)
    line = f"CLUSTERCHECK_PORT={reloaded.port}"
    status, output = ending.reload(line, MAINPID=main)
    assert status == 2
    assert "already in use" in output


def test_a_reload_with_a_thousand_mistaken_names_tells_some_of_them(
    reloaded: Reloaded,
) -> None:
    reloaded.succeed(*(f"CLUSTERCHECK_NO_{number}=1" for number in range(1000)))
    warnings = reloaded.outcome["warnings"]
    assert len(warnings) == 21
    assert warnings[-1] == "and 980 more"
    # Under systemd, nobody sees what a reload prints.
    assert "settings: and 980 more" in run("status", **reloaded.environ).stdout


def test_a_successor_that_is_killed_changes_nothing(ending: Reloaded) -> None:
    with in_the_middle(ending) as successor, no_health_check_fails(ending.service):
        asked_at = datetime.now(UTC)
        os.kill(successor, signal.SIGKILL)
        wait_for("the outcome", lambda: ending.outcome["complaints"])
    assert "ended before it was ready" in ending.outcome["complaints"][0]
    # Who asked for another one meanwhile does not take it for that.
    assert datetime.fromisoformat(ending.outcome["at"]) < asked_at
    ending.succeed()


def test_a_successor_outlives_a_process_that_is_killed(ending: Reloaded) -> None:
    with in_the_middle(ending, 4) as successor:
        ending.service.process.send(signal.SIGKILL)
        reply = ending.service.wait_for_verdict(503, "timeout", seconds=90)
        assert reply.status == 503
        assert ending.service.status()["pid"] == successor
        os.kill(successor, signal.SIGTERM)
        wait_for("its end", lambda: os.waitpid(successor, os.WNOHANG)[0])


@pytest.mark.long
def test_a_successor_that_hangs_is_given_up(ending: Reloaded) -> None:
    with in_the_middle(ending) as successor:
        os.kill(successor, signal.SIGSTOP)
        wait_for("the outcome", lambda: ending.outcome["complaints"], seconds=80)
        assert "was not ready within 60 s" in ending.outcome["complaints"][0]
        wait_for("its end", lambda: not successors(ending.service))
    ending.succeed()


@pytest.mark.long
def test_a_predecessor_that_does_not_go_is_killed(ending: Reloaded) -> None:
    old = ending.service.process
    # It has two seconds to send its request.
    with ending.service.connect():
        ending.begin()
        old.send(signal.SIGSTOP)
        wait_for("its end", lambda: old.exit_code == -signal.SIGKILL, seconds=30)
    assert ending.service.get().status == 200


@pytest.mark.long
def test_the_watchdog_is_fed_while_a_predecessor_hangs(ending: Reloaded) -> None:
    old, told = ending.service.process, ending.service.manager.values
    ending.begin()
    old.send(signal.SIGSTOP)
    if datetime.fromisoformat(ending.outcome["at"]).year > 1970:
        raise DisturbedError("the old process had ended its work before it was stopped")
    fed = len(told("WATCHDOG"))
    # The unit has WatchdogSec=10, and the last time was up to a second ago.
    wait_for("the watchdog's food", lambda: len(told("WATCHDOG")) > fed, seconds=9)
    old.send(signal.SIGCONT)
    wait_for("its end", lambda: old.exit_code == 0)
    connections = ending.node.connections
    wait_for("two visits", lambda: ending.node.connections > connections + 1)


def test_a_reload_that_is_asked_for_meanwhile_follows(ending: Reloaded) -> None:
    with in_the_middle(ending) as successor:
        ending.write("MAX_RECV_QUEUE=5")
        ending.service.process.send(signal.SIGHUP)
        os.kill(successor, signal.SIGKILL)
        wait_for("the next one", lambda: ending.max_recv_queue == 5)


def test_a_server_has_six_sessions_at_most_during_reloads(
    reloaded: Reloaded,
) -> None:
    most = 0

    def count(_: object) -> None:
        nonlocal most
        most = max(most, reloaded.node.open)

    with meanwhile(count, 0.001):
        for _ in range(3):
            reloaded.take()
    assert 2 < most <= 6


def test_another_address_takes_effect_and_what_the_old_one_has_queued_is_answered(
    ending: Reloaded, ports: Ports
) -> None:
    def ask_the_old(_: object) -> None:
        try:
            assert ending.service.send(HEALTH_CHECK).startswith(b"HTTP/1.1 200 OK")
        except ConnectionRefusedError:
            pass
        except ConnectionResetError as fault:
            # Connected between its last look at the queue and the end of its socket.
            raise DisturbedError(fault) from None

    other = ports.free()
    ending.port = other
    with meanwhile(ask_the_old, 0.005, threads=4):
        status, output = ending.reload(MAINPID=str(ending.service.process.pid))
        assert (status, f":{other} uses the settings" in output) == (0, True)
    with pytest.raises(ConnectionRefusedError):
        ending.service.connect()
    ending.service.port = other
    assert ending.service.get().status == 200
    # The same port, at one address and at all.
    for host in ("*", LOOPBACK):
        main = ending.service.process
        status, output = ending.reload(
            f"CLUSTERCHECK_HOST={host}", MAINPID=str(main.pid)
        )
        assert status == 0, output
        assert ending.service.get().status == 200


def test_without_systemd_a_reload_says_that_it_takes_a_restart(
    services: Services, node: FakeMySQL
) -> None:
    service = services.beside(node, NOTIFY_SOCKET="")
    done = run("reload", **here(service))
    told = "not reloaded: only systemd follows a new process: restart clustercheckd\n"
    assert (done.returncode, told in done.stderr) == (1, True)


def test_a_process_that_is_not_clustercheckd_gets_no_signal() -> None:
    # Any user may answer while the service is down. For kill(2), some of these are many processes.
    with begin("status", "--watch", f"{LOOPBACK}:1") as looks_like_it:
        for pid in (looks_like_it.pid, 1, 0, -1, 1 << 30, 10**1000):
            document = {"available": True, "reason": "synced", "pid": pid}
            with fake_mysql(answers(json.dumps(document).encode())) as other:
                done = run("reload", CLUSTERCHECK_PORT=str(other.port))
            assert done.returncode == 1
            assert "clustercheckd: not reloaded: " in done.stderr
        assert looks_like_it.poll() is None
        looks_like_it.kill()


def test_the_outcome_is_of_a_reload_that_began_after_the_signal(
    reloaded: Reloaded,
) -> None:
    may_refuse, may_answer = threading.Event(), threading.Event()

    def passes_on(peer: Peer) -> None:
        request = peer.connection.recv(1000)
        with reloaded.service.connect() as connection:
            connection.sendall(request)
            peer.connection.sendall(read_to_end(connection))

    with (
        fake_mysql(waits_for(may_refuse, REFUSED)) as first,
        fake_mysql(waits_for(may_answer, galera())) as second,
        fake_mysql(passes_on, ("127.0.0.2", reloaded.port)) as between,
        ThreadPoolExecutor() as commands,
    ):
        reloaded.node = first
        reloaded.write("CLUSTERCHECK_DEADLINE=9")
        reloaded.service.process.send(signal.SIGHUP)
        wait_for("the first reload", lambda: first.connections)
        reloaded.node = second
        reloaded.write("CLUSTERCHECK_DEADLINE=9")
        environ = reloaded.environ | {"CLUSTERCHECK_HOST": "127.0.0.2"}
        outcome = commands.submit(run, "reload", **environ)
        # The first question is before the signal.
        wait_for("the command to wait", lambda: between.connections > 2)
        may_refuse.set()
        wait_for("the second reload", lambda: second.connections)
        asked = between.connections
        wait_for("more questions", lambda: between.connections > asked + 2)
        may_answer.set()
        assert outcome.result().returncode == 0, outcome.result().stderr


def test_a_node_that_the_new_settings_take_out_stops_a_rollout(
    reloaded: Reloaded,
) -> None:
    too_small = "cluster-too-small: wsrep_cluster_size is 3; MIN_CLUSTER"
    # A drained node, too: it is to come back.
    for told in (
        "the node was available and is not any more: ",
        f"without the drain, the node would not be available: {too_small}",
    ):
        status, output = reloaded.reload("MIN_CLUSTER_SIZE=4")
        assert (status, told in output) == (1, True), output
        assert "reload no other node\n" in output
        # The second time, it takes nothing out.
        reloaded.succeed("MIN_CLUSTER_SIZE=5")
        reloaded.succeed()
        reloaded.disabled_file.touch()


def test_a_reload_that_moves_the_disabled_file_stops_a_rollout(
    reloaded: Reloaded, tmp_path: Path
) -> None:
    other, first = tmp_path / "other", reloaded.disabled_file
    try:
        other.touch()
        reloaded.disabled_file = other
        status, output = reloaded.reload()
        assert (status, "its verdict was synced and is disabled: " in output) == (
            1,
            True,
        )
        assert "was available and is not any more: reload no other node\n" in output
        reloaded.disabled_file = first
        status, output = reloaded.reload()
        assert (status, "its verdict was disabled and is synced: " in output) == (
            1,
            True,
        )
        assert "was drained and is not any more: reload no other node\n" in output
    finally:
        reloaded.disabled_file = first


def test_a_reload_tells_what_does_not_count(reloaded: Reloaded) -> None:
    status, output = reloaded.reload("MAX_RECV_QUEU=1", "MAX_STALL=3", "MAX_STALL=2")
    file = reloaded.env_file
    assert status == 0
    for line in (
        f"{file}, line 8: MAX_STALL does not count: a later line sets it\n",
        f"{file}, line 7: MAX_RECV_QUEU is not a setting; did you mean MAX_RECV_QUEUE?\n",
    ):
        assert f"clustercheckd: {line}" in output
    settings = reloaded.service.status()["settings"]
    assert settings["MAX_STALL"] == {"value": "2", "source": f"{file}, line 9"}
    # As an upgrade from a unit that named another file would find it.
    reloaded.env_file.unlink()
    done = run("reload", MAINPID=str(reloaded.service.process.pid))
    assert (done.returncode, f"env file {file}: " in done.stderr) == (2, True)


def test_a_unit_reloads_its_own_process_only(reloaded: Reloaded) -> None:
    # systemd sets it for ExecReload=. The settings may be those of another unit.
    for main in ("2", "abc"):
        done = run("reload", MAINPID=main, **reloaded.environ)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert "does not listen there, as far as this user sees: " in done.stderr
    reloaded.write("MAX_RECV_QUEUE=many")
    mine = str(reloaded.service.process.pid)
    done = run("reload", MAINPID=mine, **reloaded.environ)
    assert done.returncode == 2, done.stderr
