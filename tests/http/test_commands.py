"""check, drain and undrain as people run them."""

import os
import subprocess
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest

from app.verdict.node_state import ELSEWHERE
from harness.galera import can_mount
from harness.network import RemoteHost
from harness.ports import LOOPBACK
from harness.process import output_of
from harness.service import Service
from harness.waiting import wait_for
from tests.conftest import Services, needs_root, settings_for
from tests.fake_mysql import FakeMySQL, Peer, fake_mysql, galera, waits_for
from tests.http.conftest import DONOR, REFUSED
from tests.http.test_process import (
    SECONDS,
    begin,
    redirected,
    run,
    with_file_in_etc,
    with_mounts,
)

WITH_SYSTEMD = with_mounts("mount -t tmpfs none /run; mkdir -p /run/systemd/system")
SYNCED = "available synced: wsrep_local_state is 4 (Synced)\n"


class TestCheck:
    """One human-readable line, and exit status 0, 1 or 2."""

    def test_its_line_and_exit_status_are_the_verdicts(self, node: FakeMySQL) -> None:
        done = run("check", **settings_for(node))
        node.behaviour = galera(DONOR)
        donor, allowed = (
            run("check", *flags, **settings_for(node))
            for flags in ((), ("--available-when-donor",))
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, SYNCED, "")
        told = (
            "draining donor: wsrep_local_state is 2 (Donor/Desynced); AVAILABLE_WHEN_DONOR=0\n"
            "For what to do, see each word in docs/reference/reasons.md\n"
        )
        assert (donor.returncode, donor.stdout, allowed.returncode) == (1, told, 0)

    def test_a_drained_node_is_logged_in_to_all_the_same(self, tmp_path: Path) -> None:
        for behaviour, otherwise in (
            (galera(), "synced: wsrep_local_state is 4 (Synced)"),
            (REFUSED, "access-denied: the server refused"),
        ):
            with fake_mysql(behaviour) as server:
                path = str(tmp_path)
                environ = settings_for(server, CLUSTERCHECK_DISABLED_FILE=path)
                done = run("check", **environ)
            first, second, *_ = done.stdout.splitlines()
            assert first.startswith(f"draining disabled: {path} exists, changed at ")
            assert second.startswith(f"otherwise {otherwise}")
            assert done.returncode == 1

    def test_being_ended_while_it_asks_is_no_yes(self) -> None:
        with fake_mysql(Peer.hang) as server:
            environ = settings_for(server, CLUSTERCHECK_DEADLINE="60")
            with begin("check", **environ) as asking:
                wait_for("the question", lambda: server.connections)
                asking.terminate()
                assert asking.wait(SECONDS) not in (0, 1)

    @pytest.mark.skipif(not can_mount(), reason="needs root")
    @pytest.mark.parametrize("address", [LOOPBACK, "127.0.1.1"])
    def test_the_name_of_this_host_leads_to_no_other(self, address: str) -> None:
        with fake_mysql(galera(), (address, 0)) as node:
            done = run(
                "check", through=WITH_SYSTEMD, **settings_for(node, MYSQL_HOST=address)
            )
        assert done.stdout.startswith("available synced: ")
        assert done.stderr == ""

    def test_a_second_address_leads_to_no_other_host(
        self, remote_host: RemoteHost
    ) -> None:
        first, second = "10.99.0.1", "10.99.0.2"
        for address in (first, second):
            command = f"ip address add {address}/24 dev eth0"
            output_of(*remote_host.within, *command.split())
        with ExitStack() as exits:
            with remote_host.entered():
                node = exits.enter_context(fake_mysql(galera(), (second, 0)))
            settings = settings_for(node, MYSQL_HOST=second)
            done = run(
                "check", through=(*remote_host.within, *WITH_SYSTEMD), **settings
            )
        assert done.stdout.startswith("available synced: ")
        assert done.stderr == ""

    def test_another_host_is_told_in_one_line(self, remote_host: RemoteHost) -> None:
        with ExitStack() as exits:
            with remote_host.entered():
                address = remote_host.address, 0
                node = exits.enter_context(fake_mysql(galera(), address))
            settings = settings_for(node, MYSQL_HOST=remote_host.address)
            done = run("check", through=WITH_SYSTEMD, **settings)
        assert done.stderr == f"clustercheckd: {ELSEWHERE}\n"

    def test_a_refused_login_is_told_with_its_remedy_and_that_the_service_keeps_its_session(
        self,
    ) -> None:
        with fake_mysql(REFUSED) as refusing:
            refused = run("check", **settings_for(refusing))
        verdict, login, kept, remedy = refused.stdout.splitlines()
        assert refused.returncode == 1
        assert verdict.startswith("NOT available access-denied: the server refused ")
        where = f"127.0.0.1:{refusing.port} as someone (without a password)"
        assert login == f"The login was to {where}, by user id {os.geteuid()}"
        assert kept.startswith("A running service keeps its session")
        assert remedy == "For what to do, see each word in docs/reference/reasons.md"


# The program is imported first: the service's user may not be able to read where the project is
# checked out.
CHECK_AS_USER = """
import os, sys
import encodings.idna
import app.commands.check
from app.__main__ import main
from app.database.connection import prepare_for
prepare_for(None)  # another user may not be able to read this folder
if sys.argv[1] != "root":
    os.setuid(int(sys.argv[1]))
sys.exit(main(["check"]))
"""
SERVICE_USER_ID = 64321


def check_as(
    user: str, environ: Mapping[str, str], user_id: int = SERVICE_USER_ID
) -> "subprocess.CompletedProcess[str]":
    """Run check where the service's user exists."""
    with NamedTemporaryFile("w") as passwd:
        users = Path("/etc/passwd").read_text()
        passwd.write(f"{users}clustercheck:x:{user_id}:{user_id}::/:/bin/false\n")
        passwd.flush()
        path = Path(passwd.name)
        path.chmod(0o644)
        return run(
            user,
            through=with_file_in_etc("passwd", path),
            program=("-c", CHECK_AS_USER),
            **environ,
        )


AS_ROOT = "not as the service's user clustercheck: run it as root"
MUST_READ = "the user that runs clustercheckd must be able to read it"
NO_NAME = "MYSQL_USERNAME: set it, because user id 65532 has no name"


@needs_root
class TestServiceUser:
    """Where the packages' user exists, check logs in as the service does, or says that it does
    not.
    """

    def test_root_continues_as_the_services_user(self) -> None:
        with fake_mysql(REFUSED) as server:
            # Without a user name, the account is the one of the system's user.
            done = check_as(
                "root", settings_for(server, MYSQL_USERNAME="", MYSQL_SSL="0")
            )
        assert "the server refused user clustercheck" in done.stdout
        assert done.stderr == ""

    @pytest.mark.parametrize(
        ("user", "environ", "code", "lines"),
        [
            # Only root may read it.
            (
                "root",
                {"MYSQL_PASSWORD_FILE": "/etc/shadow"},
                2,
                [f"MYSQL_PASSWORD_FILE: /etc/shadow: Permission denied: {MUST_READ}"],
            ),
            ("65534", {}, 0, [f"this runs as user id 65534, {AS_ROOT}"]),
            (
                "65532",
                {"MYSQL_USERNAME": ""},
                2,
                [f"this runs as user id 65532, {AS_ROOT}", NO_NAME],
            ),
        ],
    )
    def test_what_is_not_as_for_the_service_is_told(
        self,
        node: FakeMySQL,
        user: str,
        environ: dict[str, str],
        code: int,
        lines: list[str],
    ) -> None:
        done = check_as(user, settings_for(node, **environ))
        assert (done.returncode, done.stderr) == (
            code,
            "".join(f"clustercheckd: {line}\n" for line in lines),
        )


class TestStandardStreams:
    """Closed, or full: the exit status is the verdict's, and nothing aborts or prints a traceback."""

    @pytest.mark.parametrize(
        ("closed", "printed"), [(">&-", ""), ("<&- 2>&-", SYNCED), ("<&- >&- 2>&-", "")]
    )
    def test_closed_descriptors_abort_no_check(
        self, node: FakeMySQL, closed: str, printed: str
    ) -> None:
        done = run("check", through=redirected(closed), **settings_for(node))
        misused = run("check", MYSQL_PORT="x", through=redirected(closed))
        assert (done.returncode, done.stdout, done.stderr) == (0, printed, "")
        assert (misused.returncode, misused.stdout) == (2, "")
        assert ("MYSQL_PORT" in misused.stderr) == ("2>" not in closed)


def here(service: Service, path: Path | None = None) -> dict[str, str]:
    """Give the settings of a service's host. path: of the disabled file, if it is another than the
    service's.
    """
    return {
        "CLUSTERCHECK_DISABLED_FILE": str(path or service.disabled_file),
        "CLUSTERCHECK_PORT": str(service.port),
    }


def test_a_service_at_an_address_of_its_own_is_reached_while_its_server_hangs(
    services: Services,
) -> None:
    may_answer = threading.Event()
    healthy = waits_for(may_answer, galera())
    with fake_mysql(healthy) as server:
        # The deadline is longer than a command waits for an answer.
        service = services.start_unasked(
            **settings_for(server),
            CLUSTERCHECK_HOST="127.0.0.5",
            CLUSTERCHECK_ALLOW_FROM="10.0.0.0/8",
            CLUSTERCHECK_DEADLINE="8",
        )
        wait_for("a poll", lambda: server.connections)
        environ = {**here(service), "CLUSTERCHECK_HOST": "127.0.0.5"}
        # A slow machine makes the document for longer than a command waits.
        wait_for("its row", lambda: "NOT available" in run("status", **environ).stdout)
        drained = run("drain", **environ)
        # A reload is refused while the server hangs.
        may_answer.set()
        reloaded = run("reload", **environ)
    assert (drained.returncode, drained.stderr) == (0, "")
    assert reloaded.stderr == ""
    assert reloaded.returncode == 0


class TestDrain:
    """drain makes the disabled file, undrain removes it, and both ask the service whether it sees
    that.
    """

    def test_drain_and_undrain_are_confirmed_by_the_service(
        self, services: Services
    ) -> None:
        service = services.start(CLUSTERCHECK_DRAIN_STATUS="404")
        path, where = service.disabled_file, f"127.0.0.1:{service.port}"
        for command, first, confirmed in (
            (
                "drain",
                f"created {path}; to remove it, run: clustercheckd undrain\n",
                "draining, disabled: ",
            ),
            ("drain", f"{path} exists, and was not changed\n", "draining, disabled: "),
            ("undrain", f"removed {path}\n", "NOT available, unreachable: "),
            ("undrain", f"{path} does not exist\n", "NOT available, unreachable: "),
        ):
            done = run(command, **here(service))
            assert (done.returncode, done.stderr) == (0, "")
            assert done.stdout.startswith(first)
            assert done.stdout.splitlines()[1].startswith(f"{where} is {confirmed}")

    def test_the_last_available_node_is_told(self, services: Services) -> None:
        with fake_mysql(galera({"wsrep_cluster_size": "1"})) as server:
            alone = run("drain", **here(services.beside(server)))
        told = "this was the last available node: its wsrep_cluster_size is 1"
        assert (alone.returncode, told in alone.stderr) == (0, True)

    def test_the_reason_is_shown_wherever_the_verdict_is(
        self, drainable: Service
    ) -> None:
        secretive = ("sh", "-c", 'umask 077; exec "$@"', "sh")
        text = "ticket 42: all is synced.\nmore"
        done = run("drain", "--reason", text, through=secretive, **here(drainable))
        words = '"ticket 42: all is synced. more"'
        assert words in done.stdout
        assert drainable.disabled_file.stat().st_mode & 0o777 == 0o644
        assert words in drainable.status()["detail"]
        # Users match on "is synced".
        assert words.replace("is synced", "is-synced") in drainable.get("/").body
        assert "is synced" not in drainable.get("/").body
        # The words of the first drain stay.
        again = run("drain", "--reason", "another", **here(drainable))
        assert words in again.stdout

    def test_a_mistake_in_another_setting_does_not_stop_a_drain(
        self, drainable: Service, tmp_path: Path
    ) -> None:
        path, env_file = drainable.disabled_file, tmp_path / "env"
        env_file.write_text(
            "AVAILABLE_WHEN_DONOR=perhaps\nbroken\nDRAIN=x\n"
            f"CLUSTERCHECK_DISABLED_FILE={path}\nCLUSTERCHECK_PORT={drainable.port}\n"
        )
        done = run(
            "drain",
            "--env-file",
            str(env_file),
            MYSQL_PASSWORD_FILE="/no/file",
            AVAILABLE_WHEN_DONER="1",
        )
        assert (done.returncode, path.exists()) == (0, True)
        assert done.stderr.splitlines() == [
            "clustercheckd: AVAILABLE_WHEN_DONER is not a setting; did you mean AVAILABLE_WHEN_DONOR?",
            f"clustercheckd: {env_file}, line 3 is not a setting",
            f"clustercheckd: env file {env_file}, line 2 is not NAME=value",
        ]
        # Without a port, nobody can be asked, but the file is made.
        path.unlink()
        done = run("drain", CLUSTERCHECK_DISABLED_FILE=str(path), CLUSTERCHECK_PORT="x")
        assert (done.returncode, path.exists()) == (1, True)
        assert done.stderr.startswith("clustercheckd: not confirmed: CLUSTERCHECK_PORT")

    def test_a_service_that_looks_elsewhere_is_told(
        self, drainable: Service, tmp_path: Path
    ) -> None:
        where, other = f"clustercheckd: 127.0.0.1:{drainable.port}", tmp_path / "other"
        for command, seen in (
            ("drain", "NOT available, unreachable: "),
            (
                "undrain",
                f"draining, disabled: {drainable.disabled_file} exists, changed at ",
            ),
        ):
            done = run(command, **here(drainable, other))
            assert done.returncode == 1
            assert done.stderr.startswith(f"{where} is {seen}")
            assert done.stderr.endswith(f": it does not see the change of {other}\n")
            drainable.disabled_file.touch()

    @pytest.mark.parametrize("command", ["drain", "undrain"])
    def test_what_cannot_be_done_is_one_line(
        self, tmp_path: Path, command: str
    ) -> None:
        path = tmp_path / "file"
        path.touch()
        done = run(command, CLUSTERCHECK_DISABLED_FILE=f"{path}/below")
        expected = (
            f"clustercheckd: CLUSTERCHECK_DISABLED_FILE: {path}/below: Not a directory"
        )
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert done.stderr.startswith(expected)
