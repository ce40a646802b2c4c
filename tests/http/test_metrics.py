"""/metrics: what is in it, what clients can do to it, and that promtool has nothing to say against it."""

import asyncio
import socket
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from app import __version__
from app.database.login import Database
from app.database.poller import Poller
from app.http.guard import CONNECTIONS, ConnectionRegister
from app.http.health_checks import no_health_checks
from app.http.metrics import ServiceMetrics
from app.monitor import DURATION_BOUNDS_SECONDS, Monitor
from app.node_state import NodeState, PollFailure
from app.reason import Reason
from app.settings import Settings
from app.switches import ManualSwitches
from app.verdict import Policy
from harness.service import Service
from harness.waiting import wait_for
from tests.conftest import Services
from tests.fake_mysql import Peer, error, fake_mysql, galera, greets_then
from tests.http.test_policies import beside

INSIDE, OUTSIDE = "127.0.0.1", "::1"


def samples(text: str) -> dict[str, float]:
    """Parse /metrics: values by name, with the labels as they are written, and without the prefix."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
            name = sample.name.removeprefix("clustercheckd_")
            found[f"{name}{{{labels}}}" if labels else name] = sample.value
    return found


def scrape(service: Service) -> dict[str, float]:
    """Ask for /metrics."""
    return samples(service.get("/metrics").body)


def wait_for_sample(service: Service, name: str, value: float) -> None:
    """Scrape until a sample has this value."""
    wait_for(f"{name} to be {value:g}", lambda: scrape(service).get(name) == value)


def reasons_in(found: Mapping[str, float]) -> list[str]:
    """Name the reasons of the state set that are set."""
    return [reason.value for reason in Reason if found[f'reason{{reason="{reason.value}"}}'] == 1]


def check_with_promtool(text: str) -> None:
    """Check that promtool accepts it, and finds nothing to mention."""
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


class TestContents:
    """The verdict, the node and the polls as they are."""

    def test_a_synced_node(self, services: Services) -> None:
        status = {"wsrep_local_recv_queue": "7", "wsrep_flow_control_active": "true", "wsrep_local_index": "2"}
        with fake_mysql(galera(status)) as server:
            service = beside(services, server, CLUSTERCHECK_DEADLINE="0.5")
            service.wait_for_verdict(200, "synced")
            found = scrape(service)
        expected = {
            "available": 1,
            "draining": 0,
            "wsrep_local_state": 4,
            "wsrep_cluster_size": 3,
            "wsrep_local_index": 2,
            "wsrep_local_recv_queue": 7,
            "wsrep_flow_control_active": 1,
            "threads_connected": 5,
            "max_connections": 151,
            "poll_interval_seconds": 0.25,
            "deadline_seconds": 0.5,
            "login_refused": 0,
            'logins_total{outcome="access-denied"}': 0,
            'verdict_changes_total{reason="synced"}': 1,
            'verdict_changes_total{reason="timeout"}': 0,
            'polls_total{outcome="timeout"}': 0,
        }
        assert expected == {name: found[name] for name in expected}
        assert reasons_in(found) == ["synced"]
        assert 0 <= found["poll_age_seconds"] <= 1.5
        assert found['polls_total{outcome="read"}'] >= 1
        assert found['logins_total{outcome="accepted"}'] >= 1
        assert found["process_resident_memory_bytes"] > 10 << 20
        assert [name for name in found if name.startswith("build_info") and f'version="{__version__}"' in name]

    def test_a_node_that_cannot_be_read_has_no_values_of_its_own(self, services: Services) -> None:
        with fake_mysql(galera()) as server:
            service = beside(services, server)
            service.wait_for_verdict(200, "synced")
            of_node = {"wsrep_local_state", "wsrep_cluster_size", "threads_connected", "max_connections"}
            assert of_node <= scrape(service).keys()
            changed_at = scrape(service)["verdict_changed_timestamp_seconds"]
        server.drop_connections()
        service.wait_for_verdict(503, "unreachable")
        found = scrape(service)
        assert (found["available"], found["draining"], reasons_in(found)) == (0, 0, ["unreachable"])
        assert not of_node & found.keys()
        assert found['polls_total{outcome="unreachable"}'] >= 1
        assert found['verdict_changes_total{reason="unreachable"}'] == 1
        assert found["verdict_changed_timestamp_seconds"] > changed_at

    def test_a_node_without_galera_leaves_out_what_it_does_not_have(self, services: Services) -> None:
        def plain(peer: Peer) -> None:
            peer.log_in()
            peer.answer_queries({"Threads_connected": "1"}, {"max_connections": "100"})

        with fake_mysql(plain) as server:
            service = beside(services, server)
            service.wait_for_verdict(503, "not-galera")
            found = scrape(service)
        assert not [name for name in found if name.startswith("wsrep_")]
        assert (found["threads_connected"], found["max_connections"]) == (1, 100)

    def test_a_drained_node_has_the_time_of_its_disabled_file(self, services: Services) -> None:
        with fake_mysql(galera()) as server:
            service = beside(services, server)
            service.wait_for_verdict(200, "synced")
            assert "disabled_timestamp_seconds" not in scrape(service)
            service.disabled_file.touch()
            found = scrape(service)
        assert (found["available"], found["draining"], reasons_in(found)) == (0, 1, ["disabled"])
        assert found["disabled_timestamp_seconds"] == pytest.approx(service.disabled_file.stat().st_mtime)

    def test_promtool_has_nothing_to_say(self, services: Services) -> None:
        with fake_mysql(galera({"wsrep_flow_control_active": "false"})) as server:
            service = beside(services, server)
            service.wait_for_verdict(200, "synced")
            service.disabled_file.touch()
            check_with_promtool(service.get("/metrics").body)
        reply = services.start().get("/metrics")
        check_with_promtool(reply.body)
        assert (reply.status, reply.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")

    def test_a_refused_login_is_counted_and_told_while_the_node_stays_available(self, services: Services) -> None:
        with fake_mysql(galera()) as server:
            service = beside(services, server, CLUSTERCHECK_LOGIN_INTERVAL="0.1")
            service.wait_for_verdict(200, "synced")
            server.behaviour = greets_then(error(1045, "Access denied"))
            wait_for_sample(service, "login_refused", 1)
            found = scrape(service)
            assert (found["available"], found['logins_total{outcome="access-denied"}']) == (1, 1)
            failure = service.status()["login_failure"]
            assert failure["reason"] == "access-denied"
            server.behaviour = galera()
            wait_for_sample(service, "login_refused", 0)
            assert service.status()["login_failure"] is None
        events = [line.split()[2:4] for line in service.log.read_text().splitlines()]
        assert events[2:4] == [["login", "failed"], ["login", "works"]]

    def test_scrapes_never_touch_the_database(self, services: Services) -> None:
        with fake_mysql(galera()) as server:
            service = beside(services, server, CLUSTERCHECK_POLL_INTERVAL="60")
            service.wait_for_verdict(200, "synced")
            statements = len(server.statements)
            for _ in range(20):
                scrape(service)
            assert len(server.statements) == statements


class TestClients:
    """What clients do is counted, and makes no series."""

    def test_health_checks_are_counted_by_path_and_status(self, services: Services) -> None:
        with fake_mysql(galera()) as server:
            service = beside(services, server, CLUSTERCHECK_DRAIN_STATUS="404")
            service.wait_for_verdict(200, "synced", target="/readyz")
            before = scrape(service)
            for _ in range(3):
                service.get("/")
            service.send(b"OPTIONS * HTTP/1.0\r\n\r\n")
            service.get("/?donor=1")
            service.get("/nothing")
            service.get("/livez")
            service.disabled_file.touch()
            service.get("/readyz")
            after = scrape(service)
        counted = {name: after[name] - before[name] for name in after if name.startswith("health_checks_total")}
        assert {name: count for name, count in counted.items() if count} == {
            'health_checks_total{path="/",status="200"}': 3,
            'health_checks_total{path="*",status="200"}': 1,
            'health_checks_total{path="/",status="400"}': 1,
            'health_checks_total{path="other",status="404"}': 1,
            'health_checks_total{path="/livez",status="200"}': 1,
            'health_checks_total{path="/readyz",status="404"}': 1,
        }

    def test_any_path_is_counted_by_its_verdict(self, services: Services) -> None:
        service = services.start(CLUSTERCHECK_ANY_PATH="1")
        service.get("/whatever")
        assert scrape(service)['health_checks_total{path="other",status="503"}'] == 1

    def test_nothing_that_a_client_sends_makes_a_series(self, services: Services) -> None:
        service = services.start()
        before = scrape(service).keys()
        for number in range(50):
            service.get(f"/{number}?{number}={number}", method=f"METHOD{'X' * number}")
            service.send(f"GET /metrics?{number} HTTP/1.1\r\nHost: {number}\r\nX-{number}: x\r\n\r\n".encode())
            service.send(f"NO HTTP {number}\r\n\r\n".encode())
        assert scrape(service).keys() == before

    def test_connections_that_get_no_answer_are_counted_by_cause(self, services: Services) -> None:
        service = services.start(CLUSTERCHECK_HOST="*", CLUSTERCHECK_ALLOW_FROM=INSIDE)
        with ExitStack() as exits:

            def connect(host: str, data: bytes) -> socket.socket:
                connection = exits.enter_context(socket.create_connection((host, service.port), timeout=5))
                connection.sendall(data)
                return connection

            connect(OUTSIDE, b"")
            wait_for_sample(service, 'connections_closed_total{cause="refused"}', 1)
            connect(INSIDE, b"NO HTTP\r\n\r\n")
            wait_for_sample(service, 'connections_closed_total{cause="malformed"}', 1)
            connect(INSIDE, b"GET / HTTP/1.1\r\n")
            wait_for("the connection to be counted", lambda: scrape(service)["connections"] >= 2)
            wait_for_sample(service, 'connections_closed_total{cause="timed-out"}', 1)
            for _ in range(CONNECTIONS):
                connect(INSIDE, b"")
            # The one more is the scrape itself.
            wait_for("an eviction", lambda: scrape(service)['connections_closed_total{cause="evicted"}'])


class TestPolls:
    """What the monitor counts, with a clock and a poller of our own: how long each takes, how old the latest is."""

    @staticmethod
    def scraped_after(
        polls: list[tuple[float, NodeState | PollFailure]], later: float, tmp_path: Path
    ) -> dict[str, float]:
        """Run polls that take so long and end so, and scrape so much later."""
        now = 100.0

        class OddPoller:
            async def poll(self) -> NodeState | PollFailure:
                if not polls:
                    await asyncio.Event().wait()
                nonlocal now
                seconds, outcome = polls.pop(0)
                now += seconds
                return outcome

        async def scenario() -> str:
            nonlocal now
            switches = ManualSwitches(str(tmp_path / "disabled"))
            monitor = Monitor(
                OddPoller(),
                interval_seconds=0,
                deadline_seconds=1,
                policy=Policy(200),
                switches=switches,
                clock=lambda: now,
            )
            task = asyncio.create_task(monitor.run())
            while polls:  # noqa: ASYNC110 (no event says so)
                await asyncio.sleep(0)
            now += later
            logins, register, counts = Poller(Database(), 1), ConnectionRegister(), no_health_checks()
            metrics = ServiceMetrics(
                Settings.model_validate({}), monitor, logins, register, counts, switches, lambda: 7
            )
            text = generate_latest(metrics.registry()).decode()
            task.cancel()
            return text

        return samples(asyncio.run(scenario()))

    def test_durations_are_counted_by_bucket_and_outcome(self, tmp_path: Path) -> None:
        node, gone = NodeState(wsrep_local_state=4), PollFailure(Reason.TIMEOUT, "no answer")
        found = self.scraped_after([(0.0, node), (0.3, node), (0.9, gone), (100.0, gone)], 0.5, tmp_path)
        assert found['polls_total{outcome="read"}'] == 2
        assert found['polls_total{outcome="timeout"}'] == 2
        name = "poll_duration_seconds"
        buckets = {bound: found[f'{name}_bucket{{le="{bound}"}}'] for bound in ("0.001", "0.2", "0.4", "1.6", "+Inf")}
        assert buckets == {"0.001": 1, "0.2": 1, "0.4": 2, "1.6": 3, "+Inf": 4}
        assert found[f"{name}_count"] == 4
        assert found[f"{name}_sum"] == pytest.approx(101.2)
        assert len([key for key in found if key.startswith(f"{name}_bucket")]) == len(DURATION_BOUNDS_SECONDS) + 1
        assert found["log_lines_dropped_total"] == 7

    def test_a_stale_poll_is_not_told_as_if_it_still_held(self, tmp_path: Path) -> None:
        node = NodeState(wsrep_local_state=4, wsrep_cluster_size=3)
        fresh = self.scraped_after([(0.0, node)], 199.9, tmp_path)
        assert (fresh["wsrep_local_state"], fresh["wsrep_cluster_size"]) == (4, 3)
        stale = self.scraped_after([(0.0, node)], 200.1, tmp_path)
        assert reasons_in(stale) == ["stale"]
        assert stale["poll_age_seconds"] == pytest.approx(200.1)
        assert not {"wsrep_local_state", "wsrep_cluster_size"} & stale.keys()
