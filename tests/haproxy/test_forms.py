"""The forms of a check that HAProxy can send to the script, which reads none of them."""

from pathlib import Path

import pytest

from harness.haproxy import HAProxy
from harness.ports import LOOPBACK, Ports
from harness.waiting import wait_for
from tests.cluster.test_clustercheck import under
from tests.conftest import Services
from tests.fake_mysql import fake_mysql, galera
from tests.measured import for_seconds

EXPECTS = "\n    tcp-check expect string is\\ synced"
FORMS = {
    "proxy": "option httpchk GET /\n    default-server check-send-proxy",
    "proxy_of_a_rule": "option httpchk\n    http-check connect send-proxy",
    "line_feeds": f"option tcp-check\n    tcp-check send GET\\ /\\ HTTP/1.0\\n\\n{EXPECTS}",
    "http_0_9": f"option tcp-check\n    tcp-check send GET\\ /\\r\\n{EXPECTS}",
    "word": f"option tcp-check\n    tcp-check send PING\\r\\n{EXPECTS}",
    "silence": f"option tcp-check{EXPECTS}",
    "lower_case": "option httpchk get /",
    "no_slash": "option httpchk GET readyz",
    "no_target": "option httpchk GET",
    "tls": "option httpchk GET /\n    default-server check-ssl verify none",
}


@pytest.mark.long
def test_each_form_but_tls_is_up(
    services: Services, ports: Ports, tmp_path: Path
) -> None:
    with fake_mysql(galera()) as node:
        service = services.beside(node, CLUSTERCHECK_ANY_PATH="1")
        sections = [
            f"listen {name}\n    mode tcp\n    timeout check 1s\n    {rules}\n"
            f"    server db1 {LOOPBACK}:{service.port} check inter 300ms fall 1 rise 1\n"
            for name, rules in FORMS.items()
        ]
        text = (
            f"global\n    stats socket /var/lib/haproxy/admin.sock\n{''.join(sections)}"
        )
        haproxy = HAProxy(tmp_path, ports, [], text=text)
        haproxy.start()
        try:

            def down() -> list[str]:
                return [
                    section
                    for (section, server), row in haproxy.servers().items()
                    if server == "db1" and not row["check_status"].endswith("L7OK")
                ]

            wait_for("all but TLS to be up", lambda: down() == ["tls"], seconds=15)
            assert service.status()["connections"]["latest"].keys() == {"tls"}
        finally:
            haproxy.kill()


def test_the_drop_in_is_up_where_only_its_output_is_the_connection(
    services: Services, ports: Ports, tmp_path: Path
) -> None:
    with fake_mysql(galera()) as node:
        service = services.beside(node)
        service.wait_for_verdict(200, "synced")
        port = ports.free()
        text = (
            "global\n    stats socket /var/lib/haproxy/admin.sock\n"
            # As openstack-ansible writes it.
            "listen galera\n    mode tcp\n    timeout check 1s\n"
            "    option httpchk HEAD /\n"
            f"    server db1 {LOOPBACK}:{port} check inter 100ms fall 1 rise 1\n"
        )
        haproxy = HAProxy(tmp_path, ports, [], text=text)
        with under("unit", port, service.port, tmp_path):
            haproxy.start()
            try:
                row = ("galera", "db1")
                wait_for(
                    "the first check",
                    lambda: haproxy.servers()[row]["check_status"].endswith("L7OK"),
                )
                for _ in for_seconds(4):
                    assert haproxy.servers()[row]["chkfail"] == "0"
                assert haproxy.servers()[row]["status"] == "UP"
            finally:
                haproxy.kill()
