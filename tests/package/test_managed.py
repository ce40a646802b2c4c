"""What manages and watches hosts: Ansible with our plays, Zabbix and keepalived with the drop-in.

The tests of this file run in order on two booted nodes.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import yaml

from harness.waiting import wait_for
from tests.package.conftest import (
    ROOT,
    Packages,
    skip_where_glibc_is_newer_than_of,
)
from tests.package.machine import Machine, booted

PLAYS = ROOT / "contrib" / "ansible"
PLAYBOOK = ROOT / "build" / "ansible-venv" / "bin" / "ansible-playbook"
RELEASE = "bookworm"
ADDRESSES = {"db1": "10.77.0.1", "db2": "10.77.0.2"}
PORT = 9300
SSH = (
    "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    " -o ControlMaster=auto -o ControlPersist=5"
)
DROP_IN = "/usr/lib/clustercheckd/clustercheck"
PASSWORD = r"it's a \ word"
ACCOUNT = r"CREATE USER clustercheck@localhost IDENTIFIED BY 'it''s a \\ word'"
SECONDS = 300
SETTINGS = {"CLUSTERCHECK_PORT": PORT, "CLUSTERCHECK_ALLOW_FROM": "10.77.0.0/24"}


@dataclass
class Fleet:
    """Two nodes, each a cluster of its own, and Ansible."""

    machines: dict[str, Machine]
    directory: Path

    def play(self, name: str, package: Path, **variables: object) -> tuple[int, str]:
        """Run a play, and return its exit status and output."""
        inventory = yaml.safe_load((PLAYS / "inventory.example.yml").read_text())
        groups = inventory["all"]["children"]
        groups["galera"]["hosts"] = {
            host: {
                "ansible_host": ADDRESSES[host],
                "ansible_ssh_common_args": f"-o ProxyCommand='{self.enter(host)}'",
            }
            for host in self.machines
        }
        # db1 is asked by another host, and db2 by its address.
        groups["haproxy"]["hosts"] = {"lb1": groups["galera"]["hosts"]["db2"]}
        inventory["all"]["vars"] |= {
            "clustercheckd_package": str(package),
            "clustercheckd_settings": SETTINGS,
            "clustercheckd_password": PASSWORD,
            "clustercheckd_pause_seconds": 1,
            **variables,
        }
        path = self.directory / "inventory.yml"
        path.write_text(yaml.safe_dump(inventory))
        done = subprocess.run(
            [
                PLAYBOOK,
                "-i",
                path,
                "--private-key",
                self.directory / "key",
                PLAYS / name,
            ],
            env={
                **os.environ,
                "ANSIBLE_HOME": str(self.directory),
                "ANSIBLE_SSH_ARGS": SSH,
                "ANSIBLE_PIPELINING": "1",
                "ANSIBLE_REMOTE_USER": "root",
                "ANSIBLE_NOCOLOR": "1",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        return done.returncode, done.stdout

    def enter(self, host: str) -> str:
        """Return the command that connects to a host's ssh server."""
        pid = self.machines[host].init
        return f"nsenter --target {pid} --net socat - TCP:127.0.0.1:22"

    def everywhere(self, command: str) -> list[str]:
        """Run a command on each node, and return what it prints."""
        return [machine.run(command).strip() for machine in self.machines.values()]


@pytest.fixture(scope="module")
def fleet(
    namespaces: None,  # noqa: ARG001 (skips)
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Fleet]:
    """Boot two nodes that Ansible can log in to."""
    skip_where_glibc_is_newer_than_of(RELEASE)
    directory = tmp_path_factory.mktemp("ansible")
    key = directory / "key"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True
    )
    with ExitStack() as stack, ThreadPoolExecutor() as executor:
        booting = [
            executor.submit(stack.enter_context, booted(f"{RELEASE}-managed"))
            for _ in ADDRESSES
        ]
        machines = dict(
            zip(ADDRESSES, (future.result() for future in booting), strict=True)
        )
        machines["db1"].connect(machines["db2"], *ADDRESSES.values())
        for machine in machines.values():
            machine.run(
                "mkdir -p -m 0700 /root/.ssh && rm /etc/nologin /run/nologin",
                check=False,
            )
            machine.path("/root/.ssh/authorized_keys").write_text(
                key.with_suffix(".pub").read_text()
            )
        yield Fleet(machines, directory)


def test_it_installs_the_service_on_one_node_after_the_other(
    fleet: Fleet, packages: Packages
) -> None:
    # As replication would.
    fleet.machines["db2"].run(f'mariadb <<"END"\n{ACCOUNT}\nEND')
    status, output = fleet.play("clustercheckd.yml", packages.deb)
    assert status == 0, output
    assert output.count("PLAY [") == len(ADDRESSES)
    for said in fleet.everywhere("systemctl is-enabled clustercheckd"):
        assert said == "enabled"


def test_it_upgrades_a_running_service(fleet: Fleet, next_packages: Packages) -> None:
    before = fleet.everywhere("systemctl show -P MainPID clustercheckd")
    status, output = fleet.play("clustercheckd.yml", next_packages.deb)
    assert status == 0, output
    # The copy and the upgrade: what is as it should be stays.
    assert output.count("changed=2 ") == len(ADDRESSES), output
    versions = fleet.everywhere("dpkg-query -f '${Version}' -W clustercheckd")
    assert all(version.startswith(next_packages.version) for version in versions)
    assert not {*before} & {
        *fleet.everywhere("systemctl show -P MainPID clustercheckd")
    }


def test_it_restarts_one_server_at_a_time_while_its_node_is_drained(
    fleet: Fleet, next_packages: Packages
) -> None:
    before = fleet.everywhere("systemctl show -P MainPID mariadb")
    status, output = fleet.play("restart.yml", next_packages.deb)
    assert status == 0, output
    assert not {*before} & {*fleet.everywhere("systemctl show -P MainPID mariadb")}
    changes = [
        change
        for said in fleet.everywhere(f"curl -s http://localhost:{PORT}/status")
        for change in json.loads(said)["changes"][-2:]
    ]
    assert [change["reason"] for change in changes] == [
        *("disabled", "synced") * len(ADDRESSES)
    ]
    times = [change["at"] for change in changes]
    assert times == sorted(times)


def test_a_rollout_stops_at_the_node_that_the_load_balancer_cannot_ask(
    fleet: Fleet, next_packages: Packages
) -> None:
    wrong = {**SETTINGS, "CLUSTERCHECK_ALLOW_FROM": "192.0.2.0/24"}
    status, output = fleet.play(
        "clustercheckd.yml", next_packages.deb, clustercheckd_settings=wrong
    )
    assert status != 0
    settings = fleet.everywhere("cat /etc/clustercheckd/clustercheckd.env")
    assert ["192.0.2.0" in text for text in settings] == [True, False], output
    # One node is missing now: nothing is restarted.
    before = fleet.everywhere("systemctl show -P MainPID mariadb")
    status, _ = fleet.play("restart.yml", next_packages.deb)
    assert status != 0
    assert fleet.everywhere("systemctl show -P MainPID mariadb") == before


XINETD = f"""service mysqlchk
{{
    type = UNLISTED
    port = 9200
    socket_type = stream
    wait = no
    user = nobody
    server = {DROP_IN}
    server_args = user password
}}
"""
KEEPALIVED = f"""global_defs {{
    script_user nobody
    enable_script_security
}}
vrrp_script galera {{
    script "{DROP_IN} - 1"
    interval 1
    fall 1
    rise 1
}}
vrrp_instance vip {{
    interface link0
    virtual_router_id 51
    advert_int 0.2
    virtual_ipaddress {{
        10.77.0.9/24
    }}
    track_script {{
        galera
    }}
}}
"""


def test_xinetd_zabbix_and_keepalived_get_the_services_verdict_from_the_drop_in(
    fleet: Fleet,
) -> None:
    node = fleet.machines["db1"]
    for path, text in {
        # The script's file of variables; everybody can read it.
        "/etc/default/clustercheck": f"CLUSTERCHECK_PORT={PORT}\n",
        "/etc/xinetd.d/mysqlchk": XINETD,
        "/etc/zabbix/zabbix_agentd.conf.d/galera.conf": f"UserParameter=galera,{DROP_IN} >/dev/null; echo $?\n",
        "/etc/keepalived/keepalived.conf": KEEPALIVED,
    }.items():
        node.path(path).write_text(text)
    node.run("systemctl restart xinetd keepalived")
    for change, status, printed in (
        ("undrain", "200 OK", "0"),
        ("drain", "503 Service Unavailable", "1"),
        ("undrain", "200 OK", "0"),
    ):
        node.run(f"clustercheckd {change}")
        answer = node.run("curl -si http://localhost:9200/")
        assert answer.startswith(f"HTTP/1.1 {status}\n")
        assert node.run("zabbix_agentd -t galera").endswith(f"[t|{printed}]\n")
        # keepalived takes and leaves the address.
        listed = f"grep -q 10.77.0.9 /proc/net/fib_trie; [ $? = {printed} ]"
        wait_for(f"keepalived after {change}", partial(node.succeeds, listed))
