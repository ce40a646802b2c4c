"""A node that is unavailable in a planned way while the service stops."""

import time

from harness.waiting import wait_for
from tests.conftest import Services
from tests.fake_mysql import FakeMySQL
from tests.http.test_commands import here
from tests.http.test_process import run


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
