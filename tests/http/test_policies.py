"""Policies and the listener's settings, beside a hand-written server: PXC cannot be had here."""

import socket
import struct
import time

import pytest

from harness.ports import LOOPBACK
from harness.service import Service
from harness.waiting import wait_for
from tests.conftest import Services
from tests.fake_mysql import FakeMySQL, fake_mysql, galera

DONOR = {"wsrep_local_state": "2", "wsrep_local_state_comment": "Donor/Desynced"}


def beside(services: Services, server: FakeMySQL, **environ: str) -> Service:
    """Start clustercheckd beside a hand-written server."""
    return services.start(MYSQL_HOST=LOOPBACK, MYSQL_PORT=str(server.port), MYSQL_USERNAME="someone", **environ)


def test_variables_that_only_other_servers_have(services: Services) -> None:
    with fake_mysql(galera()) as server:
        service = beside(services, server)
        for variables, target, reason in (
            ({"pxc_maint_mode": "MAINTENANCE"}, "/", "maintenance"),
            ({"offline_mode": "ON"}, "/", "offline"),
            ({"read_only": "OFF", "super_read_only": "ON"}, "/?available_when_readonly=0", "read-only"),
        ):
            server.behaviour = galera(variables=variables)
            server.drop_connections()
            service.wait_for_verdict(503, reason, target=target)


def test_overrides_per_request(services: Services) -> None:
    status = {**DONOR, "wsrep_local_recv_queue": "50", "Threads_connected": "151"}
    with fake_mysql(galera(status, {"read_only": "ON"})) as server:
        service = beside(services, server)
        service.wait_for_verdict(503, "donor")
        for query, expected in {
            "available_when_donor=1": (200, "donor"),
            "available_when_donor=1&max_recv_queue=50": (200, "donor"),
            "available_when_donor=1&max_recv_queue=49": (503, "lagging"),
            "available_when_donor=1&available_when_readonly=0": (503, "read-only"),
            "available_when_donor=1&available_when_full=0": (503, "full"),
            "available_when_donor=0": (503, "donor"),
        }.items():
            for target in ("/", "/readyz"):
                reply = service.get(f"{target}?{query}")
                assert expected == (reply.status, reply.reason), query


def test_any_path_gets_the_verdict_where_it_is_asked_for(services: Services) -> None:
    service = services.start(CLUSTERCHECK_ANY_PATH="1")
    for path in ("/nothing", "/check?whatever=1", "/readyz/"):
        assert (service.get(path).status, service.get(path).reason) == (503, "unreachable")
    assert [service.get(path).status for path in ("/livez", "/status", "/metrics", "/?x=1")] == [200, 200, 200, 400]


class TestDisabledFile:
    """The node is taken out by hand, whatever the database does."""

    def test_it_takes_effect_at_the_next_health_check_with_the_database_up_and_down(self, services: Services) -> None:
        with fake_mysql(galera()) as server:
            service = beside(services, server)
            service.wait_for_verdict(200, "synced")
            service.disabled_file.touch()
            assert (service.get().status, service.get().reason) == (503, "disabled")
            service.disabled_file.unlink()
            assert service.get().reason == "synced"
        server.drop_connections()
        service.wait_for_verdict(503, "unreachable")
        service.disabled_file.touch()
        first, second = service.get().body.splitlines()
        assert first == "Percona XtraDB Cluster Node is manually disabled."
        assert second.startswith(f"disabled: {service.disabled_file} exists, made by ")

    def test_its_status_can_be_404(self, services: Services) -> None:
        with fake_mysql(galera()) as server:
            service = beside(services, server, CLUSTERCHECK_DRAIN_STATUS="404")
            service.wait_for_verdict(200, "synced")
            service.disabled_file.touch()
            assert (service.get().status, service.get().reason) == (404, "disabled")
            service.disabled_file.unlink()
            # What is not planned stays a 503.
            server.behaviour = galera({"wsrep_ready": "OFF"})
            server.drop_connections()
            service.wait_for_verdict(503, "not-ready")


class TestShutdown:
    """SIGTERM answers shutting-down for CLUSTERCHECK_DRAIN_SECONDS, then ends with 0."""

    def test_it_answers_shutting_down_and_then_ends(self, services: Services) -> None:
        with fake_mysql(galera()) as server:
            service = beside(services, server, CLUSTERCHECK_DRAIN_SECONDS="1", CLUSTERCHECK_DRAIN_STATUS="404")
            service.wait_for_verdict(200, "synced")
            began = time.monotonic()
            service.process.terminate()
            service.wait_for_verdict(404, "shutting-down")
            assert wait_for("its end", lambda: service.process.exit_code is not None)
            assert time.monotonic() - began >= 1
            assert service.process.exit_code == 0

    def test_without_a_time_to_drain_no_answer_says_shutting_down(self, services: Services) -> None:
        with fake_mysql(galera()) as server:
            service = beside(services, server)
            service.wait_for_verdict(200, "synced")
            service.process.terminate()
            while service.process.exit_code is None:
                try:
                    assert service.get().reason == "synced"
                except OSError:
                    break


class TestAllowFrom:
    """Peers outside the networks are hung up on, counted, and logged with restraint."""

    @pytest.mark.parametrize(
        ("networks", "let_in"),
        [
            ("127.0.0.0/8", ["127.0.0.1"]),
            ("10.0.0.0/8, ::1", ["::1"]),
            ("::ffff:127.0.0.0/104,::ffff:10.0.0.0/104", ["127.0.0.1"]),
        ],
    )
    def test_networks(self, services: Services, networks: str, let_in: list[str]) -> None:
        # Both families on one socket, where IPv4 peers have addresses that look like IPv6.
        service = services.start_unasked(CLUSTERCHECK_HOST="*", CLUSTERCHECK_ALLOW_FROM=networks)
        wait_for("it to listen", lambda: "INFO started " in service.log.read_text())

        def answers(host: str) -> bool:
            with socket.create_connection((host, service.port), timeout=5) as connection:
                try:
                    connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
                    return connection.recv(100).startswith(b"HTTP/1.1 503 ")
                except ConnectionError:
                    return False

        assert [host for host in ("127.0.0.1", "::1") if answers(host)] == let_in

    def test_refusals_are_counted_and_told_once(self, services: Services) -> None:
        service = services.start(CLUSTERCHECK_HOST="*", CLUSTERCHECK_ALLOW_FROM="127.0.0.1")
        for _ in range(20):
            with socket.create_connection(("::1", service.port), timeout=5) as connection:
                # Hung up on without a byte: an end or a reset.
                connection.settimeout(5)
                try:
                    assert connection.recv(1) == b""
                except ConnectionResetError:
                    continue
        assert service.status()["connections"]["closed"]["refused"] == 20
        told = [line for line in service.log.read_text().splitlines() if "CLUSTERCHECK_ALLOW_FROM" in line]
        assert len(told) == 1
        assert "WARNING client refused client=::1 count=1 " in told[0]


def test_health_checks_that_reset_as_haproxy_does_are_no_error(services: Services) -> None:
    service = services.start()
    for _ in range(50):
        with socket.create_connection((LOOPBACK, service.port), timeout=5) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(b"OPTIONS / HTTP/1.0\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 503"
    assert service.get().status == 503
    assert "rror" not in service.log.read_text()
