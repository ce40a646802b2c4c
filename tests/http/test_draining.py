"""A node that is unavailable in a planned way: by its disabled file, and while the service stops."""

import time

from harness.waiting import wait_for
from tests.conftest import Services
from tests.fake_mysql import FakeMySQL, galera
from tests.http.test_commands import here
from tests.http.test_process import run


def test_the_disabled_file_decides_the_next_health_check_whatever_the_node_does(
    services: Services, node: FakeMySQL
) -> None:
    service = services.beside(node, CLUSTERCHECK_DRAIN_STATUS="404")
    service.disabled_file.touch()
    reply = service.get()
    assert (reply.status, reply.reason) == (404, "disabled")
    service.disabled_file.unlink()
    assert service.get().reason == "synced"
    node.behaviour = galera({"wsrep_ready": "OFF"})
    node.drop_connections()
    # What is not planned stays a 503.
    service.wait_for_verdict(503, "not-ready")
    service.disabled_file.touch()
    reply = service.get()
    assert reply.status == 404
    assert reply.body.startswith(
        "Percona XtraDB Cluster Node is manually disabled.\r\n"
        f"disabled: {service.disabled_file} exists, "
    )


def test_a_stop_is_answered_shutting_down_for_the_time_of_the_drain(
    services: Services, node: FakeMySQL
) -> None:
    service = services.beside(
        node, CLUSTERCHECK_DRAIN_SECONDS="1", CLUSTERCHECK_DRAIN_STATUS="404"
    )
    began = time.monotonic()
    service.process.terminate()
    service.wait_for_verdict(404, "shutting-down")
    # It does not wait for an outcome.
    done = run("reload", **here(service))
    assert (done.returncode, "not reloaded: " in done.stderr) == (1, True)
    wait_for("its end", lambda: service.process.exit_code is not None)
    assert time.monotonic() - began >= 1
    assert service.process.exit_code == 0
