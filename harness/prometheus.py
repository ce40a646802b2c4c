"""A real Prometheus with contrib/prometheus/prometheus.yml, but this machine's ports and shorter intervals."""

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.ports import LOOPBACK
from harness.process import Process
from harness.service import Service
from harness.waiting import wait_for

CONTRIB = Path(__file__).parent.parent / "contrib" / "prometheus"
ALERTS = CONTRIB / "alerts.yml"

_EXAMPLE = CONTRIB / "prometheus.yml"
_START_SECONDS = 30.0
_ANSWER_SECONDS = 5.0


class Prometheus:
    """One Prometheus process that scrapes services. The label instance is the address and the port.

    haproxy: the port of an HAProxy that exports its metrics; None without one.
    """

    def __init__(
        self,
        directory: Path,
        port: int,
        services: Sequence[Service],
        *,
        haproxy: int | None = None,
        interval: str = "200ms",
    ) -> None:
        self.port = port
        self.log = directory / "prometheus.log"
        config = directory / "prometheus.yml"
        config.write_text(_config(services, haproxy, interval))
        command = [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={directory / 'prometheus'}",
            f"--web.listen-address={LOOPBACK}:{port}",
        ]
        self.process = Process("prometheus", command, self.log)

    def wait_until_up(self) -> None:
        """Wait until it answers queries."""
        wait_for("prometheus to answer", lambda: self.process.check() and self._is_ready(), seconds=_START_SECONDS)

    def query(self, expression: str) -> dict[str, float]:
        """Return the current values of an expression by instance. Raises AssertionError if an instance has two."""
        found = self._ask("query", {"query": expression})["result"]
        values = {series["metric"].get("instance", ""): float(series["value"][1]) for series in found}
        if len(values) != len(found):
            message = f"more than one value for an instance: {expression}"
            raise AssertionError(message)
        return values

    def answers(self, expression: str) -> bool:
        """Return whether an expression has a value now."""
        return bool(self._ask("query", {"query": expression})["result"])

    def _ask(self, what: str, parameters: Mapping[str, Any]) -> Any:  # noqa: ANN401 (whatever JSON holds)
        url = f"http://{LOOPBACK}:{self.port}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=_ANSWER_SECONDS) as answer:
            return json.load(answer)["data"]

    def _is_ready(self) -> bool:
        try:
            url = f"http://{LOOPBACK}:{self.port}/-/ready"
            with urllib.request.urlopen(url, timeout=_ANSWER_SECONDS):
                return True
        except urllib.error.HTTPError as answer:
            # It holds the connection, and on Python 3.14 a file that warns if nobody closes it.
            answer.close()
            return False
        except OSError:
            return False


def _config(services: Sequence[Service], haproxy: int | None, interval: str) -> str:
    text = _EXAMPLE.read_text()
    targets = "".join(f"          - {LOOPBACK}:{service.port}\n" for service in services)
    text = re.sub(r"(?: {10}- db\d:9200\n)+", targets, text)
    text = re.sub(r"(scrape_interval|evaluation_interval): 15s", rf"\1: {interval}", text)
    text = text.replace("- alerts.yml", f"- {ALERTS}")
    if haproxy is None:
        return text.partition("  # HAProxy's own exporter")[0]
    return text.replace("- lb1:8404", f"- {LOOPBACK}:{haproxy}")
