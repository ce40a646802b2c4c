"""The packages in booted systems without Python, beside a real Galera node: what an administrator does, and sees.

The tests of this file run in order on one system for each release: installed, used, upgraded, rebooted, removed.
"""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from harness.waiting import wait_for
from tests.package.conftest import ROOT, Installed, Packages, block_of, commands_of, wait_for_node
from tests.package.machine import Machine

PAGE = "docs/install.md"
PYTHON = ROOT / ".venv" / "bin" / "python"
CHECKS_PER_SECOND = 20
SETTINGS = "/etc/clustercheckd/clustercheckd.env"
EDIT = "MAX_RECV_QUEUE=12345"
WATCHDOG_SECONDS = 10


@pytest.fixture(scope="module")
def installed(machine: Machine, packages: Packages) -> Installed:
    """Install clustercheckd as docs/install.md has it, with its very commands."""
    subject = Installed(machine)
    subject.copy(packages.deb)
    install, *others = commands_of(PAGE, "Packages")
    subject.printed.append(machine.run(install))
    states = ("is-enabled", "is-active")
    subject.after_install = [machine.run(f"systemctl {state} clustercheckd", check=False).strip() for state in states]
    subject.printed += [machine.run(command) for command in others]
    return subject


@contextmanager
def checking(machine: Machine) -> Iterator[dict[str, object]]:
    """Send health checks all the time; what was answered is there at the end of the block."""
    seen: dict[str, object] = {}
    command = machine.network_command(str(PYTHON), "-m", "tests.package.checker", "9200", str(CHECKS_PER_SECOND))
    client = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield seen
    finally:
        printed, _ = client.communicate(timeout=60)
        seen.update(json.loads(printed))


def all_were_200(seen: dict[str, object], at_least: int) -> bool:
    """Whether every health check got 200, and there were enough of them."""
    answers = seen["answers"]
    assert isinstance(answers, dict)
    return set(answers) == {"HTTP/1.1 200 OK"} and answers["HTTP/1.1 200 OK"] >= at_least


def test_there_is_no_python_on_the_system(machine: Machine) -> None:
    assert machine.run("ls /usr/bin /usr/local/bin /usr/sbin | grep -i python", check=False) == ""
    assert machine.run("dpkg --list | grep -i ' lib*python'", check=False) == ""


def test_five_commands_bring_it_from_the_file_to_an_answer(installed: Installed) -> None:
    assert len(commands_of(PAGE, "Packages")) == 5
    assert installed.printed[2].startswith("available synced: ")
    assert "HTTP/1.1 200 OK" in installed.printed[-1]


def test_installing_it_enables_and_starts_nothing_and_says_what_to_run(installed: Installed) -> None:
    assert installed.after_install == ["disabled", "inactive"]
    said = installed.printed[0].partition("Run:\n")[2].splitlines()[:3]
    commands = commands_of(PAGE, "Packages")
    assert [line.strip() for line in said] == [commands[1], commands[3], commands[4]]


def test_it_runs_as_its_user_enabled_and_logged_in_without_a_password(installed: Installed) -> None:
    machine = installed.machine
    assert machine.run("systemctl is-enabled clustercheckd; systemctl is-active clustercheckd") == "enabled\nactive\n"
    assert installed.property("User") == "clustercheck"
    sessions = machine.run('mariadb -BNe "SELECT DISTINCT USER, HOST FROM information_schema.PROCESSLIST"')
    assert "clustercheck\tlocalhost" in sessions.splitlines()
    plugin = "SELECT JSON_VALUE(Priv, '$.plugin') FROM mysql.global_priv WHERE User = 'clustercheck'"
    assert machine.run(f'mariadb -BNe "{plugin}"') == "unix_socket\n"


def test_systemd_shows_the_verdict_and_has_nothing_against_the_units(installed: Installed) -> None:
    assert installed.property("StatusText") == "available synced: wsrep_local_state is 4 (Synced)"
    units = "/usr/lib/systemd/system/clustercheckd.service /usr/lib/systemd/system/clustercheckd-retry.timer"
    assert installed.machine.run(f"systemd-analyze verify --man=no {units}") == ""
    said = installed.machine.run("systemd-analyze security --threshold=15 clustercheckd.service")
    assert "Overall exposure level for clustercheckd.service: 1." in said


def test_the_file_of_settings_is_for_root_and_the_service_only(installed: Installed) -> None:
    assert installed.machine.run(f"stat --format '%a %U:%G' {SETTINGS}") == "640 root:clustercheck\n"


def test_a_desynced_node_is_503_and_back(installed: Installed) -> None:
    installed.machine.run('mariadb -e "SET GLOBAL wsrep_desync = ON"')
    installed.wait_for("503 desynced")
    assert installed.property("StatusText").startswith("draining desynced: ")
    installed.machine.run('mariadb -e "SET GLOBAL wsrep_desync = OFF"')
    installed.wait_for("200 synced")


def test_drain_and_undrain_reach_the_service(installed: Installed) -> None:
    installed.machine.run("clustercheckd drain")
    installed.wait_for("503 disabled")
    installed.machine.run("clustercheckd undrain")
    installed.wait_for("200 synced")


def test_the_drop_in_answers_as_the_script_did(installed: Installed) -> None:
    command = "runuser -u clustercheck -- /usr/lib/clustercheckd/clustercheck clustercheck ''"
    answer = installed.machine.run(command)
    assert answer.startswith("HTTP/1.1 200 OK")
    assert answer.rstrip().endswith("Percona XtraDB Cluster Node is synced.")


def test_a_restart_fails_no_health_check(installed: Installed) -> None:
    before = installed.property("MainPID")
    with checking(installed.machine) as seen:
        for _ in range(3):
            installed.machine.run("systemctl restart clustercheckd")
            installed.wait_for("200 synced")
    assert installed.property("MainPID") != before
    assert all_were_200(seen, at_least=CHECKS_PER_SECOND), seen


def test_kill_9_is_recovered(installed: Installed) -> None:
    before = installed.property("MainPID")
    installed.machine.run("systemctl kill --signal KILL clustercheckd")
    wait_for("another process", lambda: installed.property("MainPID") not in {before, "0"}, seconds=10)
    installed.wait_for("200 synced", seconds=10)


def test_a_hanging_process_is_replaced(installed: Installed) -> None:
    before = installed.property("MainPID")
    installed.machine.run("systemctl kill --signal STOP clustercheckd")
    wait_for(
        "another process", lambda: installed.property("MainPID") not in {before, "0"}, seconds=WATCHDOG_SECONDS + 10
    )
    installed.wait_for("200 synced", seconds=10)
    assert "Watchdog timeout" in installed.machine.run("journalctl --unit clustercheckd --no-pager")


def test_a_drain_may_take_longer_than_systemd_waits_for_others(installed: Installed) -> None:
    machine = installed.machine
    machine.run("mkdir -p /run/systemd/system/clustercheckd.service.d")
    machine.path("/run/systemd/system/clustercheckd.service.d/short.conf").write_text(
        "[Service]\nTimeoutStopSec=1\nEnvironment=CLUSTERCHECK_DRAIN_SECONDS=3\n"
    )
    machine.run("systemctl daemon-reload && systemctl restart clustercheckd")
    installed.wait_for("200 synced")
    machine.run("systemctl stop --no-block clustercheckd.service")
    installed.wait_for("503 shutting-down")
    wait_for("its end", lambda: installed.property("ActiveState") == "inactive")
    assert installed.property("Result") == "success"
    machine.run("rm -r /run/systemd/system/clustercheckd.service.d && systemctl daemon-reload")
    machine.run("systemctl restart clustercheckd")
    installed.wait_for("200 synced")


def test_the_metrics_of_the_process_are_there(installed: Installed) -> None:
    # The sandbox hides /proc/stat (ProcSubset=pid), which prometheus_client asks for the boot time.
    metrics = installed.machine.run("curl -s http://localhost:9200/metrics")
    for name in ("resident_memory_bytes", "open_fds", "max_fds", "cpu_seconds_total", "start_time_seconds"):
        assert re.search(rf"^process_{name} \S+$", metrics, re.MULTILINE), name
    (started,) = re.findall(r"^process_start_time_seconds (\S+)$", metrics, re.MULTILINE)
    assert 0 < time.time() - float(started) < 3600


def test_a_password_may_come_from_a_file_or_from_systemds_credentials(installed: Installed) -> None:
    machine = installed.machine
    before = machine.run(f"cat {SETTINGS}")
    machine.run("mariadb -e \"ALTER USER clustercheck@localhost IDENTIFIED BY 'geheim'\"")
    machine.run("systemctl restart clustercheckd")
    installed.wait_for("503 access-denied")
    keep, name, restart = commands_of(PAGE, "The account")
    machine.run(f"echo geheim | {keep}")
    machine.run(name)
    machine.run(restart)
    installed.wait_for("200 synced")
    # Nobody but root may read it now, and no setting names it.
    machine.run("chmod 0600 /etc/clustercheckd/password")
    machine.path(SETTINGS).write_text(before)
    machine.run(restart)
    installed.wait_for("503 access-denied")
    # What `systemctl edit` does.
    machine.run("mkdir -p /etc/systemd/system/clustercheckd.service.d")
    edited = machine.path("/etc/systemd/system/clustercheckd.service.d/override.conf")
    edited.write_text(block_of(PAGE, "The account", "ini"))
    machine.run("systemctl daemon-reload")
    machine.run(restart)
    installed.wait_for("200 synced")
    machine.run('mariadb -e "ALTER USER clustercheck@localhost IDENTIFIED VIA unix_socket"')
    machine.run("rm /etc/clustercheckd/password")
    machine.run("systemctl revert clustercheckd && systemctl restart clustercheckd")
    installed.wait_for("200 synced")


@pytest.mark.parametrize("port", [9209, 9200])
def test_the_address_is_that_of_the_settings(installed: Installed, port: int) -> None:
    # On 9200 as well, where systemd keeps the socket for every address over the restart.
    machine = installed.machine
    lines = block_of(PAGE, "Settings", "sh").replace("10.0.0.11", "127.0.0.1").replace("9200", str(port))
    before = machine.run(f"cat {SETTINGS}")
    machine.path(SETTINGS).write_text(before + lines)
    machine.run("systemctl restart clustercheckd")
    assert machine.run(f"curl -si http://127.0.0.1:{port}/").startswith("HTTP/1.1 200 OK")
    assert "127.0.0.1" in machine.run(f"ss -Hltn 'sport = :{port}'")
    assert port == 9200 or installed.ask() == "000"
    # The commands ask there too.
    machine.run("clustercheckd drain && clustercheckd undrain && clustercheckd status")
    machine.path(SETTINGS).write_text(before)
    machine.run("systemctl restart clustercheckd")
    installed.wait_for("200 synced")


def test_stopped_it_stays_stopped(installed: Installed) -> None:
    installed.machine.run("systemctl stop clustercheckd")
    units = "systemctl is-active clustercheckd clustercheckd-retry.timer"
    assert installed.ask() == "000"
    assert installed.machine.run(units, check=False) == "inactive\ninactive\n"
    assert installed.machine.run("ss -Hltn 'sport = :9200'") == ""
    assert installed.machine.run("systemctl list-jobs --no-legend | grep clustercheckd", check=False) == ""
    installed.machine.run("systemctl start clustercheckd")
    installed.wait_for("200 synced")


def test_a_bad_setting_is_one_line_in_half_a_minute_until_it_is_corrected(installed: Installed) -> None:
    machine = installed.machine
    machine.run(f"echo CLUSTERCHECK_DEADLINE=soon >> {SETTINGS}")
    begun = machine.run("date +%s").strip()

    def said() -> list[str]:
        return machine.run(f"journalctl --unit clustercheckd --no-pager --output cat --since @{begun}").splitlines()

    def attempts() -> int:
        return sum(one.startswith("Starting clustercheckd") for one in said())

    try:
        assert not machine.succeeds("systemctl restart clustercheckd")
        # Refused, not left hanging.
        assert machine.run("curl -s -m 2 http://localhost:9200/ || echo $?", check=False) == "7\n"
        line = rf"clustercheckd: {SETTINGS}, line \d+: CLUSTERCHECK_DEADLINE: 'soon' is not a duration; examples: .*"
        # The start of the test before this one may have been in the same second.
        first = attempts()
        wait_for("a second attempt", lambda: attempts() > first, seconds=60)
        wait_for("the line", lambda: any(re.fullmatch(line, one) for one in said()))
        assert attempts() <= first + 2
        assert len(said()) < 30
        assert not any("Traceback" in one for one in said())
    finally:
        machine.run(f"sed -i /soon/d {SETTINGS}")
    # By itself.
    installed.wait_for("200 synced", seconds=60)


def test_an_upgrade_fails_no_health_check_and_keeps_what_was_edited(
    installed: Installed, next_packages: Packages
) -> None:
    machine = installed.machine
    machine.run(f"echo {EDIT} >> {SETTINGS}")
    installed.copy(next_packages.deb)
    before = installed.property("MainPID")
    with checking(machine) as seen:
        said = machine.run(f"apt install ./{next_packages.deb.name}")
        installed.wait_for("200 synced")
    assert all_were_200(seen, at_least=CHECKS_PER_SECOND), seen
    assert installed.property("MainPID") not in {before, "0"}
    assert machine.run("dpkg-query --show --showformat '${Version}' clustercheckd") == f"{next_packages.version}-1"
    assert EDIT in machine.run(f"cat {SETTINGS}").splitlines()
    status = json.loads(machine.run("curl -s http://localhost:9200/status"))
    assert f"MAX_RECV_QUEUE={status['policy']['max_recv_queue']}" == EDIT
    assert "Run:" not in said
    assert "not enabled" not in said


def test_a_rollback_does_the_same(installed: Installed, packages: Packages) -> None:
    machine = installed.machine
    with checking(machine) as seen:
        machine.run(f"apt install -y --allow-downgrades ./{packages.deb.name}")
        installed.wait_for("200 synced")
    assert all_were_200(seen, at_least=CHECKS_PER_SECOND), seen
    assert machine.run("dpkg-query --show --showformat '${Version}' clustercheckd") == f"{packages.version}-1"
    assert EDIT in machine.run(f"cat {SETTINGS}").splitlines()


def test_every_file_is_as_the_package_has_it(installed: Installed) -> None:
    installed.machine.run(f"sed -i /{EDIT}/d {SETTINGS}")
    assert installed.machine.run("dpkg --verify clustercheckd") == ""


def test_it_comes_up_by_itself_after_a_reboot(installed: Installed) -> None:
    installed.machine.reboot()
    wait_for_node(installed.machine)
    installed.wait_for("200 synced")


def test_it_starts_and_answers_while_the_server_is_down(installed: Installed) -> None:
    machine = installed.machine
    machine.run("systemctl stop mariadb")
    installed.wait_for("503 unreachable")
    machine.run("systemctl restart clustercheckd")
    installed.wait_for("503 unreachable")
    machine.run("systemctl start mariadb")
    installed.wait_for("200 synced", seconds=60)


def test_removed_and_installed_again_it_says_that_it_is_not_enabled(installed: Installed, packages: Packages) -> None:
    machine = installed.machine
    machine.run(f"echo {EDIT} >> {SETTINGS}")
    machine.run("apt remove -y clustercheckd")
    assert installed.ask() == "000"
    assert machine.run("systemctl list-unit-files | grep clustercheck", check=False) == ""
    said = machine.run(f"apt install -y ./{packages.deb.name}")
    (line,) = (line for line in said.splitlines() if "enable" in line)
    assert line.endswith("run: systemctl enable --now clustercheckd")
    assert installed.property("ActiveState") == "inactive"
    assert EDIT in machine.run(f"cat {SETTINGS}").splitlines()
    machine.run("systemctl enable --now clustercheckd")
    installed.wait_for("200 synced")


def test_purged_it_leaves_what_it_names(installed: Installed) -> None:
    machine = installed.machine
    machine.run("clustercheckd drain && touch /etc/clustercheckd/password")
    said = machine.run("apt purge -y clustercheckd").splitlines()
    assert installed.ask() == "000"
    named = [line.removeprefix("clustercheckd leaves ") for line in said if line.startswith("clustercheckd leaves ")]
    assert named[:2] == ["/etc/clustercheckd", "/var/tmp/clustercheck.disabled"]  # noqa: S108 (the script's place)
    assert named[2].startswith("the user clustercheck. ")
    left = machine.run("find / -xdev -path /proc -prune -o -name '*clustercheck*' -print | sort").splitlines()
    assert [path for path in left if not path.startswith(("/root/", "/var/cache/", "/var/lib/apt/"))] == named[:2]
    assert machine.run("systemctl list-unit-files | grep clustercheck", check=False) == ""
    assert machine.run("getent passwd clustercheck").startswith("clustercheck:")
    machine.run("rm -r /etc/clustercheckd /var/tmp/clustercheck.disabled")


def test_the_rpms_scripts_do_the_same(installed: Installed, packages: Packages, next_packages: Packages) -> None:
    machine = installed.machine
    # rpm knows none of Debian's packages.
    rpm = "rpm --nodeps"
    for build in (packages, next_packages):
        installed.copy(build.rpm)
    said = machine.run(f"{rpm} --install {packages.rpm.name}")
    assert "Run:" in said
    assert machine.run("systemctl is-enabled clustercheckd", check=False) == "disabled\n"
    assert machine.run(f"stat --format '%a %U:%G' {SETTINGS}") == "640 root:clustercheck\n"
    assert machine.run("rpm --verify --nodeps clustercheckd") == ""
    machine.run("systemctl enable --now clustercheckd")
    installed.wait_for("200 synced")
    machine.run(f"echo {EDIT} >> {SETTINGS}")
    before = installed.property("MainPID")
    with checking(machine) as seen:
        machine.run(f"{rpm} --upgrade {next_packages.rpm.name}")
        installed.wait_for("200 synced")
    assert all_were_200(seen, at_least=1), seen
    assert installed.property("MainPID") not in {before, "0"}
    assert EDIT in machine.run(f"cat {SETTINGS}").splitlines()
    machine.run(f"{rpm} --erase clustercheckd")
    assert installed.ask() == "000"
    assert not machine.succeeds("ls -d /usr/lib/clustercheckd /usr/share/doc/clustercheckd")
    assert not machine.succeeds("systemctl is-enabled clustercheckd")
