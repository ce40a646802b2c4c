"""The socket of the service, before it serves. tests/http has the rest."""

import socket

import pytest

from app.settings.listening import listening_socket
from app.settings.settings import Settings


@pytest.mark.parametrize("listens", [True, False])
def test_a_check_binds_the_port_and_accepts_no_health_check(*, listens: bool) -> None:
    settings = Settings(clustercheck_host="127.0.0.1", clustercheck_port=0)
    with listening_socket(settings, listens=listens) as bound:
        assert bound.getsockname()[1] > 0
        assert bound.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == listens
