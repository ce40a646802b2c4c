"""A real Prometheus with contrib's configuration, this machine's ports and short intervals."""

import json
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from harness.ports import LOOPBACK
from harness.process import Process
from harness.service import get, wait_until_ready

CONTRIB = Path(__file__).parent.parent / "contrib" / "prometheus"


class Prometheus:
    """One Prometheus process that scrapes services and an HAProxy, by their ports."""

    def __init__(
        self,
        directory: Path,
        port: int,
        services: Sequence[int],
        haproxy: int,
        interval: str,
    ) -> None:
        self.port = port
        self._config = directory / f"prometheus-{port}.yml"
        self._haproxy, self._interval = haproxy, interval
        self._write(services)
        command = [
            "prometheus",
            f"--config.file={self._config}",
            f"--storage.tsdb.path={directory / f'prometheus-{port}'}",
            f"--web.listen-address={LOOPBACK}:{port}",
        ]
        self.process = Process("prometheus", command, directory / "prometheus.log")

    def wait_until_up(self) -> None:
        """Wait until it answers queries."""
        wait_until_ready(self.process, self.port, "/-/ready")

    def answers(self, expression: str) -> bool:
        """Return whether an expression has a value now."""
        return bool(self._result(expression))

    def range(self, selector: str) -> list[tuple[dict[str, str], list[Any]]]:
        """Return the labels of each series, and its samples: a time and a value."""
        return [(one["metric"], one["values"]) for one in self._result(selector)]

    def scrape(self, services: Sequence[int]) -> None:
        """Scrape these services from now on."""
        self._write(services)
        self.process.send(signal.SIGHUP)

    def _result(self, expression: str) -> list[dict[str, Any]]:
        reply = get(self.port, f"/api/v1/query?{urlencode({'query': expression})}")
        result: list[dict[str, Any]] = json.loads(reply.body)["data"]["result"]
        return result

    def _write(self, services: Sequence[int]) -> None:
        text = (CONTRIB / "prometheus.yml").read_text()
        targets = "".join(f"          - {LOOPBACK}:{port}\n" for port in services)
        text = re.sub(r"(?: {10}- db\d:9200\n)+", targets, text)
        text = re.sub(
            r"(scrape_interval|evaluation_interval): 15s",
            rf"\1: {self._interval}",
            text,
        )
        text = text.replace("- alerts.yml", f"- {CONTRIB / 'alerts.yml'}")
        text = text.replace("- lb1:8404", f"- {LOOPBACK}:{self._haproxy}")
        self._config.write_text(text)
