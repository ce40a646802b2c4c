"""contrib/grafana/clustercheckd.json: what can be said of it without Grafana."""

import re
from typing import Any

import pytest

from app.verdict.reason import PLANNED
from tests.queries import DASHBOARD

PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
every_panel = pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))


def test_it_needs_no_plugin() -> None:
    assert {panel["type"] for panel in PANELS} == {"stat", "state-timeline", "timeseries"}


def test_its_variables_are_the_data_source_and_the_labels() -> None:
    source, *labels = DASHBOARD["templating"]["list"]
    assert (source["type"], source["name"], source["query"]) == (
        "datasource",
        "datasource",
        "prometheus",
    )
    assert [label["name"] for label in labels] == ["job", "cluster", "instance"]
    for label in labels:
        assert label["definition"] == label["query"]["query"]
        assert label["datasource"] == DATASOURCE
        assert label["multi"] is label["includeAll"] is True


@every_panel
def test_each_panel_says_what_it_shows_and_obeys_the_variables(panel: dict[str, Any]) -> None:
    assert panel["description"].endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["targets"]
    for source in (panel, *panel["targets"]):
        assert source["datasource"] == DATASOURCE
    for target in panel["targets"]:
        for selector in re.findall(r"clustercheckd_\w+\{(.*?)\}", target["expr"]):
            assert selector.startswith('job=~"$job", cluster=~"$cluster", instance=~"$instance"')
        # A fixed range would show gaps where Prometheus scrapes less often.
        assert set(re.findall(r"\[(.*?)\]", target["expr"])) <= {"$__rate_interval"}


def test_planned_reasons_have_their_own_colour() -> None:
    (why,) = [panel for panel in PANELS if panel["title"] == "Why"]
    (words,) = [
        re.findall(r"[a-z-]+", override["matcher"]["options"])
        for override in why["fieldConfig"]["overrides"]
        if override["properties"][0]["value"]["fixedColor"] == "orange"
    ]
    assert set(words) == set(PLANNED)
