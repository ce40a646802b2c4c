"""A restart that no client sees: the listening socket stays, and health checks wait."""

import signal
import socket
import time
from contextlib import ExitStack

import pytest

from harness.ports import LOOPBACK
from harness.service import handing_down, read_to_end
from tests.conftest import Services, settings_for
from tests.fake_mysql import FakeMySQL
from tests.http.conftest import HEALTH_CHECK
from tests.measured import done_within, within


@pytest.mark.parametrize("others", [[], ["web.socket"]])
def test_what_waits_while_the_service_is_killed_is_answered_by_the_next(
    services: Services, node: FakeMySQL, others: list[str]
) -> None:
    with ExitStack() as exits:
        held = exits.enter_context(socket.create_server((LOOPBACK, 0), backlog=1024))
        names = ":".join([*others, "listening"])
        service = services.start_through(
            handing_down(held, names),
            settings_for(node),
            port=held.getsockname()[1],
            pass_fds=[held.fileno()],
        )
        service.wait_for_verdict(200, "synced")
        # Stopped, it accepts nothing: all of these are the kernel's when it is killed.
        service.process.send(signal.SIGSTOP)
        waiting = [exits.enter_context(service.connect()) for _ in range(50)]
        for connection in waiting:
            connection.sendall(HEALTH_CHECK)
        service.process.kill()
        service.restart()
        for connection in waiting:
            assert read_to_end(connection).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_request_that_is_on_its_way_at_the_end_is_answered(
    services: Services, node: FakeMySQL
) -> None:
    service = services.beside(node)
    with ExitStack() as exits:
        _silent, *early = [exits.enter_context(service.connect()) for _ in range(6)]
        # Once a later connection is answered, these have been accepted.
        service.get()
        terminated_at = time.monotonic()
        service.process.terminate()
        service.wait_for_log(" INFO stopping ")
        # The silent one does not delay the end.
        for connection in early:
            connection.sendall(HEALTH_CHECK)
        sent_seconds = time.monotonic() - terminated_at
        answers = {read_to_end(connection)[:15] for connection in early}
        if answers != {b"HTTP/1.1 200 OK"}:
            within("all requests on their way", sent_seconds, 0.2)
            raise AssertionError(answers)
        with done_within("the end", 5):
            assert service.process.stop() == 0
