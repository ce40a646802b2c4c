"""The packages in booted systems without Python, beside a real Galera node: what an administrator
does, and sees.

The tests of this file run in order on one system for each release: installed, used, upgraded,
rebooted, removed.
"""

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from harness.waiting import wait_for
from tests.package.conftest import Packages, block_of, commands_of
from tests.package.machine import Machine

PAGE = "docs/install.md"
SETTINGS = "/etc/clustercheckd/clustercheckd.env"
EDIT = "MAX_RECV_QUEUE=12345"
WATCHDOG_SECONDS = 10


@contextmanager
def no_failed_health_check(machine: Machine) -> Iterator[None]:
    """Check that ten health checks a second get 200 during the block, each sent whether or not
    others are answered.
    """
    ask = "curl -s -m 10 -o /dev/null -w '%{http_code}\\n' http://localhost:9200/"
    machine.run("touch /run/asking")
    with ThreadPoolExecutor() as executor:
        asking = executor.submit(
            machine.run, f"while [ -e /run/asking ]; do {ask} & sleep 0.1; done; wait"
        )
        try:
            yield
        finally:
            machine.run("rm /run/asking")
    statuses = asking.result().split()
    assert set(statuses) == {"200"}
    assert len(statuses) > 10


def test_five_commands_bring_it_from_the_file_to_an_answer(
    machine: Machine, packages: Packages
) -> None:
    machine.copy(packages.deb)
    install, *others = commands_of(PAGE, "Packages")
    said = machine.run(install)
    # That enables and starts nothing, and says what to run.
    states = "systemctl is-enabled clustercheckd; systemctl is-active clustercheckd"
    assert machine.run(states, check=False) == "disabled\ninactive\n"
    create, check, enable, ask = others
    assert [line.strip() for line in said.partition("Run:\n")[2].splitlines()[:4]] == others
    machine.run(create)
    assert machine.run(check).startswith("available synced: ")
    machine.run(enable)
    assert "HTTP/1.1 200 OK" in machine.run(ask)
    assert machine.run(states) == "enabled\nactive\n"


def test_it_runs_as_its_user_and_logs_in_without_a_password(machine: Machine) -> None:
    assert machine.show("User") == "clustercheck"
    sessions = machine.run(
        'mariadb -BNe "SELECT DISTINCT USER, HOST FROM information_schema.PROCESSLIST"'
    )
    assert "clustercheck\tlocalhost" in sessions.splitlines()
    plugin = (
        "SELECT JSON_VALUE(Priv, '$.plugin') FROM mysql.global_priv WHERE User = 'clustercheck'"
    )
    assert machine.run(f'mariadb -BNe "{plugin}"') == "unix_socket\n"
    # The settings may hold a password.
    assert machine.run(f"stat --format '%a %U:%G' {SETTINGS}") == "640 root:clustercheck\n"


def test_systemd_shows_the_verdict_and_has_nothing_against_the_units(machine: Machine) -> None:
    assert machine.show("StatusText") == "available synced: wsrep_local_state is 4 (Synced)"
    units = "/usr/lib/systemd/system/clustercheckd.service /usr/lib/systemd/system/clustercheckd-retry.timer"
    assert machine.run(f"systemd-analyze verify --man=no {units}") == ""
    said = machine.run("systemd-analyze security --threshold=15 clustercheckd.service")
    assert "Overall exposure level for clustercheckd.service: 1." in said


def test_the_drop_in_answers_as_the_script_did(machine: Machine) -> None:
    command = "runuser -u clustercheck -- /usr/lib/clustercheckd/clustercheck clustercheck ''"
    answer = machine.run(command)
    assert answer.startswith("HTTP/1.1 200 OK")
    assert answer.rstrip().endswith("Percona XtraDB Cluster Node is synced.")


def test_a_restart_fails_no_health_check(machine: Machine) -> None:
    before = machine.show("MainPID")
    with no_failed_health_check(machine):
        for _ in range(3):
            machine.restart()
    assert machine.show("MainPID") != before


def wait_for_limit(machine: Machine, limit: int) -> None:
    """Wait until the service has this limit for the receive queue."""
    status = "curl -s http://localhost:9200/status"
    wait_for("the setting", lambda: f'"max_recv_queue":{limit}' in machine.run(status))


def test_a_reload_takes_new_settings_and_fails_no_health_check(machine: Machine) -> None:
    before, process = machine.run(f"cat {SETTINGS}"), machine.show("MainPID")
    with no_failed_health_check(machine):
        for limit in (1111, 2222):
            machine.path(SETTINGS).write_text(f"{before}MAX_RECV_QUEUE={limit}\n")
            (reload,) = commands_of(PAGE, "Settings")
            machine.run(reload)
            wait_for_limit(machine, limit)
        # The watchdog has to be fed by the same process.
        assert machine.show("MainPID") == process
        machine.path(SETTINGS).write_text(f"{before}MAX_RECV_QUEUE=many\n")
        assert not machine.succeeds(reload)
        assert machine.run("clustercheckd serve --check-settings", check=False).count("\n") == 1
        # A signal alone, without the check of the unit.
        machine.run("systemctl kill --signal HUP clustercheckd")
        log = "journalctl --unit clustercheckd --no-pager --output cat --priority err"
        wait_for("the line", lambda: f'not reloaded detail="{SETTINGS}, line ' in machine.run(log))
    assert (machine.show("MainPID"), machine.show("NRestarts"), machine.show("ActiveState")) == (
        process,
        "0",
        "active",
    )
    machine.path(SETTINGS).write_text(before)
    machine.run(reload)
    machine.wait_for("200 synced")


def test_a_service_that_was_reloaded_is_watched_as_before(machine: Machine) -> None:
    process = machine.show("MainPID")
    machine.run("systemctl reload clustercheckd")
    machine.wait_for("200 synced")
    with no_failed_health_check(machine):
        # Longer than the watchdog waits.
        deadline = time.monotonic() + WATCHDOG_SECONDS + 3
        wait_for(
            "the watchdog's time to pass",
            lambda: time.monotonic() > deadline,
            seconds=2 * WATCHDOG_SECONDS,
        )
    assert machine.show("MainPID") == process


@pytest.mark.parametrize("fault", ["KILL", "STOP"])
def test_a_process_that_is_killed_or_hangs_is_replaced(machine: Machine, fault: str) -> None:
    before = machine.show("MainPID")
    machine.run(f"systemctl kill --signal {fault} clustercheckd")
    seconds = WATCHDOG_SECONDS + 10
    wait_for(
        "another process", lambda: machine.show("MainPID") not in {before, "0"}, seconds=seconds
    )
    machine.wait_for("200 synced", seconds=10)


def override(machine: Machine, text: str) -> None:
    """Do what `systemctl edit` does."""
    machine.run("mkdir -p /etc/systemd/system/clustercheckd.service.d")
    machine.path("/etc/systemd/system/clustercheckd.service.d/override.conf").write_text(text)
    machine.run("systemctl daemon-reload")


def test_a_drain_may_take_longer_than_systemd_waits_for_others(machine: Machine) -> None:
    override(machine, "[Service]\nTimeoutStopSec=1\nEnvironment=CLUSTERCHECK_DRAIN_SECONDS=3\n")
    machine.restart()
    machine.run("systemctl stop --no-block clustercheckd.service")
    machine.wait_for("503 shutting-down")
    wait_for("its end", lambda: machine.show("ActiveState") == "inactive")
    assert machine.show("Result") == "success"
    machine.run("systemctl revert clustercheckd")
    machine.restart()


def test_the_metrics_of_the_process_are_there(machine: Machine) -> None:
    # The sandbox hides /proc/stat (ProcSubset=pid), which prometheus_client asks for the boot time.
    metrics = machine.run("curl -s http://localhost:9200/metrics")
    for name in (
        "resident_memory_bytes",
        "open_fds",
        "max_fds",
        "cpu_seconds_total",
        "start_time_seconds",
    ):
        assert re.search(rf"^process_{name} \S+$", metrics, re.MULTILINE), name
    (started,) = re.findall(r"^process_start_time_seconds (\S+)$", metrics, re.MULTILINE)
    assert 0 < time.time() - float(started) < 3600


def test_a_password_may_come_from_a_file_or_from_systemds_credentials(machine: Machine) -> None:
    before = machine.run(f"cat {SETTINGS}")
    machine.run("mariadb -e \"ALTER USER clustercheck@localhost IDENTIFIED BY 'geheim'\"")
    machine.restart("503 access-denied")
    keep, name, reload = commands_of(PAGE, "The account")
    machine.run(f"echo geheim | {keep} && {name} && {reload}")
    machine.wait_for("200 synced")
    # Nobody but root may read it now, and no setting names it.
    machine.run("chmod 0600 /etc/clustercheckd/password")
    machine.path(SETTINGS).write_text(before)
    machine.restart("503 access-denied")
    override(machine, block_of(PAGE, "The account", "ini"))
    machine.restart()
    # systemd reads a credential when the service starts. Debian 13's does not read it for a reload,
    # and hides it there.
    machine.run("mariadb -e \"ALTER USER clustercheck@localhost IDENTIFIED BY 'neu'\"")
    machine.run("echo neu > /etc/clustercheckd/password && systemctl reload clustercheckd")
    machine.restart()
    machine.run('mariadb -e "ALTER USER clustercheck@localhost IDENTIFIED VIA unix_socket"')
    machine.run("rm /etc/clustercheckd/password && systemctl revert clustercheckd")
    machine.restart()


@pytest.mark.parametrize("port", [9209, 9200])
def test_the_address_is_that_of_the_settings(machine: Machine, port: int) -> None:
    # On 9200 as well, where systemd keeps the socket for every address over the restart.
    lines = f"CLUSTERCHECK_HOST=127.0.0.1\nCLUSTERCHECK_PORT={port}\n"
    before = machine.run(f"cat {SETTINGS}")
    machine.path(SETTINGS).write_text(before + lines)
    machine.run("systemctl restart clustercheckd")
    assert machine.run(f"curl -si http://127.0.0.1:{port}/").startswith("HTTP/1.1 200 OK")
    assert "127.0.0.1" in machine.run(f"ss -Hltn 'sport = :{port}'")
    assert port == 9200 or machine.answer == ""
    # The commands ask there too.
    machine.run("clustercheckd drain && clustercheckd undrain && clustercheckd status")
    machine.path(SETTINGS).write_text(before)
    machine.restart()


def test_stopped_it_stays_stopped(machine: Machine) -> None:
    machine.run("systemctl stop clustercheckd")
    units = "systemctl is-active clustercheckd clustercheckd-retry.timer"
    assert machine.answer == ""
    assert machine.run(units, check=False) == "inactive\ninactive\n"
    assert machine.run("ss -Hltn 'sport = :9200'") == ""
    assert machine.run("systemctl list-jobs --no-legend | grep clustercheckd", check=False) == ""
    machine.run("systemctl start clustercheckd")
    machine.wait_for("200 synced")


def test_a_bad_setting_is_one_line_in_half_a_minute_until_it_is_corrected(machine: Machine) -> None:
    machine.run(f"echo CLUSTERCHECK_DEADLINE=soon >> {SETTINGS}")
    begun = machine.run("date +%s").strip()

    def said() -> list[str]:
        return machine.run(
            f"journalctl --unit clustercheckd --no-pager --output cat --since @{begun}"
        ).splitlines()

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
    machine.wait_for("200 synced", seconds=60)


@pytest.mark.parametrize("direction", ["an upgrade", "a rollback"])
def test_it_fails_no_health_check_and_keeps_what_was_edited(
    machine: Machine, packages: Packages, next_packages: Packages, direction: str
) -> None:
    to = next_packages if direction == "an upgrade" else packages
    machine.run(f"grep -qx {EDIT} {SETTINGS} || echo {EDIT} >> {SETTINGS}")
    machine.copy(to.deb)
    before = machine.show("MainPID")
    with no_failed_health_check(machine):
        said = machine.run(f"apt install -y --allow-downgrades ./{to.deb.name}")
        machine.wait_for("200 synced")
    assert machine.show("MainPID") not in {before, "0"}
    assert (
        machine.run("dpkg-query --show --showformat '${Version}' clustercheckd")
        == f"{to.version}-1"
    )
    status = json.loads(machine.run("curl -s http://localhost:9200/status"))
    assert f"MAX_RECV_QUEUE={status['policy']['max_recv_queue']}" == EDIT
    assert "Run:" not in said
    assert "not enabled" not in said


def test_every_file_is_as_the_package_has_it(machine: Machine) -> None:
    machine.run(f"sed -i /{EDIT}/d {SETTINGS}")
    assert machine.run("dpkg --verify clustercheckd") == ""


def test_it_comes_up_by_itself_after_a_reboot_and_starts_while_the_server_is_down(
    machine: Machine,
) -> None:
    machine.reboot()
    machine.wait_for("200 synced")
    machine.run("systemctl stop mariadb")
    machine.restart("503 unreachable")

    def warned() -> set[str]:
        command = (
            "journalctl --unit clustercheckd --boot --priority warning --no-pager --output cat"
        )
        return {
            line.partition(" reason=")[0] for line in machine.run(command, check=False).splitlines()
        }

    # Each line of the log has its priority in the journal.
    wait_for("the journal to have the warning", lambda: "unavailable" in warned())
    assert "available" not in warned()
    machine.run("systemctl start mariadb")
    machine.wait_for("200 synced", seconds=60)


def test_removed_and_installed_again_it_says_that_it_is_not_enabled(
    machine: Machine, packages: Packages
) -> None:
    machine.run(f"echo {EDIT} >> {SETTINGS}")
    machine.run("apt remove -y clustercheckd")
    assert machine.answer == ""
    assert machine.run("systemctl list-unit-files | grep clustercheck", check=False) == ""
    said = machine.run(f"apt install -y ./{packages.deb.name}")
    (line,) = (line for line in said.splitlines() if "enable" in line)
    assert line.endswith("run: systemctl enable --now clustercheckd")
    assert machine.show("ActiveState") == "inactive"
    assert EDIT in machine.run(f"cat {SETTINGS}").splitlines()
    machine.run("systemctl enable --now clustercheckd")
    machine.wait_for("200 synced")


def test_purged_it_leaves_what_it_names(machine: Machine) -> None:
    machine.run("clustercheckd drain && touch /etc/clustercheckd/password")
    said = machine.run("apt purge -y clustercheckd").splitlines()
    assert machine.answer == ""
    named = [
        line.removeprefix("clustercheckd leaves ")
        for line in said
        if line.startswith("clustercheckd leaves ")
    ]
    assert named[:2] == ["/etc/clustercheckd", "/var/tmp/clustercheck.disabled"]  # noqa: S108 (the script's place)
    assert named[2].startswith("the user clustercheck. ")
    left = machine.run(
        "find / -xdev -path /proc -prune -o -name '*clustercheck*' -print | sort"
    ).splitlines()
    assert [
        path for path in left if not path.startswith(("/root/", "/var/cache/", "/var/lib/apt/"))
    ] == named[:2]
    assert machine.run("systemctl list-unit-files | grep clustercheck", check=False) == ""
    assert machine.run("getent passwd clustercheck").startswith("clustercheck:")
    machine.run("rm -r /etc/clustercheckd /var/tmp/clustercheck.disabled")


def test_purged_as_it_was_installed_it_leaves_only_the_user(
    machine: Machine, packages: Packages
) -> None:
    machine.copy(packages.deb)
    machine.run(f"apt install -y ./{packages.deb.name}")
    assert machine.run("apt purge -y clustercheckd").count("clustercheckd leaves ") == 1
    assert not machine.succeeds("ls -d /etc/clustercheckd")


def test_the_rpms_scripts_do_the_same(
    machine: Machine, packages: Packages, next_packages: Packages
) -> None:
    # rpm knows none of Debian's packages.
    rpm = "rpm --nodeps"
    for build in (packages, next_packages):
        machine.copy(build.rpm)
    said = machine.run(f"{rpm} --install {packages.rpm.name}")
    assert "Run:" in said
    assert machine.run("systemctl is-enabled clustercheckd", check=False) == "disabled\n"
    assert machine.run(f"stat --format '%a %U:%G' {SETTINGS}") == "640 root:clustercheck\n"
    assert machine.run("rpm --verify --nodeps clustercheckd") == ""
    machine.run("systemctl enable --now clustercheckd")
    machine.wait_for("200 synced")
    machine.run(f"echo {EDIT} >> {SETTINGS}")
    before = machine.show("MainPID")
    with no_failed_health_check(machine):
        machine.run(f"{rpm} --upgrade {next_packages.rpm.name}")
        machine.wait_for("200 synced")
    assert machine.show("MainPID") not in {before, "0"}
    assert EDIT in machine.run(f"cat {SETTINGS}").splitlines()
    machine.run(f"{rpm} --erase clustercheckd")
    assert machine.answer == ""
    assert not machine.succeeds("ls -d /usr/lib/clustercheckd /usr/share/doc/clustercheckd")
    assert not machine.succeeds("systemctl is-enabled clustercheckd")
