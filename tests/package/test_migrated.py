"""From the script to clustercheckd and back, by the page: three hosts, then one behind HAProxy.

The tests of this file run in order in one booted system for each release.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from app.settings.disabled_file import DISABLED_FILE
from harness.waiting import wait_for
from tests.package.conftest import Packages, block_of, commands_of
from tests.package.machine import Machine

PAGE = "docs/migrating-from-clustercheck.md"
(OTHER_PORT, START), (COMPARE, *CHANGES), (OWN_PORT, SWITCH, CURL), (BACK,) = (
    commands_of(PAGE, "Steps", number) for number in range(4)
)
SETTINGS = "/etc/clustercheckd/clustercheckd.env"
PASSWORD_FILE = "/etc/clustercheckd/password"
OPTION_FILE = "/etc/mysql/clustercheck.cnf"
PASSWORD = "of-the-script"
SECONDS = 60
# One unit at a time, without standard error: Debian 12's xinetd has no unit of its own.
UNITS = (
    "for unit in clustercheckd xinetd; do"
    " systemctl is-active $unit; systemctl is-enabled $unit; done 2>/dev/null"
)
BY_THE_SCRIPT = "200"
"""An answer without a reason: only clustercheckd sends one."""

SCRIPT = r"""#!/bin/bash
# A minimal version of the clustercheck script.
say() {
    printf 'HTTP/1.1 %%s\r\nConnection: close\r\n\r\n' "$1"
    printf '%(words)s %%s.\r\n' "$2"
    exit
}
value() { mariadb %(options)s -NBe "SHOW GLOBAL $1" | cut -f 2; }
%(inputs)s
state=$(value "STATUS LIKE 'wsrep_local_state'")
[[ $state = 4 || $state = 2 && $AVAILABLE_WHEN_DONOR = 1 ]] || say "503 Service Unavailable" "not synced"
[[ $AVAILABLE_WHEN_READONLY -ne 0 || $(value "VARIABLES LIKE 'read_only'") = OFF ]] || say "503 Service Unavailable" read-only
say "200 OK" synced
"""
XINETD = """service mysqlchk
{
    disable = no
    flags = REUSE
    type = UNLISTED
    port = 9200
    socket_type = stream
    wait = no
    user = nobody
    server = /usr/bin/clustercheck
    only_from = 127.0.0.0
    per_source = UNLIMITED
}
"""
SOCKET = """[Socket]
ListenStream=9200
Accept=yes
[Install]
WantedBy=sockets.target
"""
TEMPLATE = f"""[Service]
User=mysql
ExecStart=/usr/bin/clustercheck - 1 /dev/null 1 {OPTION_FILE}
StandardInput=socket
"""


@dataclass(frozen=True)
class Host:
    """A host with a script.

    files: what starts it, and what it reads. settings: what the page's table makes of that.
    answers: those of both in each state: synced, and after each command of `CHANGES`.
    """

    script: Mapping[str, str]
    files: Mapping[str, str]
    settings: str
    answers: str
    unit: str = "xinetd"
    drain_file: str = DISABLED_FILE


PERCONA = "Percona XtraDB Cluster Node is"
HOSTS = {
    # Percona's of 2018 reads variables alone.
    "stock": Host(
        {
            "words": PERCONA,
            "options": '--user="$MYSQL_USERNAME" --password="$MYSQL_PASSWORD"',
            "inputs": f"[ ! -e {DISABLED_FILE} ] || say '503 Service Unavailable' 'manually disabled'\n"
            ". /etc/sysconfig/clustercheck\nAVAILABLE_WHEN_DONOR=${AVAILABLE_WHEN_DONOR:-0}",
        },
        {
            "/etc/xinetd.d/mysqlchk": XINETD,
            "/etc/sysconfig/clustercheck": "MYSQL_USERNAME=clustercheckuser\n"
            f"MYSQL_PASSWORD='{PASSWORD}'\nAVAILABLE_WHEN_READONLY=0\n",
        },
        f"MYSQL_USERNAME=clustercheckuser\nMYSQL_PASSWORD_FILE={PASSWORD_FILE}\n"
        "AVAILABLE_WHEN_READONLY=0\nCLUSTERCHECK_ALLOW_FROM=127.0.0.0/8\n",
        "200 200, 503 503, 503 503, 503 503",
    ),
    # Percona's newer one, with its own units, reads arguments alone, and no drain file.
    "newer": Host(
        {
            "words": PERCONA,
            "options": '--defaults-extra-file="$5"',
            "inputs": "AVAILABLE_WHEN_DONOR=${2:-0} AVAILABLE_WHEN_READONLY=${4:-1}",
        },
        {
            "/etc/systemd/system/clustercheck.socket": SOCKET,
            "/etc/systemd/system/clustercheck@.service": TEMPLATE,
            OPTION_FILE: f"[client]\nuser=clustercheckuser\npassword={PASSWORD}\n",
        },
        f"DEFAULTS_EXTRA_FILE={OPTION_FILE}\nAVAILABLE_WHEN_DONOR=1\n",
        "200 200, 200 200, 200 200, 200 503",
        unit="clustercheck.socket",
    ),
    # Red Hat's, as a site has changed it: an address, a default, a drain file, a condition.
    "fork": Host(
        {
            "words": "Galera cluster node is",
            "options": "--host=127.0.0.1 --port=3306 --user=clustercheckuser --password="
            + PASSWORD,
            "inputs": "AVAILABLE_WHEN_DONOR=${AVAILABLE_WHEN_DONOR:-1} AVAILABLE_WHEN_READONLY=${AVAILABLE_WHEN_READONLY:--1}\n"
            "[ ! -e /run/drain.lock ] || say '503 Service Unavailable' draining\n"
            "[[ $(value \"STATUS LIKE 'wsrep_cluster_size'\") -ge 1 ]] || say '503 Service Unavailable' 'too few'",
        },
        {"/etc/xinetd.d/mysqlchk": XINETD},
        f"MYSQL_HOST=127.0.0.1\nMYSQL_PORT=3306\nMYSQL_USERNAME=clustercheckuser\nMYSQL_PASSWORD_FILE={PASSWORD_FILE}\n"
        "AVAILABLE_WHEN_DONOR=1\nMIN_CLUSTER_SIZE=1\nCLUSTERCHECK_DISABLED_FILE=/run/drain.lock\n",
        "200 200, 200 200, 200 200, 503 503",
        drain_file="/run/drain.lock",
    ),
}


@pytest.fixture(scope="module")
def installed(machine: Machine, packages: Packages) -> Machine:
    """Return a node with the package, and with the script's account."""
    machine.run(
        f"mariadb -e \"CREATE USER clustercheckuser@localhost IDENTIFIED BY '{PASSWORD}',"
        " app@'%' IDENTIFIED BY 'app'\""
    )
    machine.copy(packages.deb)
    machine.run(commands_of("docs/install.md", "Packages")[0])
    machine.run(
        f"install -m 0640 -g clustercheck /dev/stdin {PASSWORD_FILE} <<<'{PASSWORD}'"
    )
    machine.run(f"mkdir -p /etc/sysconfig && cp {SETTINGS} /root/packaged.env")
    return machine


def write_settings(machine: Machine, host: Host) -> None:
    """Write the env file, as the table of the page says."""
    with machine.path(SETTINGS).open("a") as env_file:
        env_file.write(host.settings)
    # The table says that the service's user must be able to read it.
    machine.run(f"[ ! -e {OPTION_FILE} ] || chgrp clustercheck {OPTION_FILE}")


def wait_for_answers(machine: Machine, expected: list[str]) -> None:
    """Wait until the script and clustercheckd give these answers."""

    def given() -> bool:
        said = machine.run(COMPARE, check=False)
        return re.findall(r"^(\d{3})$", said, re.MULTILINE) == expected

    wait_for(f"the answers {expected}", given, seconds=SECONDS)


@pytest.fixture(params=HOSTS)
def host(request: pytest.FixtureRequest, installed: Machine) -> Iterator[Host]:
    """Return one of the hosts: its script answers on port 9200."""
    chosen = HOSTS[request.param]
    installed.path("/usr/bin/clustercheck").write_text(SCRIPT % chosen.script)
    for path, text in chosen.files.items():
        installed.path(path).write_text(text)
    installed.run(
        f"chmod +x /usr/bin/clustercheck && cp packaged.env {SETTINGS} && systemctl daemon-reload"
        f" && systemctl enable {chosen.unit} && systemctl restart {chosen.unit}"
    )
    yield chosen
    installed.run(
        f"systemctl disable {chosen.unit}; systemctl stop {chosen.unit} clustercheckd"
    )
    installed.run(f"rm {' '.join(chosen.files)} && systemctl daemon-reload")


def test_a_host_is_migrated_by_the_page_and_back(
    installed: Machine, host: Host
) -> None:
    installed.wait_for(BY_THE_SCRIPT, SECONDS)
    write_settings(installed, host)
    installed.run(OTHER_PORT)
    installed.run(START)
    for change, answers in zip(
        ["true", *CHANGES], host.answers.split(", "), strict=True
    ):
        command = change.replace(DISABLED_FILE, host.drain_file)
        installed.run(command)
        wait_for_answers(installed, answers.split())
        installed.run(command.replace("ON", "OFF").replace("touch", "rm"))
    installed.run(OWN_PORT)
    installed.run(SWITCH.replace("xinetd", host.unit))
    installed.wait_for("200 synced", SECONDS)
    assert "x-clustercheck-reason: synced" in installed.run(CURL)
    installed.run(BACK.replace("xinetd", host.unit))
    installed.wait_for(BY_THE_SCRIPT, SECONDS)


@pytest.mark.parametrize("host", ["stock"], indirect=True)
def test_the_way_lasts_and_so_does_the_way_back(installed: Machine, host: Host) -> None:
    write_settings(installed, host)
    for way, answer, states in (
        (SWITCH, "200 synced", "active enabled inactive disabled"),
        (BACK, BY_THE_SCRIPT, "inactive disabled active enabled"),
    ):
        installed.run(way)
        installed.wait_for(answer, SECONDS)
        installed.reboot()
        installed.wait_for(answer, SECONDS)
        assert installed.run(UNITS, check=False).split() == states.split()


def test_haproxy_leads_clients_to_the_node_unless_it_is_drained(
    installed: Machine,
) -> None:
    node = installed
    node.run("systemctl start clustercheckd")
    section = block_of("README.md", "clustercheckd", "haproxy").replace(
        "10.0.0.11", "127.0.0.1"
    )
    with node.path("/etc/haproxy/haproxy.cfg").open("a") as packaged:
        packaged.write(section.replace("10.0.0.12", "127.0.0.1"))
    for command in commands_of("docs/haproxy.md", "The example"):
        node.run(command)
    query = "mariadb -h 127.0.0.1 -P 3307 -u app -papp --connect-timeout 5 -BNe 'SELECT @@hostname'"
    wait_for(
        "a client to reach the node",
        lambda: node.run(query, check=False) == "galera\n",
        seconds=SECONDS,
    )
    _, status, drain, *_, undrain = commands_of(
        "docs/haproxy.md", "Planned work on one node"
    )
    node.run(f"{drain} --reason 'upgrade, ticket 42'")
    assert "upgrade, ticket 42" in node.run(status.partition(" db1")[0], check=False)
    wait_for(
        "clients to be turned away", lambda: not node.succeeds(query), seconds=SECONDS
    )
    log = "journalctl -u haproxy -p notice --no-pager"
    wait_for(
        "HAProxy to log it",
        lambda: "Server readers/node1 is DOWN" in node.run(log),
        seconds=SECONDS,
    )
    node.run(undrain)
    wait_for("clients to be back", lambda: node.succeeds(query), seconds=SECONDS)
