"""The alerts, by promtool; and that the page about them and the metrics has all there are, and nothing that is gone."""

import asyncio
import dataclasses
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest

from app.database.login import Database
from app.database.poller import Poller
from app.http.guard import ConnectionRegister
from app.http.health_checks import no_health_checks
from app.http.metrics import ServiceMetrics
from app.monitor import Monitor
from app.node_state import NodeState, PollFailure
from app.settings import Settings
from app.switches import ManualSwitches
from app.verdict import Policy
from tests.queries import of_the_dashboard, on_the_page, rows

ROOT = Path(__file__).parents[2]
CONTRIB = ROOT / "contrib" / "prometheus"
ALERTS = [rule for group in yaml.safe_load((CONTRIB / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
TESTS = yaml.safe_load((CONTRIB / "alerts_test.yml").read_text())["tests"]
SUFFIXES = re.compile(r"_(bucket|sum|count)$")
PROMTOOL_SECONDS = 60


class KnowsEverything:
    """Reads a node that has every variable."""

    async def poll(self) -> NodeState | PollFailure:
        known = {field.name: 1 for field in dataclasses.fields(NodeState) if "int" in str(field.type)}
        return NodeState(**known, wsrep_flow_control_active="true")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Give the type of every metric there is, by name without the prefix, where everything about a node is known."""
    disabled_file = tmp_path_factory.mktemp("metrics") / "disabled"
    disabled_file.touch()
    switches = ManualSwitches(str(disabled_file))

    async def exposition() -> str:
        monitor = Monitor(
            KnowsEverything(), interval_seconds=1, deadline_seconds=1, policy=Policy(60), switches=switches
        )
        running = asyncio.create_task(monitor.run())
        while monitor.result is None:  # noqa: ASYNC110 (no event says so)
            await asyncio.sleep(0)
        logins, register, counts = Poller(Database(), 1), ConnectionRegister(), no_health_checks()
        metrics = ServiceMetrics(Settings.model_validate({}), monitor, logins, register, counts, switches, lambda: 0)
        exposed = generate_latest(metrics.registry()).decode()
        running.cancel()
        await asyncio.wait([running])
        return exposed

    return dict(re.findall(r"^# TYPE clustercheckd_(\w+) (\w+)$", asyncio.run(exposition()), re.MULTILINE))


def promtool(*arguments: str) -> str:
    """Run promtool, which must succeed; give what it said."""
    done = subprocess.run(
        ["promtool", *arguments], cwd=CONTRIB, capture_output=True, text=True, timeout=PROMTOOL_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_configuration_and_the_alerts() -> None:
    assert "1 rule files found" in promtool("check", "config", "prometheus.yml")
    assert f"{len(ALERTS)} rules found" in promtool("check", "rules", "alerts.yml")


def test_each_alert_is_raised_when_it_should_be_and_not_otherwise() -> None:
    assert "SUCCESS" in promtool("test", "rules", "alerts_test.yml")
    tested = {(check["alertname"], bool(check["exp_alerts"])) for test in TESTS for check in test["alert_rule_test"]}
    assert tested == {(rule["alert"], raised) for rule in ALERTS for raised in (True, False)}


def test_each_alert_has_a_summary_and_what_to_type_first() -> None:
    for rule in ALERTS:
        assert rule["annotations"].keys() == {"summary", "command"}
        assert all(rule["annotations"].values())


def test_the_page_has_every_metric_with_its_type(metrics: dict[str, str]) -> None:
    named = [name for cell, _ in rows("Metrics") for name in re.findall(r"`(\w+)`", cell)]
    assert len(named) == len(set(named))
    # As the page says above its table.
    histograms = {"poll_duration_seconds": "histogram"}
    assert {name: histograms.get(name, "counter" if name.endswith("_total") else "gauge") for name in named} == metrics


def test_the_page_has_every_alert_with_its_severity() -> None:
    severities = {rule["alert"]: rule["labels"]["severity"] for rule in ALERTS}
    assert {name.strip("`"): severity for name, severity, _ in rows("Alerts")} == severities


def test_alerts_and_queries_ask_for_metrics_that_exist(metrics: dict[str, str]) -> None:
    for text in (str(ALERTS), str(on_the_page()), str(of_the_dashboard())):
        asked = set(re.findall(r"\bclustercheckd_(\w+)", text))
        assert asked
        assert {SUFFIXES.sub("", name) for name in asked} <= metrics.keys()


def test_promtool_accepts_the_queries(tmp_path: Path) -> None:
    queries = [*on_the_page().values(), *of_the_dashboard().values()]
    rules = [f"      - record: query_{number}\n        expr: '{query}'\n" for number, query in enumerate(queries)]
    path = tmp_path / "queries.yml"
    path.write_text("groups:\n  - name: queries\n    rules:\n" + "".join(rules))
    assert f"{len(queries)} rules found" in promtool("check", "rules", str(path))
