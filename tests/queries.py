"""The metrics of docs/operations.md, and what the dashboard asks Prometheus for."""

import json
import re
from typing import Any

from tests.unit.manifests import ROOT

DASHBOARD: dict[str, Any] = json.loads(
    (ROOT / "contrib" / "grafana" / "clustercheckd.json").read_text()
)
PAGE = (ROOT / "docs" / "operations.md").read_text()


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table under a heading of docs/operations.md, without its head."""
    section = PAGE.partition(f"\n### {heading}\n")[2].partition("\n##")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def metrics_on_the_page() -> list[str]:
    """Return the metrics that docs/operations.md names, without their prefix."""
    return [name for cell, _ in rows("Metrics") for name in re.findall("`([a-z_]+)`", cell)]


def of_the_dashboard() -> dict[str, str]:
    """Return the dashboard's queries by panel, as Grafana sends them with all variables at All."""
    values = {
        variable["name"]: variable.get("allValue") for variable in DASHBOARD["templating"]["list"]
    }
    values["__rate_interval"] = "30s"

    def value(variable: "re.Match[str]") -> str:
        return str(values[variable[1]])

    return {
        f"{panel['title']} {target['refId']}": re.sub(r"\$(\w+)", value, target["expr"])
        for panel in DASHBOARD["panels"]
        for target in panel["targets"]
    }
