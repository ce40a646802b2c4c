"""The alerts and the dashboard, by promtool.

Its metrics: tests/http/test_metrics.py.
"""

import re

import yaml

from harness.process import output_of
from tests.queries import metrics_on_the_page, of_the_dashboard
from tests.unit.manifests import ROOT

CONTRIB = ROOT / "contrib" / "prometheus"
RULES = [
    rule
    for group in yaml.safe_load((CONTRIB / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
ALERTS = [rule for rule in RULES if "alert" in rule]
TEST_FILES = ("alerts_test.yml", "alerts_long_test.yml", "alerts_recorded_test.yml")
TESTS = [
    test
    for name in TEST_FILES
    for test in yaml.safe_load((CONTRIB / name).read_text())["tests"]
]
SUFFIXES = re.compile(r"_(bucket|sum|count)$")


def promtool(*arguments: str) -> str:
    """Run promtool, which must succeed; give what it said."""
    return output_of("promtool", *arguments, cwd=CONTRIB)


def test_promtool_accepts_the_configuration_and_the_alerts() -> None:
    assert "1 rule files found" in promtool("check", "config", "prometheus.yml")
    assert f"{len(RULES)} rules found" in promtool("check", "rules", "alerts.yml")


def test_each_alert_is_raised_when_it_should_be_and_not_otherwise() -> None:
    assert promtool("test", "rules", *TEST_FILES).count("SUCCESS") == len(TEST_FILES)
    tested = {
        (check["alertname"], bool(check["exp_alerts"]))
        for test in TESTS
        for check in test["alert_rule_test"]
    }
    assert tested == {
        (rule["alert"], raised) for rule in ALERTS for raised in (True, False)
    }


def test_each_alert_has_a_summary_and_what_to_type_first() -> None:
    for rule in ALERTS:
        assert rule["annotations"].keys() == {"summary", "command"}
        assert all(rule["annotations"].values())


def test_alerts_and_queries_ask_for_metrics_that_exist() -> None:
    for text in (str(ALERTS), str(of_the_dashboard())):
        asked = set(re.findall(r"\bclustercheckd_(\w+)", text))
        assert asked
        assert {SUFFIXES.sub("", name) for name in asked} <= set(metrics_on_the_page())
