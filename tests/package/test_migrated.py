"""Three hosts with a script, from it to clustercheckd and back, by the page."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.settings.disabled_file import DISABLED_FILE
from harness.waiting import wait_for
from tests.package.conftest import Packages, commands_of
from tests.package.machine import Machine
from tests.unit.pages import PAGES

PAGE = "docs/migrating-from-clustercheck.md"
(OTHER_PORT, START), (COMPARE, *CHANGES), (OWN_PORT, SWITCH, _), (BACK,) = (
    commands_of(PAGE, "Steps", number) for number in range(4)
)
LISTENS, DISABLE = commands_of(PAGE, "If the port is in use")
SETTINGS = "/etc/clustercheckd/clustercheckd.env"
PASSWORD_FILE = "/etc/clustercheckd/password"
PASSWORD = "of the script"
SECONDS = 60
BY_THE_SCRIPT = "200"
"""An answer without a reason: only clustercheckd sends one."""


@dataclass(frozen=True)
class Host:
    """A host with a script, whose files are in hosts/NAME; clustercheckd.env is the page's.

    answers: those of both while it is synced, and after each command of `CHANGES`.
    """

    name: str
    answers: str
    unit: str = "xinetd"
    drain_file: str = DISABLED_FILE


HOSTS = [
    Host("stock", "200 200, 503 503, 503 503, 503 503"),
    # It has no drain file.
    Host("newer", "200 200, 200 200, 200 200, 200 503", unit="clustercheck.socket"),
    Host("fork", "200 200, 200 200, 200 200, 503 503", drain_file="/run/drain.lock"),
]


@pytest.fixture(scope="module")
def node(machine: Machine, packages: Packages) -> Machine:
    """Return a node with the package, and with the script's account."""
    machine.run(
        f"mariadb -e \"CREATE USER clustercheckuser@localhost IDENTIFIED BY '{PASSWORD}'\""
    )
    machine.copy(packages.deb)
    machine.run(commands_of("docs/install.md", "Packages")[0])
    machine.run(
        f"install -m 0640 -g clustercheck /dev/stdin {PASSWORD_FILE} <<<'{PASSWORD}'"
    )
    return machine


@pytest.fixture(params=HOSTS, ids=lambda host: host.name)
def host(request: pytest.FixtureRequest, node: Machine) -> Iterator[Host]:
    """Return one of the hosts: its script answers on port 9200, and the env file is written."""
    chosen: Host = request.param
    files = Path(__file__).parent / "hosts" / chosen.name
    shutil.copytree(files, node.path("/"), dirs_exist_ok=True)
    node.run(f"install -m 0640 -g clustercheck /clustercheckd.env {SETTINGS}")
    restart = f"systemctl enable {chosen.unit} && systemctl restart {chosen.unit}"
    node.run(f"systemctl daemon-reload && {restart}")
    node.wait_for(BY_THE_SCRIPT, SECONDS)
    yield chosen
    stop = (
        f"systemctl disable {chosen.unit} && systemctl stop {chosen.unit} clustercheckd"
    )
    node.run(f"{stop} && rm -f /etc/xinetd.d/mysqlchk")


def wait_for_answers(machine: Machine, expected: list[str]) -> None:
    """Wait until the script and clustercheckd give these answers."""

    def given() -> bool:
        said = machine.run(COMPARE, check=False)
        return re.findall(r"^(\d{3})$", said, re.MULTILINE) == expected

    wait_for(f"the answers {expected}", given, seconds=SECONDS)


def test_a_host_is_migrated_by_the_page_and_back(node: Machine, host: Host) -> None:
    node.run(OTHER_PORT)
    node.run(START)
    for change, answers in zip(
        ["true", *CHANGES], host.answers.split(", "), strict=True
    ):
        command = change.replace(DISABLED_FILE, host.drain_file)
        node.run(command)
        wait_for_answers(node, answers.split())
        node.run(command.replace("ON", "OFF").replace("touch", "rm"))
    node.run(OWN_PORT)
    for way, answer, states in (
        (SWITCH, "200 synced", "enabled disabled"),
        (BACK, BY_THE_SCRIPT, "disabled enabled"),
    ):
        node.run(way.replace("xinetd", host.unit))
        node.wait_for(answer, SECONDS)
        # Also after a reboot. Debian 12's xinetd has no unit of its own, and systemctl says more.
        for unit, state in zip(
            ("clustercheckd", host.unit), states.split(), strict=True
        ):
            said = node.run(f"systemctl is-enabled {unit} 2>/dev/null", check=False)
            assert said == f"{state}\n"


@pytest.mark.parametrize("host", [HOSTS[1]], ids=["newer"], indirect=True)
def test_where_both_are_enabled_the_log_says_how_to_see_who_has_the_port(
    node: Machine, host: Host
) -> None:
    node.run("systemctl enable clustercheckd")
    node.reboot()
    node.wait_for(BY_THE_SCRIPT, SECONDS)
    journal = "journalctl -b -u clustercheckd -p err -o cat"
    hint = "Address already in use: see, as root: ss -Hltnp 'sport = :9200'; systemctl list-sockets"
    wait_for("the hint", lambda: hint in node.run(journal), seconds=SECONDS)
    told = "something else answers there (200 OK): the clustercheck script?"
    for typed in ("drain", "undrain"):
        said = node.run(f"clustercheckd {typed}", check=False)
        assert f"not confirmed: 127.0.0.1:9200: {told}" in said
    # The line of `LISTENS` has the unit after the port.
    (unit,) = re.findall(r"(\S+\.socket)", node.run(LISTENS))
    assert unit == host.unit
    node.run(DISABLE.replace("mariadbcheck.socket", unit))
    node.wait_for("200 synced", SECONDS)


def test_an_account_with_both_plugins_lets_in_the_script_and_clustercheckd(
    node: Machine,
) -> None:
    (both,) = re.findall("`(ALTER USER[^`]+)`", PAGES[PAGE].read_text())
    create = "CREATE USER clustercheck@localhost IDENTIFIED BY"
    node.run(f"mariadb -e \"{create} 'before'; {both.replace('...', PASSWORD)}\"")
    ask = "mariadb -BNe 'SELECT CURRENT_USER()'"
    for typed in (
        f"{ask} --user=clustercheck --password='{PASSWORD}'",
        f"runuser -u clustercheck -- {ask}",
    ):
        assert node.run(typed) == "clustercheck@localhost\n"
    node.run('mariadb -e "DROP USER clustercheck@localhost"')
