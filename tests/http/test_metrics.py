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
from app.http.guard import CONNECTIONS, ConnectionRegister
from app.http.health_checks import HealthCheckCounts
from app.http.metrics import create_registry
from app.http.sources import Sources
from app.monitor import DURATION_BOUNDS_SECONDS, Monitor
from app.node_state import NodeState, PollFailure
from app.reason import Reason
from app.switches import ManualSwitches
from app.verdict import Policy
from harness.ports import LOOPBACK
from harness.service import Service
from harness.waiting import wait_for
from tests.conftest import Services
from tests.fake_mysql import FakeMySQL, fake_mysql, galera
from tests.http.test_held import SlowNode

INSIDE, OUTSIDE = "127.0.0.1", "::1"


def beside(services: Services, server: FakeMySQL, **environ: str) -> Service:
    """Start clustercheckd beside a hand-written server."""
    return services.start(MYSQL_HOST=LOOPBACK, MYSQL_PORT=str(server.port), MYSQL_USERNAME="someone", **environ)


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
            'verdict_changes_total{reason="synced"}': 1,
            'verdict_changes_total{reason="timeout"}': 0,
            'polls_total{outcome="timeout"}': 0,
        }
        assert expected == {name: found[name] for name in expected}
        assert reasons_in(found) == ["synced"]
        assert 0 <= found["poll_age_seconds"] <= 0.35
        assert found['polls_total{outcome="read"}'] >= 1
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
        def plain(peer: object) -> None:
            peer.log_in()  # type: ignore[attr-defined]
            peer.answer_queries({"Threads_connected": "1"}, {"max_connections": "100"})  # type: ignore[attr-defined]

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
        check_with_promtool(services.start().get("/metrics").body)

    def test_scrapes_never_touch_the_database(self, services: Services) -> None:
        node = SlowNode()
        with fake_mysql(node) as server:
            service = beside(services, server, CLUSTERCHECK_POLL_INTERVAL="60")
            service.wait_for_verdict(200, "synced")
            for _ in range(20):
                scrape(service)
        assert node.polls == 1

    def test_it_is_the_text_format(self, services: Services) -> None:
        reply = services.start().get("/metrics")
        assert (reply.status, reply.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")


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

    def test_held_health_checks_are_counted(self, services: Services) -> None:
        node = SlowNode()
        with fake_mysql(node) as server, ExitStack() as exits:
            exits.callback(node.gate.set)
            service = beside(services, server, CLUSTERCHECK_DEADLINE="30")
            service.wait_for_verdict(200, "synced")
            assert scrape(service)["health_checks_held_total"] == 0
            node.gate.clear()
            wait_for_late = lambda: scrape(service)["poll_age_seconds"] > 0.4  # noqa: E731
            wait_for("the poll to be late", wait_for_late)
            with socket.create_connection((LOOPBACK, service.port), timeout=5) as held:
                held.sendall(b"GET / HTTP/1.0\r\n\r\n")
                wait_for_sample(service, "health_checks_held_total", 1)
                node.gate.set()
                assert held.recv(100).startswith(b"HTTP/1.1 200 ")

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

    def test_it_is_for_those_who_may_ask(self, services: Services) -> None:
        service = services.start(CLUSTERCHECK_HOST="*", CLUSTERCHECK_ALLOW_FROM=INSIDE)
        assert scrape(service)
        with socket.create_connection((OUTSIDE, service.port), timeout=5) as connection:
            answer = b""
            try:
                connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
                answer = connection.recv(100)
            except ConnectionError:
                pass
        assert answer == b""


class ManualClock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.seconds


class TestPolls:
    """What the monitor counts, with a clock and an poller of our own: how long each takes, how old the latest is."""

    @staticmethod
    def scraped_after(
        polls: list[tuple[float, NodeState | PollFailure]], later: float, tmp_path: Path
    ) -> dict[str, float]:
        """Run polls that take so long and end so, and scrape so much later."""
        clock = ManualClock()

        class Poller:
            async def poll(self) -> NodeState | PollFailure:
                if not polls:
                    await asyncio.Event().wait()
                seconds, outcome = polls.pop(0)
                clock.seconds += seconds
                return outcome

        async def scenario() -> str:
            switches = ManualSwitches(str(tmp_path / "disabled"))
            monitor = Monitor(Poller(), interval_seconds=0, policy=Policy(2), switches=switches, clock=clock)
            task = asyncio.create_task(monitor.run())
            while polls:  # noqa: ASYNC110 (no event says so)
                await asyncio.sleep(0)
            clock.seconds += later
            sources = Sources(monitor, ConnectionRegister(), HealthCheckCounts(), switches, 0.25, 0.8, lambda: 7)
            text = generate_latest(create_registry(sources)).decode()
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

    def test_dropped_lines_of_the_log_are_counted(self, tmp_path: Path) -> None:
        assert self.scraped_after([(0.0, NodeState())], 0, tmp_path)["log_lines_dropped_total"] == 7

    def test_a_stale_poll_is_not_told_as_if_it_still_held(self, tmp_path: Path) -> None:
        node = NodeState(wsrep_local_state=4, wsrep_cluster_size=3)
        fresh = self.scraped_after([(0.0, node)], 1.9, tmp_path)
        assert (fresh["wsrep_local_state"], fresh["wsrep_cluster_size"]) == (4, 3)
        stale = self.scraped_after([(0.0, node)], 2.1, tmp_path)
        assert reasons_in(stale) == ["stale"]
        assert stale["poll_age_seconds"] == pytest.approx(2.1)
        assert not {"wsrep_local_state", "wsrep_cluster_size"} & stale.keys()
