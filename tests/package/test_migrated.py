"""From the script to clustercheckd and back, behind HAProxy: with the commands of the pages.

The tests of this file run in order in one booted system for each release.
"""

import pytest

from harness.waiting import wait_for
from tests.package.conftest import Packages, block_of, commands_of
from tests.package.machine import Machine
from tests.unit import pages

PAGE = "docs/migrating-from-clustercheck.md"
(CHECK,), (SWITCH, CURL), (BACK,) = (
    commands_of(PAGE, "Steps", number) for number in range(1, 4)
)
SETTINGS = "/etc/clustercheckd/clustercheckd.env"
PASSWORD = "of-the-script"
# The page shows what migrate prints of line 8.
SCRIPT = r"""#!/bin/bash
# A minimal version of the clustercheck script: USER PASSWORD [AVAILABLE_WHEN_DONOR].
say() {
    printf 'HTTP/1.1 %s\r\nConnection: close\r\n\r\n' "$1"
    printf 'Percona XtraDB Cluster Node is %s.\r\n' "$2"
    exit
}
AVAILABLE_WHEN_DONOR=${3:-1}
AVAILABLE_WHEN_READONLY=${5:-1}
MYSQL_USERNAME="${1-clustercheckuser}"
MYSQL_PASSWORD="${2-clustercheckpassword!}"
export MYSQL_PWD=$MYSQL_PASSWORD
state=$(mariadb --user="$MYSQL_USERNAME" -NBe "SHOW STATUS LIKE 'wsrep_local_state'" | cut -f 2)
[[ $state = 4 || $state = 2 && $AVAILABLE_WHEN_DONOR = 1 ]] && say "200 OK" synced
say "503 Service Unavailable" "not synced"
"""
XINETD = f"""service mysqlchk
{{
    disable = no
    flags = REUSE
    type = UNLISTED
    port = 9200
    socket_type = stream
    wait = no
    user = nobody
    server = /usr/bin/clustercheck
    server_args = clustercheckuser {PASSWORD}
    per_source = UNLIMITED
}}
"""
# One unit at a time, without standard error: Debian 12's xinetd has no unit of its own.
STATES = (
    "for unit in clustercheckd xinetd; do"
    " systemctl is-active $unit; systemctl is-enabled $unit; done 2>/dev/null"
)
SECONDS = 60
BY_THE_SCRIPT = "200"
"""An answer without a reason: only clustercheckd sends one."""


@pytest.fixture(scope="module")
def node(machine: Machine) -> Machine:
    """Return a node with the script under xinetd."""
    machine.run(
        f"mariadb -e \"CREATE USER clustercheckuser@localhost IDENTIFIED BY '{PASSWORD}',"
        " app@'%' IDENTIFIED BY 'app'\""
    )
    machine.path("/usr/bin/clustercheck").write_text(SCRIPT)
    machine.path("/etc/xinetd.d/mysqlchk").write_text(XINETD)
    machine.run("chmod +x /usr/bin/clustercheck && systemctl restart xinetd")
    return machine


def test_the_steps_of_the_page_replace_the_script(
    node: Machine, packages: Packages
) -> None:
    node.wait_for(BY_THE_SCRIPT, SECONDS)
    node.copy(packages.deb)
    node.run(commands_of("docs/install.md", "Packages")[0])
    node.wait_for(BY_THE_SCRIPT, SECONDS)
    (typed,) = pages.commands_of(pages.blocks_under(PAGE, "Steps", "console")[0])
    assert node.run(f"{typed.line}; echo $?") == f"{typed.printed}3\n"
    assert node.run(f"grep '^# CHECK' {SETTINGS}").endswith(
        ", line 8: AVAILABLE_WHEN_DONOR\n"
    )
    node.run(f"sed -i '/CHECK/d; s/DONOR=.*/DONOR=1/' {SETTINGS}")
    assert node.run(CHECK).startswith("available synced: ")
    node.run(SWITCH)
    answer = node.run(CURL)
    assert "HTTP/1.1 200 OK" in answer
    assert "x-clustercheck-reason: synced" in answer


def test_the_way_back_lasts_and_so_does_the_way_forward(node: Machine) -> None:
    for way, answer, states in (
        (BACK, BY_THE_SCRIPT, "inactive disabled active enabled"),
        (SWITCH, "200 synced", "active enabled inactive disabled"),
    ):
        node.run(way)
        node.wait_for(answer, SECONDS)
        node.reboot()
        node.wait_for(answer, SECONDS)
        assert node.run(STATES, check=False).split() == states.split()


def test_haproxy_leads_clients_to_the_node_unless_it_is_drained(node: Machine) -> None:
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
