"""/metrics: what is in it, what clients can do to it, and that promtool has nothing to say against
it.
"""

import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from app import __version__
from app.database.poller import Pace, Poller
from app.http.connections import ConnectionRegister
from app.http.metrics import Metrics
from app.http.reload_outcome import ReloadOutcome
from app.http.sources import HealthCheckCounts, Sources
from app.settings.database import Database
from app.settings.settings import Settings
from app.settings.source import Loaded
from app.verdict.node_state import NodeState, PollFailure
from app.verdict.reason import Reason
from harness.service import Service
from harness.waiting import wait_for
from tests.conftest import Services
from tests.fake_mysql import FakeMySQL, fake_mysql, galera
from tests.queries import metrics_on_the_page
from tests.unit.test_monitor import ScriptedPoller, hanging, running, until

Outcome = NodeState | PollFailure
GONE = PollFailure(Reason.TIMEOUT, "no answer")
GIVEN_UP = PollFailure(Reason.STALE, "did not end")
# A size that cannot be read is left out.
READ = NodeState(
    threads_connected=1, wsrep_cluster_size=-1, wsrep_flow_control_active="OFF"
)


def samples(text: str) -> dict[str, float]:
    """Parse /metrics: values by name, with the labels as they are written, and without the prefix."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(
                f'{name}="{value}"' for name, value in sample.labels.items()
            )
            name = sample.name.removeprefix("clustercheckd_")
            found[f"{name}{{{labels}}}" if labels else name] = sample.value
    return found


def scrape(service: Service) -> dict[str, float]:
    """Ask for /metrics."""
    return samples(service.get("/metrics").body)


def wait_until_in_sync(service: Service) -> None:
    """Wait until a read in sync has been answered."""
    wait_for("in sync", lambda: scrape(service).get("sync_wait_seconds") == 0)


def reasons_in(found: Mapping[str, float]) -> list[str]:
    """Name the reasons of the state set that are set."""
    return [
        reason.value
        for reason in Reason
        if found[f'reason{{reason="{reason.value}"}}'] == 1
    ]


class TestContents:
    """The verdict, the node and the polls as they are."""

    def test_a_synced_node_and_then_a_drained_one(self, services: Services) -> None:
        status = {
            "wsrep_local_recv_queue": "7",
            "wsrep_flow_control_active": "true",
            "wsrep_flow_control_status": "OFF",
        }
        with fake_mysql(galera(status)) as server:
            service = services.beside(server, CLUSTERCHECK_DEADLINE="0.5")
            wait_until_in_sync(service)
            synced = scrape(service)
            service.disabled_file.touch()
            reply = service.get("/metrics")
        expected = {
            "available": 1,
            "draining": 0,
            "wsrep_local_state": 4,
            "wsrep_cluster_size": 3,
            "wsrep_local_recv_queue": 7,
            "wsrep_flow_control_active": 1,
            "wsrep_flow_control_status": 0,
            "threads_connected": 5,
            "max_connections": 151,
            "server_uptime_seconds": 2812,
            "wsrep_ready": 1,
            "wsrep_desync": 0,
            "read_only": 0,
            f'build_info{{version="{__version__}"}}': 1,
            "deadline_seconds": 0.5,
            "login_refused": 0,
            'logins_total{outcome="access-denied"}': 0,
            'verdict_changes_total{reason="synced"}': 1,
        }
        assert expected == {name: synced[name] for name in expected}
        assert reasons_in(synced) == ["synced"]
        assert synced["verdict_changed_timestamp_seconds"] == pytest.approx(
            time.time(), abs=30
        )
        assert "disabled_timestamp_seconds" not in synced
        # The service's own process, by the names that every exporter has.
        assert synced["process_open_fds"] > 0
        drained = samples(reply.body)
        assert (drained["available"], drained["draining"], reasons_in(drained)) == (
            0,
            1,
            ["disabled"],
        )
        assert drained["disabled_timestamp_seconds"] == pytest.approx(
            service.disabled_file.stat().st_mtime
        )
        complaints = subprocess.check_output(
            ["promtool", "check", "metrics"],
            input=reply.body,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=30,
        )
        assert complaints == ""
        assert (
            reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        )
        # docs/operations.md has each of them, and says above its table of which type they are.
        named = metrics_on_the_page()
        types = {
            name: "counter" if name.endswith("_total") else "gauge" for name in named
        }
        types["poll_duration_seconds"] = "histogram"
        assert (
            dict(
                re.findall(
                    r"^# TYPE clustercheckd_(\w+) (\w+)$", reply.body, re.MULTILINE
                )
            )
            == types
        )
        assert len(named) == len(types)

    def test_a_server_that_is_down_shows_what_tells_it_from_a_refusal(
        self, unreachable: Service
    ) -> None:
        # By these, the alert ClustercheckdAccountRefused is silent: tries that go on, and nothing
        # read.
        tries = 'logins_total{outcome="unreachable"}'
        before = scrape(unreachable)
        assert "wsrep_local_state" not in before
        wait_for("another login", lambda: scrape(unreachable)[tries] > before[tries])


class TestClients:
    """What clients do is counted, and makes no series."""

    def test_health_checks_are_counted_by_path_and_status(
        self, services: Services, node: FakeMySQL
    ) -> None:
        service = services.beside(node, CLUSTERCHECK_DRAIN_STATUS="404")
        before = scrape(service)
        for target in ("/", "/", "/", "/?donor=1", "/nothing", "/livez"):
            service.get(target)
        service.send(b"OPTIONS * HTTP/1.0\r\n\r\n")
        service.disabled_file.touch()
        service.get("/readyz")
        after = scrape(service)
        counted = {
            name: after[name] - before.get(name, 0)
            for name in after
            if name.startswith("health_checks_total")
        }
        assert {name: count for name, count in counted.items() if count} == {
            'health_checks_total{path="/",status="200"}': 3,
            'health_checks_total{path="*",status="200"}': 1,
            'health_checks_total{path="/",status="400"}': 1,
            'health_checks_total{path="other",status="404"}': 1,
            'health_checks_total{path="/livez",status="200"}': 1,
            'health_checks_total{path="/readyz",status="404"}': 1,
        }

    def test_parameters_are_shown_with_their_verdicts_up_to_a_handful(
        self, services: Services
    ) -> None:
        with fake_mysql(galera(variables={"read_only": "ON"})) as server:
            service = services.beside(server)
            service.wait_for_verdict(200, "synced")
            paths = [
                "/?available_when_readonly=0",
                "/readyz?available_when_donor=1&available_when_readonly=1",
                *(f"/?max_recv_queue={limit}" for limit in range(20)),
            ]
            for path in paths:
                service.get(path)
            service.get(paths[-1])
            kept = [*paths[:11], "other"]
            told = ["/", *kept]
            wait_for("the last", lambda: list(service.status()["answered"]) == told)
            answered, found = service.status()["answered"], scrape(service)
        assert [answered[path]["reason"] for path in told] == [
            "synced",
            "read-only",
            *11 * ["synced"],
        ]
        for path, status, count in zip(
            kept, [503, *11 * [200]], [*11 * [1], 12], strict=True
        ):
            name = f'health_checks_total{{path="{path}",status="{status}"}}'
            assert found[name] == count

    def test_blanks_in_parameters_make_no_series_twice(
        self, services: Services, node: FakeMySQL
    ) -> None:
        service = services.beside(node)
        service.wait_for_verdict(200, "synced")
        blanks = ("", "\x1c", "\x85", "\xa0")
        for blank in blanks:
            path = f"/?available_when_donor={blank}1"
            service.send(f"GET {path} HTTP/1.0\r\n\r\n".encode("latin-1"))
        name = 'health_checks_total{{path="/?available_when_donor={}1",status="200"}}'
        wait_for("the last", lambda: name.format(blanks[-1]) in scrape(service))
        counted = re.findall(
            r'total\{path="/\?.*?\} (.+)', service.get("/metrics").body
        )
        assert counted == len(blanks) * ["1.0"]
        assert all(scrape(service)[name.format(blank)] == 1 for blank in blanks)

    def test_nothing_that_a_client_sends_makes_a_series(
        self, unreachable: Service
    ) -> None:
        unreachable.get("/nothing")
        other, malformed = (
            'health_checks_total{path="other",status="404"}',
            'connections_closed_total{cause="no-request"}',
        )
        # The document is made once a poll.
        wait_for("the count of it", lambda: other in scrape(unreachable))
        before = scrape(unreachable)
        for number in range(50):
            unreachable.get(
                f"/{number}?{number}={number}", method=f"METHOD{'X' * number}"
            )
            unreachable.send(
                f"GET /metrics?{number} HTTP/1.1\r\nHost: {number}\r\nX-{number}: x\r\n\r\n".encode()
            )
            unreachable.send(f"NO HTTP {number}\r\n\r\n".encode())
        least = before[malformed] + 50
        wait_for("the last of both", lambda: scrape(unreachable)[malformed] >= least)
        assert scrape(unreachable).keys() == before.keys()


@pytest.mark.anyio
class TestPolls:
    """What the monitor counts, with a clock and a poller of our own: how long each takes, how old
    the latest is.
    """

    @staticmethod
    async def scraped_after(
        polls: Sequence[tuple[float, Outcome]], later: float
    ) -> dict[str, float]:
        """Run polls that take so long and end so, and scrape so much later."""
        now = 100.0

        async def take(seconds: float, outcome: Outcome) -> Outcome:
            nonlocal now
            now += seconds
            return outcome

        steps = [partial(take, *poll) for poll in polls]
        poller = ScriptedPoller(*steps, hanging)
        async with running(
            poller, interval_seconds=0, max_age_seconds=200, clock=lambda: now
        ) as monitor:
            await until(lambda: poller.script == [hanging])
            now += later
            sources = Sources(
                Loaded(Settings(), [], {}, None),
                Poller(Database(), Pace(1)),
                monitor,
                ConnectionRegister(),
                HealthCheckCounts(),
                ReloadOutcome(datetime.now(UTC)),
            )
            return samples(generate_latest(Metrics(sources)).decode())

    async def test_durations_are_counted_by_bucket_and_outcome(self) -> None:
        node = NodeState(wsrep_local_state=4)
        found = await self.scraped_after(
            [(0.0, node), (0.3, node), (0.9, GONE), (100.0, GIVEN_UP)], 0.5
        )
        expected = {
            'polls_total{outcome="read"}': 2,
            'polls_total{outcome="timeout"}': 1,
            'polls_total{outcome="stale"}': 1,
            'poll_duration_seconds_bucket{le="0.001"}': 1,
            'poll_duration_seconds_bucket{le="0.2"}': 1,
            'poll_duration_seconds_bucket{le="0.4"}': 2,
            'poll_duration_seconds_bucket{le="1.6"}': 3,
            'poll_duration_seconds_bucket{le="+Inf"}': 4,
            "poll_duration_seconds_count": 4,
            "poll_duration_seconds_sum": pytest.approx(101.2),
        }
        assert {name: found[name] for name in expected} == expected
        assert len([name for name in found if "_bucket{" in name]) == 17

    @pytest.mark.parametrize(
        ("polls", "later", "reason", "told"),
        [
            (
                [(0.0, READ)],
                199.9,
                "not-galera",
                {"threads_connected": 1, "wsrep_flow_control_active": 0},
            ),
            ([(0.0, READ)], 200.1, "stale", {}),
            ([(0.0, READ), (0.0, GONE)], 0, "timeout", {}),
        ],
        ids=["fresh", "stale", "failed"],
    )
    async def test_only_what_was_read_is_told_and_only_until_it_is_stale(
        self,
        polls: Sequence[tuple[float, Outcome]],
        later: float,
        reason: str,
        told: dict[str, float],
    ) -> None:
        found = await self.scraped_after(polls, later)
        assert reasons_in(found) == [reason]
        of_node = ("wsrep_", "threads_", "max_")
        assert {
            name: value for name, value in found.items() if name.startswith(of_node)
        } == told
