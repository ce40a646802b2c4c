"""The metrics of docs/operations.md, and what the dashboard asks Prometheus for."""

import json
import re
from typing import Any

from tests.unit.manifests import ROOT

DASHBOARD: dict[str, Any] = json.loads(
    (ROOT / "contrib" / "grafana" / "clustercheckd.json").read_text()
)
PAGE = (ROOT / "docs" / "operations.md").read_text()


def metrics_on_the_page() -> list[str]:
    """Return the metrics that docs/operations.md names, without their prefix."""
    section = PAGE.partition("\n### Metrics\n")[2].partition("\n##")[0]
    named = re.findall(r"^- (`.*?`): ", section, re.MULTILINE)
    return [name for names in named for name in re.findall("`([a-z_]+)`", names)]


def of_the_dashboard() -> dict[str, str]:
    """Return the dashboard's queries by panel, as Grafana sends them with all variables at All."""
    values = {
        variable["name"]: variable.get("allValue")
        for variable in DASHBOARD["templating"]["list"]
    }
    values["__rate_interval"] = "30s"

    def value(variable: "re.Match[str]") -> str:
        return str(values[variable[1]])

    return {
        f"{panel['title']} {target['refId']}": re.sub(r"\$(\w+)", value, target["expr"])
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    }
