"""A process whose files an upgrade has replaced: it has imported all that it will need."""

import re
import signal
import sys
from pathlib import Path

import pytest

from harness.service import Service
from tests.conftest import Services, settings_for
from tests.fake_mysql import FakeMySQL, Peer, error, galera, greets_then
from tests.http.conftest import REFUSED
from tests.unit.test_authentication import PASSWORD, asks_for_the_encrypted_password

# Runs clustercheckd, and logs each module that it looks for once it has its port.
WATCHED = """
import os, sys
from app.__main__ import main
def hook(event, arguments, serving=[]):
    if event == "socket.bind" and isinstance(arguments[1], tuple):
        serving.append(1)
    elif event == "import" and serving:
        os.write(2, f"LATE IMPORT of {arguments[0]}\\n".encode())
sys.addaudithook(hook)
sys.exit(main([]))
"""
WRAPPER = (sys.executable, "-c", WATCHED)
PATHS = (
    *("/", "/readyz", "/livez", "/status", "/metrics", "/openapi.json", "/none"),
    *("/?max_sync_wait=3", "/?unknown=1"),
)
MALFORMED = (b"\x16\x03\x01", b"GET /\xff HTTP/1.1\r\n\r\n", b"GET /" + b"a" * 20000)


def late_imports(service: Service) -> list[str]:
    return re.findall("^LATE IMPORT of (.+)$", service.log.read_text(), re.MULTILINE)


def test_a_running_service_imports_nothing_more(
    services: Services, node: FakeMySQL, tmp_path: Path
) -> None:
    env_file = tmp_path / "env"
    env_file.touch()
    environ = settings_for(
        node, MYSQL_PASSWORD=PASSWORD, CLUSTERCHECK_ENV_FILE=str(env_file)
    )
    service = services.start_through(WRAPPER, environ)
    # FastAPI comes once it serves.
    service.status()
    early = late_imports(service)
    assert "fastapi" in early
    for behaviour, status, reason in (
        (galera(), 200, "synced"),
        (REFUSED, 503, "access-denied"),
        (greets_then(error(1040)), 503, "too-many-connections"),
        (Peer.hang, 503, "timeout"),
        (asks_for_the_encrypted_password, 200, "synced"),
    ):
        node.behaviour = behaviour
        node.drop_connections()
        service.wait_for_verdict(status, reason)
    for path in PATHS:
        for method in ("GET", "HEAD", "OPTIONS", "POST"):
            service.get(path, method=method)
    for request in MALFORMED:
        service.send(request, half_close=True)
    service.disabled_file.write_text("maintenance\n")
    service.wait_for_verdict(503, "disabled")
    service.disabled_file.unlink()
    env_file.write_text("MAX_RECV_QUEU=7\nCLUSTERCHECK_DEADLINE=soon\n")
    service.process.send(signal.SIGHUP)
    service.wait_for_log(" not reloaded ")
    assert service.stop() == 0
    assert late_imports(service)[len(early) :] == []


@pytest.mark.parametrize("host", ["localhost", "d\xe4tabase.example"])
def test_nor_to_look_up_a_host_name(services: Services, host: str) -> None:
    environ = {"MYSQL_HOST": host, "MYSQL_PORT": "1", "MYSQL_USERNAME": "someone"}
    service = services.start_through(WRAPPER, environ)
    service.status()
    early = late_imports(service)
    service.wait_for_verdict(503, "unreachable")
    assert late_imports(service) == early
