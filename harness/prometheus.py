"""A real Prometheus with contrib's configuration, this machine's ports and short intervals."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode

from harness.ports import LOOPBACK
from harness.process import Process
from harness.service import get, wait_until_ready

CONTRIB = Path(__file__).parent.parent / "contrib" / "prometheus"

_INTERVAL = "200ms"


class Prometheus:
    """One Prometheus process that scrapes services and an HAProxy, by their ports."""

    def __init__(
        self, directory: Path, port: int, services: Sequence[int], haproxy: int
    ) -> None:
        self.port = port
        config = directory / "prometheus.yml"
        config.write_text(_config(services, haproxy))
        command = [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={directory / 'prometheus'}",
            f"--web.listen-address={LOOPBACK}:{port}",
        ]
        self.process = Process("prometheus", command, directory / "prometheus.log")

    def wait_until_up(self) -> None:
        """Wait until it answers queries."""
        wait_until_ready(self.process, self.port, "/-/ready")

    def answers(self, expression: str) -> bool:
        """Return whether an expression has a value now."""
        reply = get(self.port, f"/api/v1/query?{urlencode({'query': expression})}")
        return bool(json.loads(reply.body)["data"]["result"])


def _config(services: Sequence[int], haproxy: int) -> str:
    text = (CONTRIB / "prometheus.yml").read_text()
    targets = "".join(f"          - {LOOPBACK}:{port}\n" for port in services)
    text = re.sub(r"(?: {10}- db\d:9200\n)+", targets, text)
    text = re.sub(
        r"(scrape_interval|evaluation_interval): 15s", rf"\1: {_INTERVAL}", text
    )
    text = text.replace("- alerts.yml", f"- {CONTRIB / 'alerts.yml'}")
    return text.replace("- lb1:8404", f"- {LOOPBACK}:{haproxy}")
