"""/status, human-readable; and `clustercheckd status`, which prints it for several services side by side."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from tempfile import TemporaryDirectory

import pytest

from harness.ports import LOOPBACK
from harness.service import Service, without_settings
from harness.waiting import wait_for
from tests.conftest import Services
from tests.fake_mysql import Peer, fake_mysql, galera
from tests.http.test_policies import DONOR, beside
from tests.http.test_process import SECONDS, run

ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z")


class TestEndpoint:
    """Rounded numbers, ISO times, what is planned."""

    def test_a_synced_node(self, services: Services) -> None:
        began = datetime.now(UTC)
        with fake_mysql(galera(variables={"wsrep_node_name": "db1", "version": "10.11.6-MariaDB"})) as server:
            service = beside(services, server)
            service.wait_for_verdict(200, "synced")
            status = service.status()
        assert (status["available"], status["draining"], status["disabled_since"]) == (True, False, None)
        assert (status["node"]["wsrep_node_name"], status["node"]["version"]) == ("db1", "10.11.6-MariaDB")
        assert ISO.fullmatch(status["since"])
        assert began <= datetime.fromisoformat(status["since"]) <= datetime.now(UTC)
        assert status["since"] == status["changes"][-1]["at"]
        for number in (status["age_seconds"], status["policy"]["max_age_seconds"]):
            assert number == round(number, 3)
        assert (status["failure"], status["login_failure"]) == (None, None)
        closed = {"refused": 0, "evicted": 0, "timed-out": 0, "malformed": 0}
        assert status["connections"] == {"open": 1, "closed": closed}

    def test_a_planned_absence_is_told_at_once_and_since_when(self, services: Services) -> None:
        with fake_mysql(galera()) as server:
            service = beside(services, server, CLUSTERCHECK_POLL_INTERVAL="60")
            service.wait_for_verdict(200, "synced")
            service.disabled_file.touch()
            made_at = time.time() - 3600
            os.utime(service.disabled_file, (made_at, made_at))
            status = service.status()
            assert (status["available"], status["draining"], status["reason"]) == (False, True, "disabled")
            assert [change["reason"] for change in status["changes"]] == ["synced", "disabled"]
            assert status["since"] == status["changes"][-1]["at"]
            assert datetime.fromisoformat(status["disabled_since"]).timestamp() == pytest.approx(made_at, abs=0.001)

    def test_a_disabled_file_from_no_date_is_no_error(self, services: Services) -> None:
        # Disks clamp such a time; what is in memory keeps it.
        with TemporaryDirectory(dir="/dev/shm") as directory:
            service = services.start(CLUSTERCHECK_DISABLED_FILE=f"{directory}/disabled")
            service.disabled_file.touch()
            os.utime(service.disabled_file, (0, 253402300800))  # the year 10000
            assert (service.status()["reason"], service.status()["disabled_since"]) == ("disabled", None)

    def test_the_schema_has_dates(self, services: Services) -> None:
        schema = json.loads(services.start().get("/openapi.json").body)["components"]["schemas"]["Status"]
        assert schema["properties"]["since"]["format"] == "date-time"


def address(service: Service) -> str:
    """Give what to type for a service."""
    return f"{LOOPBACK}:{service.port}"


@contextmanager
def http_server(body: bytes) -> Iterator[str]:
    """Run something that answers whatever it is asked; give its address."""

    def behaviour(peer: Peer) -> None:
        # An unread request would make the end of the connection a reset.
        peer.connection.recv(1000)
        peer.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    with fake_mysql(behaviour) as server:
        yield f"{LOOPBACK}:{server.port}"


class TestCommand:
    """A row for each service, a line for each node without traffic; exit code 0 where at least one is available."""

    def test_a_cluster_is_a_table(self, services: Services) -> None:
        with (
            fake_mysql(galera({"wsrep_local_recv_queue": "3"}, {"wsrep_node_name": "db1"})) as synced,
            fake_mysql(galera(DONOR, {"wsrep_node_name": "db2"})) as donor,
        ):
            first, second, third = beside(services, synced), beside(services, donor), services.start()
            first.wait_for_verdict(200, "synced")
            second.wait_for_verdict(503, "donor")
            third.wait_for_verdict(503, "unreachable")
            since = [re.sub(r"\.\d+", "", service.status()["since"]) for service in (first, second, third)]
            done = run("status", address(first), address(second), address(third), f"{LOOPBACK}:1")
        assert (done.returncode, done.stderr) == (0, "")
        header, *lines = done.stdout.splitlines()
        assert header.split() == ["node", "verdict", "reason", "since", "state", "size", "recvq"]
        # Columns stand in line.
        columns = [header.index(name) for name in header.split()]
        rows = [
            [line[at:until].strip() for at, until in zip(columns, [*columns[1:], None], strict=True)]
            for line in lines[:4]
        ]
        assert rows == [
            [f"{address(first)} (db1)", "available", "synced", since[0], "Synced", "3", "3"],
            [f"{address(second)} (db2)", "draining", "donor", since[1], "Donor/Desynced", "3", "0"],
            [address(third), "NOT available", "unreachable", since[2], "-", "-", "-"],
            [f"{LOOPBACK}:1", "no answer", "-", "-", "-", "-", "-"],
        ]
        assert lines[4:] == [
            f"{address(second)}: donor: wsrep_local_state is 2 (Donor/Desynced); AVAILABLE_WHEN_DONOR=0",
            f"{address(third)}: unreachable: {third.status()['detail']}",
            f"{LOOPBACK}:1: Connection refused",
        ]

    @pytest.mark.parametrize("host", ["*", "::1"])
    def test_without_addresses_it_asks_the_service_of_its_settings(self, services: Services, host: str) -> None:
        service = services.start_unasked(CLUSTERCHECK_HOST=host)
        environ = {"CLUSTERCHECK_HOST": host, "CLUSTERCHECK_PORT": str(service.port)}

        def unreachable() -> bool:
            done = run("status", **environ)
            return done.returncode == 1 and "NOT available  unreachable" in done.stdout

        wait_for("its row", unreachable)

    def test_the_port_may_be_left_out(self, services: Services) -> None:
        service = services.start()
        done = run("status", LOOPBACK, CLUSTERCHECK_PORT=str(service.port))
        assert "NOT available  unreachable" in done.stdout

    def test_what_is_no_clustercheckd_is_a_row(self) -> None:
        bodies = (b"Percona XtraDB Cluster Node is synced.\r\n", b"[]", b'{"available": 1}', b"[" * 100_000)
        with ExitStack() as exits:
            elsewhere = [exits.enter_context(http_server(body)) for body in bodies]
            done = run("status", *elsewhere)
        assert (done.returncode, done.stderr) == (1, "")
        _, *lines = done.stdout.splitlines()
        assert [row.split() for row in lines[:4]] == [[address, "no", "answer", *"-----"] for address in elsewhere]
        assert lines[4:] == [f"{address}: something other than clustercheckd answers there" for address in elsewhere]

    def test_nothing_that_is_answered_reaches_the_terminal_as_it_is(self) -> None:
        document = {"available": False, "reason": "\x1b[2J", "detail": "\x07", "since": "\n", "node": ["\x1b"]}
        with http_server(json.dumps(document).encode()) as hostile:
            done = run("status", hostile)
        assert not set(done.stdout) & {"\x1b", "\x07"}
        assert len(done.stdout.splitlines()) == 3

    def test_what_is_answered_is_shown_in_a_bounded_size(self) -> None:
        numbers = {"wsrep_cluster_size": int("9" * 4000), "wsrep_local_recv_queue": True, "wsrep_node_name": "n" * 999}
        document = {
            "available": False,
            "reason": "r" * 9999,
            "detail": "d" * 99_999,
            "since": "s" * 999,
            "node": numbers,
        }
        with http_server(json.dumps(document).encode()) as hostile, http_server(b"[" + b" " * 900_000) as large:
            done = run("status", hostile, large)
        assert max(map(len, done.stdout.splitlines())) < 700
        assert "999" not in done.stdout
        assert f"{large}: something other than clustercheckd answers there" in done.stdout

    def test_a_service_that_answers_byte_by_byte_is_given_up(self) -> None:
        def trickle(peer: Peer) -> None:
            peer.connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n{")
            while peer.connection.send(b" "):
                time.sleep(0.1)

        with fake_mysql(trickle) as server:
            began = time.monotonic()
            done = run("status", f"{LOOPBACK}:{server.port}")
            assert time.monotonic() - began < SECONDS / 2
        assert "no answer within 2 s" in done.stdout

    def test_a_service_that_turns_this_host_away_is_a_row(self, services: Services) -> None:
        service = services.start_unasked(CLUSTERCHECK_ALLOW_FROM="10.0.0.0/8")
        wanted = f"{address(service)}: closed the connection: check CLUSTERCHECK_ALLOW_FROM there"
        wait_for("its row", lambda: wanted in run("status", address(service)).stdout)

    def test_services_that_hang_are_rows_and_wait_together(self) -> None:
        with socket.create_server((LOOPBACK, 0), backlog=64) as silent:
            target = f"{LOOPBACK}:{silent.getsockname()[1]}"
            # One after the other they would take 30 s, which is more than the command is given.
            done = run("status", *[target] * 15)
        assert done.stdout.count(f"{target}: no answer within 2 s\n") == 15

    def test_json_is_what_the_services_say(self, services: Services) -> None:
        service = services.start()
        service.wait_for_verdict(503, "unreachable")
        done = run("status", "--json", address(service), f"{LOOPBACK}:1")
        first, second = json.loads(done.stdout)
        assert done.returncode == 1
        assert (first["target"], first["fault"]) == (address(service), None)
        assert (first["status"]["reason"], first["status"]["since"]) == ("unreachable", service.status()["since"])
        assert second == {"target": f"{LOOPBACK}:1", "status": None, "fault": "Connection refused"}

    def test_watch_goes_on_until_it_is_interrupted(self, services: Services) -> None:
        service = services.start()
        service.wait_for_verdict(503, "unreachable")
        with subprocess.Popen(
            [sys.executable, "-m", "app", "status", "--watch", address(service)],
            env=without_settings(os.environ),
            stdout=subprocess.PIPE,
            text=True,
        ) as watching:
            assert watching.stdout is not None
            shown = [watching.stdout.readline() for _ in range(6)]
            service.disabled_file.touch()
            while "draining" not in watching.stdout.readline():
                assert watching.poll() is None
            watching.send_signal(signal.SIGINT)
            assert watching.wait(SECONDS) == 0
        assert [line.split()[0] for line in shown] == 2 * ["node", address(service), f"{address(service)}:"]

    def test_with_addresses_it_reads_no_env_file(self, services: Services) -> None:
        service = services.start()
        service.wait_for_verdict(503, "unreachable")
        done = run("status", address(service), CLUSTERCHECK_ENV_FILE="/no/file", AVAILABLE_WHEN_DONOR="perhaps")
        assert (done.returncode, done.stderr) == (1, "")
        assert "unreachable" in done.stdout
        # Without an address, it needs only the port.
        done = run("status", CLUSTERCHECK_PORT="1")
        assert "127.0.0.1:1: Connection refused; CLUSTERCHECK_PORT must be the port of the service" in done.stdout
        done = run("status", CLUSTERCHECK_PORT=str(service.port), AVAILABLE_WHEN_DONOR="perhaps")
        assert "unreachable" in done.stdout
