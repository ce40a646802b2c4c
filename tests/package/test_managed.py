"""What manages and watches hosts: Ansible with our plays, Zabbix and keepalived with the drop-in.

The tests of this file run in order on two booted nodes.
"""

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import yaml

from harness.process import output_of
from harness.waiting import wait_for
from tests.package.conftest import Packages, skip_where_glibc_is_newer_than_of
from tests.package.machine import Machine, booted
from tests.unit.manifests import ROOT

PLAYS = ROOT / "contrib" / "ansible"
PLAYBOOK = ROOT / "build" / "ansible-venv" / "bin" / "ansible-playbook"
RELEASE = "bookworm"
ADDRESSES = {"db1": "10.77.0.1", "db2": "10.77.0.2"}
PORT = 9300
DROP_IN = "/usr/lib/clustercheckd/clustercheck"
PASSWORD = r"it's a \ word"
ACCOUNT = r"CREATE USER clustercheck@localhost IDENTIFIED BY 'it''s a \\ word'"
WAY = "-o ProxyCommand='nsenter --target {} --net socat - TCP:127.0.0.1:22'"
SECONDS = 300
SETTINGS = {"CLUSTERCHECK_PORT": PORT, "CLUSTERCHECK_ALLOW_FROM": "10.77.0.0/24"}


@dataclass
class Fleet:
    """Two nodes, each a cluster of its own, and Ansible."""

    machines: dict[str, Machine]
    directory: Path

    def play(self, name: str, package: Path, **variables: object) -> str:
        """Run a play, and return its output. Raises `AssertionError` with that if it fails."""
        inventory = yaml.safe_load((PLAYS / "inventory.example.yml").read_text())
        groups = inventory["all"]["children"]
        groups["galera"]["hosts"] = {
            host: {
                "ansible_host": address,
                "ansible_ssh_common_args": WAY.format(self.machines[host].init),
            }
            for host, address in ADDRESSES.items()
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
        command = (
            f"{PLAYBOOK} -i {path} --private-key {self.directory}/key {PLAYS}/{name}"
        )
        environ = {
            **os.environ,
            "ANSIBLE_HOME": str(self.directory),
            "ANSIBLE_CONFIG": str(Path(__file__).with_name("ansible.cfg")),
        }
        return output_of(*command.split(), seconds=SECONDS, env=environ)

    def everywhere(self, command: str) -> list[str]:
        """Run a command on each node, and return what it prints."""
        return [machine.run(command).strip() for machine in self.machines.values()]

    def processes(self, unit: str) -> set[str]:
        """Return the main processes of a unit."""
        return set(self.everywhere(f"systemctl show -P MainPID {unit}"))


@pytest.fixture(scope="module")
def fleet(
    namespaces: None,  # noqa: ARG001 (skips)
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Fleet]:
    """Boot two nodes that Ansible can log in to."""
    skip_where_glibc_is_newer_than_of(RELEASE)
    directory = tmp_path_factory.mktemp("ansible")
    make_key = f"ssh-keygen -q -t ed25519 -f {directory}/key -N".split()
    output_of(*make_key, "")
    key = (directory / "key.pub").read_text()
    with ExitStack() as stack:
        machines = [
            stack.enter_context(booted(f"{RELEASE}-managed")) for _ in ADDRESSES
        ]
        machines[0].connect(machines[1], *ADDRESSES.values())
        for machine in machines:
            machine.run("mkdir -p -m 0700 /root/.ssh")
            machine.path("/root/.ssh/authorized_keys").write_text(key)
        yield Fleet(dict(zip(ADDRESSES, machines, strict=True)), directory)


def test_it_installs_the_service_on_one_node_after_the_other(
    fleet: Fleet, packages: Packages
) -> None:
    # As replication would.
    fleet.machines["db2"].run(f'mariadb <<"END"\n{ACCOUNT}\nEND')
    output = fleet.play("clustercheckd.yml", packages.deb)
    assert output.count("PLAY [") == len(ADDRESSES)
    enabled = fleet.everywhere("systemctl is-enabled clustercheckd")
    assert set(enabled) == {"enabled"}


def test_it_upgrades_a_running_service(fleet: Fleet, next_packages: Packages) -> None:
    before = fleet.processes("clustercheckd")
    output = fleet.play("clustercheckd.yml", next_packages.deb)
    # The copy and the upgrade: what is as it should be stays.
    assert output.count("changed=2 ") == len(ADDRESSES), output
    for version in fleet.everywhere("dpkg-query -f '${Version}' -W clustercheckd"):
        assert version.startswith(next_packages.version)
    assert before.isdisjoint(fleet.processes("clustercheckd"))


def test_it_restarts_one_server_at_a_time_while_its_node_is_drained(
    fleet: Fleet, next_packages: Packages
) -> None:
    before = fleet.processes("mariadb")
    fleet.play("restart.yml", next_packages.deb)
    assert before.isdisjoint(fleet.processes("mariadb"))
    changes = [
        (change["at"], change["reason"])
        for said in fleet.everywhere(f"curl -s http://localhost:{PORT}/status")
        for change in json.loads(said)["changes"][-2:]
    ]
    assert changes == sorted(changes)
    assert [reason for _, reason in changes] == ["disabled", "synced"] * len(ADDRESSES)


def test_a_rollout_stops_at_the_node_that_the_load_balancer_cannot_ask(
    fleet: Fleet, next_packages: Packages
) -> None:
    wrong = {**SETTINGS, "CLUSTERCHECK_ALLOW_FROM": "192.0.2.0/24"}
    with pytest.raises(AssertionError, match="exit status"):
        fleet.play("clustercheckd.yml", next_packages.deb, clustercheckd_settings=wrong)
    count = "grep -c 192.0.2.0 /etc/clustercheckd/clustercheckd.env || true"
    assert fleet.everywhere(count) == ["1", "0"]
    # One node is missing now: nothing is restarted.
    before = fleet.processes("mariadb")
    with pytest.raises(AssertionError, match="exit status"):
        fleet.play("restart.yml", next_packages.deb)
    assert fleet.processes("mariadb") == before


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


def test_zabbix_and_keepalived_get_the_services_verdict_from_the_drop_in(
    fleet: Fleet,
) -> None:
    node = fleet.machines["db1"]
    for path, text in {
        # The script's file of variables; everybody can read it.
        "/etc/default/clustercheck": f"CLUSTERCHECK_PORT={PORT}\n",
        "/etc/zabbix/zabbix_agentd.conf.d/galera.conf": f"UserParameter=galera,{DROP_IN} >/dev/null; echo $?\n",
        "/etc/keepalived/keepalived.conf": KEEPALIVED,
    }.items():
        node.path(path).write_text(text)
    node.run("systemctl restart keepalived")
    for change, printed in (("undrain", "0"), ("drain", "1"), ("undrain", "0")):
        node.run(f"clustercheckd {change}")
        assert node.run("zabbix_agentd -t galera").endswith(f"[t|{printed}]\n")
        # keepalived takes and leaves the address.
        listed = f"grep -q 10.77.0.9 /proc/net/fib_trie; [ $? = {printed} ]"
        wait_for(f"keepalived after {change}", partial(node.succeeds, listed))
