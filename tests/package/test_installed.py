"""The packages in booted systems without Python: what an administrator does, and sees.

The tests of this file run in order on one system for each release: installed, used, upgraded,
rebooted, removed.
"""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from app.settings.disabled_file import DISABLED_FILE
from harness.quota import share_like
from harness.waiting import wait_for
from tests.measured import DisturbedError, let_pass
from tests.package.conftest import Packages, commands_of
from tests.package.machine import Machine
from tests.unit.pages import blocks_under

PAGE = "docs/install.md"
SETTINGS = "/etc/clustercheckd/clustercheckd.env"
PASSWORD_FILE = "/etc/clustercheckd/password"
EDIT = "MAX_RECV_QUEUE=12345"
KEEPS_EDIT = f"grep -qx {EDIT} {SETTINGS}"
WATCHDOG_SECONDS = 10
ANSWERED, NOT_IN_TIME = "200/0", "000/28"
"""The status and curl's own: curl(1), exit codes."""


@contextmanager
def no_failed_health_check(
    machine: Machine, *, replaced: bool, seconds: int = 10
) -> Iterator[None]:
    """Fail unless all of ten health checks a second get 200 while the block runs, and after it.

    Each is sent whether or not others are answered. replaced: whether another process of the
    service answers at the end. seconds: how long each may take.
    """
    before = machine.main_pid
    told = "%{http_code}/%{exitcode}\\n"
    ask = f"curl -s -m {seconds} -o /dev/null -w '{told}' http://localhost:9200/"
    machine.run("touch /run/asking")
    with ThreadPoolExecutor() as executor:
        asking = executor.submit(
            machine.run,
            # A block that is over within a second is asked about for a second.
            "n=0; while [ -e /run/asking ] || [ $n -lt 12 ]; do"
            f" {ask} & n=$((n + 1)); sleep 0.1; done; wait",
        )
        try:
            yield
            machine.wait_for()
        finally:
            machine.run("rm /run/asking")
    statuses = asking.result().split()
    if set(statuses) == {ANSWERED, NOT_IN_TIME}:
        late = statuses.count(NOT_IN_TIME)
        raise DisturbedError(f"{late} of {len(statuses)} not within {seconds} s")
    assert set(statuses) == {ANSWERED}
    assert len(statuses) > 10
    assert (machine.main_pid != before) is replaced


def test_five_commands_bring_it_from_the_file_to_an_answer(
    machine: Machine, packages: Packages
) -> None:
    machine.copy(packages.deb)
    first, *others = commands_of(PAGE, "Packages")
    said = machine.run(first)
    # That enables and starts nothing, and says what to run.
    states = "systemctl is-enabled clustercheckd; systemctl is-active clustercheckd"
    assert machine.run(states, check=False) == "disabled\ninactive\n"
    create, check, enable, ask = others
    assert [
        line.strip() for line in said.partition("Run:\n")[2].splitlines()[:4]
    ] == others
    machine.run(create)
    told, verdict, *_ = machine.run(check).splitlines()
    assert told.startswith("clustercheckd: clustercheckd.service does not run: ")
    assert verdict.startswith("available synced: ")
    machine.run(enable)
    assert "HTTP/1.1 200 OK" in machine.run(ask)
    assert machine.run(states) == "enabled\nactive\n"


def test_it_runs_as_its_user_and_logs_in_without_a_password(machine: Machine) -> None:
    assert machine.show("User") == "clustercheck"
    sessions = machine.run(
        'mariadb -BNe "SELECT DISTINCT USER, HOST FROM information_schema.PROCESSLIST"'
    )
    assert "clustercheck\tlocalhost" in sessions.splitlines()
    plugin = "SELECT JSON_VALUE(Priv, '$.plugin') FROM mysql.global_priv WHERE User = 'clustercheck'"
    assert machine.run(f'mariadb -BNe "{plugin}"') == "unix_socket\n"
    # The settings may hold a password.
    assert (
        machine.run(f"stat --format '%a %U:%G' {SETTINGS}") == "640 root:clustercheck\n"
    )


def test_systemd_shows_the_verdict_and_has_nothing_against_the_units(
    machine: Machine,
) -> None:
    assert (
        machine.show("StatusText")
        == "available synced: wsrep_local_state is 4 (Synced)"
    )
    folder = "/usr/lib/systemd/system"
    units = f"{folder}/clustercheckd.service {folder}/clustercheckd-retry.timer"
    assert machine.run(f"systemd-analyze verify --man=no {units}") == ""
    said = machine.run("systemd-analyze security --threshold=15 clustercheckd.service")
    assert "Overall exposure level for clustercheckd.service: 1." in said


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("clustercheckd undr", "clustercheckd undrain "),
        ("clustercheckd status --wat", "clustercheckd status --watch "),
        (
            "clustercheckd check --env-file /etc/clusterc",
            "clustercheckd check --env-file /etc/clustercheckd/",
        ),
    ],
)
def test_bash_completes_a_command_line(
    machine: Machine, typed: str, completed: str
) -> None:
    # In a login shell at a terminal: the tab key, then Ctrl-A and #, so that Enter runs nothing.
    keys = f"printf '%s\\t\\001#\\nexit\\n' '{typed}'"
    screen = machine.run(f"{keys} | timeout 20 script -qec 'bash -il' /dev/null")
    assert completed in screen


def test_a_restart_fails_no_health_check(machine: Machine) -> None:
    with no_failed_health_check(machine, replaced=True):
        for _ in range(3):
            machine.restart()


@contextmanager
def settings(machine: Machine, lines: str) -> Iterator[None]:
    """Add lines to the file of settings while the block runs. The caller tells the service."""
    before = machine.run(f"cat {SETTINGS}")
    machine.path(SETTINGS).write_text(before + lines)
    try:
        yield
    finally:
        machine.path(SETTINGS).write_text(before)


def test_a_reload_has_a_successor_take_over(machine: Machine) -> None:
    (reload,) = commands_of(PAGE, "Settings")
    with no_failed_health_check(machine, replaced=True):
        with settings(machine, f"{EDIT}\n"):
            machine.run(reload)
            status = "curl -s http://localhost:9200/status"
            wait_for(
                "the setting", lambda: '"max_recv_queue":12345' in machine.run(status)
            )
        # As root and as the unit: settings that are wrong, and with which the node cannot be read.
        for line, code, told in (
            ("MAX_RECV_QUEUE=many", 2, "MAX_RECV_QUEUE: must be "),
            ("MYSQL_USERNAME=nobody", 1, "access-denied: "),
        ):
            with settings(machine, f"{line}\n"):
                assert not machine.succeeds("systemctl reload clustercheckd")
                assert told in machine.run(f"{reload} 2>&1; test $? = {code}")
                assert "reload refused" in machine.run("clustercheckd status")
        machine.run(reload)
        # systemd kills a process that feeds its watchdog no more.
        let_pass(WATCHDOG_SECONDS + 3)


@pytest.mark.parametrize("fault", ["KILL", "STOP"])
def test_a_process_that_is_killed_or_hangs_is_replaced(
    machine: Machine, fault: str
) -> None:
    before = machine.main_pid
    machine.run(f"systemctl kill --signal {fault} clustercheckd")
    wait_for(
        "another process",
        lambda: machine.main_pid not in {before, "0"},
        seconds=WATCHDOG_SECONDS + 10,
    )
    machine.wait_for(seconds=10)


@contextmanager
def drop_in(machine: Machine, text: str) -> Iterator[None]:
    """Have a drop-in for the unit while the block runs, as `systemctl edit` makes it."""
    folder = "/etc/systemd/system/clustercheckd.service.d"
    machine.run(f"mkdir -p {folder}")
    machine.path(f"{folder}/override.conf").write_text(text)
    machine.run("systemctl daemon-reload")
    try:
        yield
    finally:
        machine.run("systemctl revert clustercheckd")


def test_a_password_may_come_from_a_file_or_from_systemds_credentials(
    machine: Machine,
) -> None:
    identified = 'mariadb -e "ALTER USER clustercheck@localhost IDENTIFIED'
    machine.run(f"{identified} BY 'geheim'\"")
    machine.restart("503 access-denied")
    with settings(machine, ""):
        keep, name, reload = commands_of(PAGE, "The account")
        machine.run(f"echo geheim | {keep} && {name} && {reload}")
        machine.wait_for()
    # Nobody but root may read it now, and no setting names it.
    machine.run("chmod 0600 /etc/clustercheckd/password")
    machine.restart("503 access-denied")
    (credential,) = blocks_under(PAGE, "The account", "ini")
    with drop_in(machine, credential.text):
        machine.restart()
        # Only the unit has the variable, and only the service's process the file.
        said = machine.run("clustercheckd check")
        assert "available synced: wsrep_local_state is 4 (Synced)\n" in said
        assert "is systemd's copy from the service's start" in said
        machine.run("systemctl stop clustercheckd")
        said = machine.run("clustercheckd check", check=False)
        assert (
            "clustercheckd.service does not run: what its unit sets does not count"
            in said
        )
        assert "NOT available access-denied: " in said
        machine.run(
            "systemd-run --unit holder systemd-socket-activate -l 9200 /bin/true"
        )
        said = machine.run("clustercheckd check", check=False)
        assert "Address already in use: see, as root: ss -Hltnp 'sport = :9200'" in said
        machine.run("systemctl stop holder; systemctl start clustercheckd")
        # systemd reads a credential when the service starts. A reload has the old one, and is
        # refused.
        machine.run(f"{identified} BY 'neu'\"")
        machine.run("echo neu > /etc/clustercheckd/password")
        assert not machine.succeeds("systemctl reload clustercheckd")
        machine.restart()
    machine.run(f'{identified} VIA unix_socket"')
    machine.run("rm /etc/clustercheckd/password")
    machine.restart()


def test_what_the_service_uses_is_what_the_commands_say(machine: Machine) -> None:
    machine.run("install -D -m 0644 /dev/null /root/disabled; chmod 0711 /root")
    with drop_in(machine, "[Service]\nEnvironment=MAX_RECV_QUEUE=77\n"):
        machine.restart()
        with settings(machine, "MAX_RECV_QUEUE=5\nMAX_RECV_LENGTH=5\n"):
            file = SETTINGS
            said = machine.run("clustercheckd reload")
            assert ": MAX_RECV_QUEUE does not count: the environment sets it" in said
            assert ": MAX_RECV_LENGTH is not a setting" in said
            assert f"uses the settings as they are now, with {file}; " in said
            shown = machine.run("clustercheckd status --settings")
            assert ": MAX_RECV_QUEUE=77 (environment)\n" in shown
            machine.run(f"mv {file} {file}.gone")
            assert f"env file {file}: it is gone" in machine.run(
                "clustercheckd reload", check=False
            )
            machine.run(f"mv {file}.gone {file}")
    # The service cannot see into /root, and would take the node for drained.
    with settings(machine, "CLUSTERCHECK_DISABLED_FILE=/root/disabled\n"):
        said = machine.run("clustercheckd check", check=False)
        assert said.startswith("draining disabled: ")
        said = machine.run("clustercheckd reload; test $? = 1")
        assert (
            "the node was available and is not any more: reload no other node" in said
        )
    said = machine.run("clustercheckd reload; test $? = 1")
    assert "the node was drained and is not any more: reload no other node" in said
    machine.wait_for()


def test_another_hosts_server_is_told(machine: Machine) -> None:
    other = "/run/netns/other"
    link = "link add v0 type veth peer name v1 netns other"
    machine.run(
        f"ip netns add other && ip {link} && ip address add 10.99.0.1/24 dev v0"
    )
    machine.run("ip link set v0 up && ip -n other address add 10.99.0.2/24 dev v1")
    machine.run("ip -n other link set v1 up")
    proxy = "systemd-socket-activate -l 10.99.0.2:3306 /usr/lib/systemd/systemd-socket-proxyd"
    machine.run(
        f"systemd-run --unit other -p User=clustercheck -p NetworkNamespacePath={other} "
        f"{proxy} /run/mysqld/mysqld.sock"
    )
    told = "MYSQL_HOST leads to another host: the verdict is about the server there"
    try:
        with settings(machine, "MYSQL_HOST=10.99.0.2\n"):
            reloaded = machine.run("clustercheckd reload; test $? = 1")
            assert f"{told}: reload no other node" in reloaded
            for command in ("reload", "check", "status"):
                assert told in machine.run(f"clustercheckd {command}")
            assert told in machine.run("journalctl --no-pager --unit clustercheckd")
        # Its own server says nothing of the other: a node that is lost now was not available.
        with settings(machine, "MYSQL_USERNAME=nobody\n"):
            said = machine.run("clustercheckd reload; test $? = 1")
            assert "was available and is not any more" in said
    finally:
        machine.run("systemctl stop other; ip netns delete other")
        machine.run("clustercheckd reload")
    machine.wait_for()


def test_a_plugin_that_is_not_supported_is_named_unless_the_account_has_another_one(
    machine: Machine,
) -> None:
    # parsec came with MariaDB 11.6.
    plugin = {"bookworm": "ed25519", "trixie": "parsec"}[machine.release]
    machine.run(f"mariadb -e \"INSTALL SONAME 'auth_{plugin}'\"")
    modern = f"{plugin} USING PASSWORD('x')"
    for plugins, words in (
        (modern, f"{plugin}, which clustercheckd does not support: change it to "),
        (f"{modern} OR mysql_native_password USING PASSWORD('y')", "available synced"),
    ):
        create = "CREATE OR REPLACE USER modern@localhost IDENTIFIED VIA"
        machine.run(f'mariadb -e "{create} {plugins}"')
        check = "MYSQL_USERNAME=modern MYSQL_PASSWORD=y clustercheckd check"
        assert words in machine.run(check, check=False)
    machine.run("mariadb -e 'DROP USER modern@localhost'")


def test_a_drain_before_the_start_is_confirmed(machine: Machine) -> None:
    machine.run("systemctl stop clustercheckd")
    assert "does not run: it starts drained\n" in machine.run("clustercheckd drain")
    refused = machine.run("clustercheckd reload", check=False)
    assert refused.endswith(": it does not run: systemctl start clustercheckd\n")
    machine.restart("503 disabled")
    machine.run("clustercheckd undrain")
    machine.wait_for()


def test_a_drain_tells_its_owner_and_can_be_left_to_root(machine: Machine) -> None:
    protected = "/etc/clustercheckd/disabled"
    machine.run(f"runuser -u games -- touch {DISABLED_FILE}")
    machine.wait_for("503 disabled")
    assert ", owner user id 5 (" in machine.run("clustercheckd check", check=False)
    assert ", owner user id 5 (" in machine.run("curl -s http://localhost:9200/")
    with settings(machine, f"CLUSTERCHECK_DISABLED_FILE={protected}\n"):
        machine.restart()
        assert not machine.succeeds(f"runuser -u games -- touch {protected}")
        assert ", owner root (" in machine.run("clustercheckd drain")
        machine.run("clustercheckd undrain")
    machine.restart("503 disabled")
    machine.run("clustercheckd undrain")


def test_a_drain_outlives_the_cleaning_of_old_files(machine: Machine) -> None:
    # As the distribution's own, which has 30 days.
    rule = "/etc/tmpfiles.d/tmp.conf"
    machine.run(f"echo 'q /var/tmp 1777 root root 1s' > {rule}")
    machine.run("clustercheckd drain && touch /var/tmp/old")
    cleaned = "systemd-tmpfiles --clean && test ! -e /var/tmp/old"
    wait_for("the cleaning", lambda: machine.succeeds(cleaned))
    assert machine.answer == "503 disabled"
    machine.run(f"rm {rule} && clustercheckd undrain")


@pytest.mark.parametrize("port", [9209, 9200])
def test_the_address_is_that_of_the_settings(machine: Machine, port: int) -> None:
    # On 9200 as well, where the old process still listens at every address.
    with settings(machine, f"CLUSTERCHECK_HOST=127.0.0.1\nCLUSTERCHECK_PORT={port}\n"):
        machine.run("systemctl reload clustercheckd")
        assert machine.run(f"curl -si http://127.0.0.1:{port}/").startswith(
            "HTTP/1.1 200 OK"
        )
        assert "127.0.0.1" in machine.run(f"ss -Hltn 'sport = :{port}'")
        # The commands ask there too.
        machine.run(
            "clustercheckd drain && clustercheckd undrain && clustercheckd status"
        )
    machine.restart()


def test_with_a_bad_setting_it_is_tried_again_until_it_is_corrected(
    machine: Machine,
) -> None:
    since = machine.run("date +%s").strip()
    log = f"journalctl --unit clustercheckd --no-pager --output cat --since @{since}"

    with settings(machine, "CLUSTERCHECK_DEADLINE=soon\n"):
        assert not machine.succeeds("systemctl restart clustercheckd")
        # Refused, not left hanging.
        assert machine.run("curl -s -m 2 http://localhost:9200/ || echo $?") == "7\n"
        wait_for(
            "another attempt",
            lambda: machine.run(log).count(": CLUSTERCHECK_DEADLINE: ") > 1,
            seconds=60,
        )
    assert len(machine.run(log).splitlines()) < 30
    # By itself.
    machine.wait_for(seconds=60)


def install(machine: Machine, packages: Packages) -> str:
    """Have apt install the deb; return what is said."""
    machine.copy(packages.deb)
    return machine.run(f"apt install -y --allow-downgrades ./{packages.deb.name}")


@pytest.mark.parametrize("direction", ["an upgrade", "a rollback"])
def test_it_fails_no_health_check_and_keeps_what_was_edited(
    machine: Machine, packages: Packages, next_packages: Packages, direction: str
) -> None:
    to = next_packages if direction == "an upgrade" else packages
    machine.run(f"{KEEPS_EDIT} || echo {EDIT} >> {SETTINGS}")
    with no_failed_health_check(machine, replaced=True):
        said = install(machine, to)
    shown = machine.run("dpkg-query --show --showformat '${Version}' clustercheckd")
    assert shown == f"{to.version}-1"
    machine.run(KEEPS_EDIT)
    assert "Run:" not in said


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("CLUSTERCHECK_HOST=192.0.2.1\n", "Cannot assign requested address"),
        ("CLUSTERCHECK_POLL_INTERVAL=soon\n", "must be a duration"),
        ("MYSQL_USERNAME=nobody\n", "could not be with these settings: access-denied"),
    ],
)
def test_an_upgrade_leaves_a_good_service_running_if_the_settings_are_wrong(
    machine: Machine,
    packages: Packages,
    next_packages: Packages,
    *,
    lines: str,
    told: str,
) -> None:
    with (
        no_failed_health_check(machine, replaced=False),
        settings(machine, lines),
    ):
        said = install(machine, next_packages)
    assert re.search(f"^    clustercheckd: .*{re.escape(told)}", said, re.MULTILINE)
    assert "run:\n    clustercheckd reload\n" in said
    # Corrected, the next step takes the new version.
    with no_failed_health_check(machine, replaced=True):
        install(machine, packages)


CALM = ("true", "true")
SLOW = (
    "systemctl set-property --runtime clustercheckd CPUQuota={share:.0%}",
    "systemctl set-property --runtime clustercheckd CPUQuota=",
)
BUSY = (
    "systemd-run --unit busy sh -c 'for n in 1 2 3 4 5 6 7 8; do while :; do :; done & done; wait'",
    "systemctl stop busy",
)


@pytest.mark.parametrize("load", [CALM, SLOW, BUSY], ids=["calm", "slow", "busy"])
@pytest.mark.parametrize("act", ["reloads", "upgrades"])
def test_nobody_notices_many(
    machine: Machine, packages: Packages, act: str, load: tuple[str, str]
) -> None:
    restarts = machine.show("NRestarts")
    begin, end = load
    machine.run(begin.format(share=share_like(0.25) if load is SLOW else None))
    try:
        # HAProxy takes a node out after two checks without an answer in a second.
        with no_failed_health_check(machine, replaced=True, seconds=2):
            for _ in range(20 if load is CALM or act == "reloads" else 5):
                if act == "reloads":
                    machine.run("systemctl reload clustercheckd")
                else:
                    before = machine.main_pid
                    machine.run(f"dpkg --install {packages.deb.name}")
                    assert machine.main_pid != before
    finally:
        machine.run(end)
    # systemd has followed each, as a child of its own.
    assert machine.show("NRestarts") == restarts
    assert "not our child" not in machine.run("journalctl --no-pager")


def test_it_comes_up_by_itself_after_a_reboot_and_starts_while_the_server_is_down(
    machine: Machine,
) -> None:
    machine.reboot()
    machine.wait_for()
    machine.run("systemctl stop mariadb")
    machine.restart("503 unreachable")
    machine.run("systemctl start mariadb")
    machine.wait_for(seconds=60)


def test_removed_and_installed_again_it_says_that_it_is_not_enabled(
    machine: Machine, packages: Packages
) -> None:
    machine.run(f"echo {EDIT} >> {SETTINGS}")
    machine.run("apt remove -y clustercheckd")
    assert machine.answer == ""
    assert not machine.succeeds("systemctl list-unit-files | grep clustercheck")
    said = install(machine, packages)
    assert "run: systemctl enable --now clustercheckd\n" in said
    assert machine.show("ActiveState") == "inactive"
    machine.run(KEEPS_EDIT)
    machine.run("systemctl enable --now clustercheckd")
    machine.wait_for()


def test_purged_it_leaves_what_it_names(machine: Machine) -> None:
    machine.run(f"clustercheckd drain && touch {PASSWORD_FILE}")
    said = machine.run("apt purge -y clustercheckd")
    assert machine.answer == ""
    kept = ["/etc/clustercheckd", DISABLED_FILE]
    named = re.findall("^clustercheckd leaves (.*)$", said, re.MULTILINE)
    assert named[:2] == [PASSWORD_FILE, DISABLED_FILE]
    assert named[2].startswith("the user clustercheck. ")
    assert named[3].startswith("the account in the database. ")
    of_others = ["/proc", "/root", "/var/cache", "/var/lib/apt"]
    skipped = " -o ".join(f"-path {folder}" for folder in of_others)
    left = (
        f"find / -xdev \\( {skipped} \\) -prune -o -name '*clustercheck*' -print | sort"
    )
    assert machine.run(left).splitlines() == kept
    assert not machine.succeeds("systemctl list-unit-files | grep clustercheck")
    assert machine.run("getent passwd clustercheck").startswith("clustercheck:")
    machine.run(f"rm -r {' '.join(kept)}")


def test_the_rpms_scripts_do_the_same(
    machine: Machine, packages: Packages, next_packages: Packages
) -> None:
    # rpm knows none of Debian's packages.
    rpm = "rpm --nodeps"
    for build in (packages, next_packages):
        machine.copy(build.rpm)
    assert "Run:" in machine.run(f"{rpm} --install {packages.rpm.name}")
    assert (
        machine.run("systemctl is-enabled clustercheckd", check=False) == "disabled\n"
    )
    assert machine.run("rpm --verify --nodeps clustercheckd") == ""
    machine.run("systemctl enable --now clustercheckd")
    machine.wait_for()
    machine.run(f"echo {EDIT} >> {SETTINGS}")
    with no_failed_health_check(machine, replaced=True):
        machine.run(f"{rpm} --upgrade {next_packages.rpm.name}")
    with (
        no_failed_health_check(machine, replaced=False),
        settings(machine, "CLUSTERCHECK_DEADLINE=soon\n"),
    ):
        said = machine.run(f"{rpm} --upgrade --oldpackage {packages.rpm.name}")
    assert "CLUSTERCHECK_DEADLINE: must be a duration" in said
    machine.run(KEEPS_EDIT)
    said = machine.run(f"touch {PASSWORD_FILE} && {rpm} --erase clustercheckd")
    assert f"clustercheckd leaves {PASSWORD_FILE}\n" in said
    assert machine.answer == ""
    assert not machine.succeeds(
        "ls -d /usr/lib/clustercheckd /usr/share/doc/clustercheckd"
    )
