"""The variations of docs/haproxy.md that have no test of their own beside a scenario."""

import os
import socket
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pymysql

from harness.certificates import make_authority, make_certificate
from harness.galera import DEMO, Installation
from harness.haproxy import READER, WRITER, HAProxy
from harness.ports import LOOPBACK
from tests.conftest import Services
from tests.fake_mysql import fake_mysql, galera
from tests.haproxy.front import SWITCH_SECONDS, StandIns, switch
from tests.haproxy.variations import varied
from tests.http.test_restart import HAND_DOWN
from tests.measured import within


def test_a_donor_serves_writes_only_where_no_synced_node_is_left(nodes: StandIns) -> None:
    front = nodes.front(text=varied("A donor rather than no writer"))
    first, second, third = nodes.nodes
    # Another node is Synced: the writes leave the donor for it.
    seen = switch(front, first, lambda: setattr(first, "says", "donor"))
    within("donors: synced node serves instead", seen.next_seconds, SWITCH_SECONDS)
    assert seen.to == second.name
    # None is: the donor serves.
    third.stop()
    front.wait_for_status(WRITER, third, "DOWN")
    seen = switch(front, second, second.stop)
    within("donors: donor serves", seen.next_seconds, SWITCH_SECONDS)
    assert seen.to == first.name
    # They return: the writes stay.
    held = front.writers.open(5)
    for node in (second, third):
        node.start()
        front.wait_for_status(WRITER, node, "UP")
    first.says = "synced"
    front.wait_for_status(WRITER, first, "UP")
    assert all(client.is_served for client in held)
    assert front.writers.landings(100) == Counter({first.name: 100})


def test_tls_goes_through_to_the_node(nodes: StandIns, installation: Installation, tmp_path: Path) -> None:
    directory = installation.directory / "tls"
    directory.mkdir()
    authority = make_authority(directory)
    certificate = make_certificate(directory, "node1", authority, LOOPBACK)
    for path in [directory, *directory.iterdir()]:
        installation.give_to_server(path)
    options = [f"--ssl-ca={authority.cert}", f"--ssl-cert={certificate.cert}", f"--ssl-key={certificate.key}"]
    node = installation.node("behind-haproxy", options)
    with ExitStack() as exits:
        exits.callback(node.kill)
        node.start()
        node.wait_until_up()
        first, *others = (stand_in.server for stand_in in nodes.nodes)
        haproxy = HAProxy(tmp_path, installation.ports, [replace(first, port=node.port), *others])
        exits.callback(haproxy.kill)
        haproxy.wait_until_up()
        session = pymysql.connect(
            host=LOOPBACK,
            port=haproxy.ports[WRITER],
            user=DEMO,
            password=DEMO,
            ssl_ca=str(authority.cert),
            ssl_verify_cert=True,
            ssl_verify_identity=True,
        )
        with session, session.cursor() as cursor:
            cursor.execute("SHOW STATUS LIKE 'Ssl_cipher'")
            assert cursor.fetchall()[0][1] != ""


def test_a_check_over_a_unix_socket(nodes: StandIns, services: Services, tmp_path: Path) -> None:
    path = tmp_path / "clustercheckd.sock"
    tmp_path.chmod(0o755)
    # HAProxy looks for the socket under its chroot, which only root can have.
    root = {"chroot /var/lib/haproxy": f"chroot {tmp_path}"}
    if os.geteuid() != 0:
        root = {"unix@/": f"unix@{tmp_path}/"}
    with fake_mysql(galera()) as database, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        path.chmod(0o666)
        listening.listen()
        service = services.start_through(
            (sys.executable, "-c", HAND_DOWN, str(listening.fileno())),
            {"MYSQL_HOST": LOOPBACK, "MYSQL_PORT": str(database.port), "MYSQL_USERNAME": "someone"},
            pass_fds=[listening.fileno()],
        )
        front = nodes.front(text=varied("A check over a Unix socket"), replace=root)
        first = nodes.nodes[0]
        assert first.checks == []
        service.disabled_file.touch()
        for section in (WRITER, READER):
            front.wait_for_status(section, first, "DOWN")
            assert "disabled" in front.haproxy.servers()[section, first.name]["last_chk"]
