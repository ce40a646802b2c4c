"""The page about monitoring has every metric that /metrics sends, with its type."""

import re

from tests.conftest import Services
from tests.fake_mysql import fake_mysql, galera
from tests.queries import metrics_on_the_page


def test_it_has_every_metric_with_its_type(services: Services) -> None:
    with fake_mysql(galera({"wsrep_flow_control_active": "true", "wsrep_local_index": "2"})) as server:
        service = services.start(MYSQL_HOST="127.0.0.1", MYSQL_PORT=str(server.port), MYSQL_USERNAME="someone")
        service.wait_for_verdict(200, "synced")
        # A drained node has one more.
        service.disabled_file.touch()
        sent = service.get("/metrics").body
    named = metrics_on_the_page()
    assert len(named) == len(set(named))
    # As the page says above its table.
    types = {name: "counter" if name.endswith("_total") else "gauge" for name in named}
    types["poll_duration_seconds"] = "histogram"
    assert dict(re.findall(r"^# TYPE clustercheckd_(\w+) (\w+)$", sent, re.MULTILINE)) == types
