"""check, drain and undrain as people run them."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory

import pytest

from harness.service import without_settings
from harness.waiting import wait_for
from tests.conftest import Services
from tests.fake_mysql import FakeMySQL, Peer, error, fake_mysql, galera, greets_then
from tests.http.test_process import SECONDS, run


def beside(server: FakeMySQL, **environ: str) -> dict[str, str]:
    """Give the settings for a hand-written server."""
    return {"MYSQL_HOST": "127.0.0.1", "MYSQL_PORT": str(server.port), "MYSQL_USERNAME": "someone", **environ}


class TestCheck:
    """One human-readable line, and exit status 0, 1 or 2."""

    def test_an_available_node_is_0(self) -> None:
        with fake_mysql(galera()) as server:
            done = run("check", **beside(server))
        assert (
            done.returncode,
            done.stdout,
            done.stderr,
        ) == (0, "available synced: wsrep_local_state is 4 (Synced)\n", "")

    def test_an_unavailable_node_is_1(self) -> None:
        with fake_mysql(galera({"wsrep_local_state": "2", "wsrep_local_state_comment": "Donor/Desynced"})) as server:
            done = run("check", **beside(server))
            allowed = run("check", "--available-when-donor", "1", **beside(server))
        assert done.stdout == "draining donor: wsrep_local_state is 2 (Donor/Desynced); AVAILABLE_WHEN_DONOR=0\n"
        assert (done.returncode, allowed.returncode) == (1, 0)

    def test_misuse_is_2(self) -> None:
        assert run("check", MYSQL_PORT="x").returncode == 2

    def test_being_ended_while_it_asks_is_no_yes(self) -> None:
        with fake_mysql(Peer.hang) as server:
            environ = {**without_settings(os.environ), **beside(server, CLUSTERCHECK_DEADLINE="60")}
            asking = subprocess.Popen([sys.executable, "-m", "app", "check"], env=environ, stdout=subprocess.DEVNULL)
            wait_for("the question", lambda: server.connections, seconds=SECONDS)
            asking.terminate()
            assert asking.wait(SECONDS) not in (0, 1)

    def test_json(self) -> None:
        with fake_mysql(galera()) as server:
            document = json.loads(run("check", "--json", **beside(server)).stdout)
        assert (document["available"], document["reason"], document["node"]["wsrep_cluster_size"]) == (
            True,
            "synced",
            3,
        )
        document = json.loads(run("check", "--json", MYSQL_SOCKET="/no.sock").stdout)
        assert (document["available"], document["reason"], document["node"]) == (False, "unreachable", None)


REFUSED = 1045


class TestRefusedLogin:
    """check says whose login was refused, and blames no account that the service uses."""

    def test_it_names_the_account_and_the_page_but_no_statement(self) -> None:
        with fake_mysql(greets_then(error(REFUSED))) as server, socket.create_server(("127.0.0.1", 0)) as unused:
            done = run("check", **beside(server), CLUSTERCHECK_PORT=str(unused.getsockname()[1]))
        verdict, advice = done.stdout.splitlines()
        assert (done.returncode, verdict.split(":")[0]) == (1, "NOT available access-denied")
        assert advice == (
            "Account someone was used over TCP; if it has REQUIRE SSL, set MYSQL_SSL=1. If it is missing: the"
            ' section "The account" of docs/install.md creates it'
        )

    def test_it_asks_the_running_service_first(self, services: Services) -> None:
        with fake_mysql(galera()) as server, fake_mysql(greets_then(error(REFUSED))) as refusing:
            service = services.start(**beside(server))
            service.wait_for_verdict(200, "synced")
            done = run("check", **beside(refusing), CLUSTERCHECK_PORT=str(service.port))
            # Once its own logins are refused, the account may be wrong.
            server.behaviour = greets_then(error(REFUSED))
            server.drop_connections()
            service.wait_for_verdict(503, "access-denied")
            both = run("check", **beside(refusing), CLUSTERCHECK_PORT=str(service.port))
        assert done.stdout.splitlines()[1:] == [
            "The running service logs in: do not change the account. Ask the service itself: clustercheckd status"
        ]
        assert "docs/install.md" in both.stdout


# The program is imported first: the service's user may not be able to read where the project is checked out.
CHECK_AS_USER = """
import os, sys
import encodings.idna
from app.__main__ import main
if sys.argv[1] != "root":
    os.setuid(int(sys.argv[1]))
sys.exit(main(["check"]))
"""
SERVICE_USER_ID = 64321


def check_as(
    user: str, environ: Mapping[str, str], prepared: str = "", user_id: int = SERVICE_USER_ID
) -> "subprocess.CompletedProcess[str]":
    """Run check where the service's user exists."""
    with NamedTemporaryFile("w") as passwd:
        users = Path("/etc/passwd").read_text()
        passwd.write(f"{users}clustercheck:x:{user_id}:{user_id}::/:/bin/false\n")
        passwd.flush()
        Path(passwd.name).chmod(0o644)
        shell = f'mount --bind {passwd.name} /etc/passwd; {prepared} exec "$@"'
        return subprocess.run(
            ["unshare", "-m", "sh", "-ec", shell, "sh", sys.executable, "-c", CHECK_AS_USER, user],
            env={**without_settings(os.environ), **environ},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user of the operating system, which needs root")
class TestServiceUser:
    """Where the packages' user exists, check logs in as the service does, or says that it does not."""

    def test_root_continues_as_the_services_user(self) -> None:
        # Without a user name, the account is the one of the system's user.
        environ = {"MYSQL_USERNAME": "", "MYSQL_SSL": "0"}
        with fake_mysql(greets_then(error(REFUSED))) as server:
            done = check_as("root", {**beside(server), **environ})
        assert "the server refused user clustercheck" in done.stdout
        assert done.stderr == ""

    def test_a_password_that_only_root_may_read_is_not_read(self) -> None:
        with NamedTemporaryFile("w") as password, fake_mysql(galera()) as server:
            done = check_as("root", beside(server, MYSQL_PASSWORD_FILE=password.name))
        assert (done.returncode, done.stderr) == (2, "clustercheckd: MYSQL_PASSWORD_FILE: Permission denied\n")

    def test_any_other_user_is_told_whose_login_it_was(self) -> None:
        with fake_mysql(galera()) as server:
            done = check_as("65534", beside(server))
        assert done.returncode == 0
        assert done.stderr == (
            "clustercheckd: check logs in as user nobody, not as the service's user clustercheck: run it as root."
            " Ask the service itself: clustercheckd status\n"
        )

    def test_a_credential_that_only_systemd_gives_is_told(self) -> None:
        credentials = "mount -t tmpfs none /run; mkdir -p /run/credentials/clustercheckd.service;"
        with fake_mysql(galera()) as server:
            done = check_as("root", beside(server), credentials)
        assert done.stderr == (
            "clustercheckd: check does not have the credentials that systemd gives the service (LoadCredential=)."
            " Ask the service itself: clustercheckd status\n"
        )


@pytest.mark.parametrize("command", ["check", "drain", "undrain"])
def test_commands_warn_of_names_that_are_no_setting(tmp_path: Path, command: str) -> None:
    path = tmp_path / "env"
    path.write_text(f"MYSQL_SSLCA=x\nCLUSTERCHECK_DISABLED_FILE={tmp_path}/disabled\n")
    done = run(command, "--env-file", str(path), AVAILABLE_WHEN_DONER="1", MYSQL_SOCKET="/no.sock")
    assert done.stderr.splitlines()[:2] == [
        "clustercheckd: AVAILABLE_WHEN_DONER is not a setting and is ignored: did you mean AVAILABLE_WHEN_DONOR?",
        f"clustercheckd: {path}, line 1: MYSQL_SSLCA is not a setting and is ignored: did you mean MYSQL_SSL_CA?",
    ]


def test_an_env_file_that_cannot_be_parsed_is_misuse(tmp_path: Path) -> None:
    path = tmp_path / "env"
    path.write_text("MYSQL_PASSWORD geheim\n")
    for command in ("serve", "check"):
        done = run(command, CLUSTERCHECK_ENV_FILE=str(path))
        expected = f"clustercheckd: CLUSTERCHECK_ENV_FILE: {path}, line 1: is not NAME=value\n"
        assert (2, "", expected) == (done.returncode, done.stdout, done.stderr)


def run_redirected(redirections: str, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Run the command line with a shell's redirections."""
    return subprocess.run(
        ["bash", "-c", f'exec "$@" {redirections}', "bash", sys.executable, "-m", "app", *arguments],
        env={**without_settings(os.environ), **environ},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


class TestStandardStreams:
    """Closed, full or without a reader: the exit code is the verdict's, and nothing aborts or prints a traceback."""

    @pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
    def test_closed_descriptors_abort_no_check(self, closed: str) -> None:
        with fake_mysql(galera()) as server:
            done = run_redirected(closed, "check", **beside(server))
            misused = run_redirected(closed, "check", MYSQL_PORT="x")
        expected = "" if " >" in f" {closed}" else "available synced: wsrep_local_state is 4 (Synced)\n"
        assert (0, expected, "") == (done.returncode, done.stdout, done.stderr)
        assert (misused.returncode, misused.stdout) == (2, "")
        assert ("MYSQL_PORT" in misused.stderr) == ("2>" not in closed)

    @pytest.mark.parametrize(("arguments", "state", "code"), [(("check",), "4", 0), (("check", "--json"), "1", 1)])
    def test_output_that_cannot_be_written_changes_no_exit_code(
        self, arguments: tuple[str, ...], state: str, code: int
    ) -> None:
        with fake_mysql(galera({"wsrep_local_state": state})) as server:
            full = run_redirected(">/dev/full", *arguments, **beside(server))
            both_full = run_redirected(">/dev/full 2>/dev/full", *arguments, AVAILABLE_WHEN_X="1", **beside(server))
        assert (code, "clustercheckd: standard output: No space left on device\n") == (full.returncode, full.stderr)
        assert both_full.returncode == code

    def test_a_pipe_that_nobody_reads_changes_no_exit_code(self) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        with fake_mysql(galera()) as server:
            checking = subprocess.Popen(
                [sys.executable, "-m", "app", "check"],
                env={**without_settings(os.environ), **beside(server)},
                stdout=writer,
                stderr=subprocess.PIPE,
                text=True,
            )
            os.close(writer)
            _, complaint = checking.communicate(timeout=SECONDS)
        assert (checking.returncode, complaint) == (0, "clustercheckd: standard output: Broken pipe\n")


class TestDrain:
    """drain makes the disabled file, undrain removes it, and both ask the service whether it sees that."""

    def test_drain_and_undrain_are_confirmed_by_the_service(self, services: Services) -> None:
        service = services.start(CLUSTERCHECK_DRAIN_STATUS="404")
        path, where = service.disabled_file, f"127.0.0.1:{service.port}"
        environ = {"CLUSTERCHECK_DISABLED_FILE": str(path), "CLUSTERCHECK_PORT": str(service.port)}
        done = run("drain", **environ)
        assert (done.returncode, done.stderr, path.exists()) == (0, "", True)
        created, confirmed = done.stdout.splitlines()
        assert created == f"created {path}; to remove it, run: clustercheckd undrain"
        assert confirmed.startswith(f"{where} is draining, disabled: {path} exists, made by ")
        done = run("drain", **environ)
        assert (done.returncode, done.stdout.startswith(f"{path} exists, made by ")) == (0, True)
        done = run("undrain", **environ)
        assert (done.returncode, path.exists()) == (0, False)
        removed, confirmed = done.stdout.splitlines()
        assert removed == f"removed {path}"
        assert confirmed.startswith(f"{where} is NOT available, unreachable: ")
        assert run("undrain", **environ).stdout.startswith(f"{path} does not exist\n{where} is ")
        # What cannot be printed is done all the same.
        done = run_redirected(">/dev/full", "drain", **environ)
        expected = "clustercheckd: standard output: No space left on device\n"
        assert (0, expected, True) == (done.returncode, done.stderr, path.exists())

    def test_the_reason_is_shown_wherever_the_verdict_is(self, services: Services) -> None:
        with fake_mysql(galera()) as server:
            service = services.start(**beside(server))
            service.wait_for_verdict(200, "synced")
            environ = {
                "CLUSTERCHECK_DISABLED_FILE": str(service.disabled_file),
                "CLUSTERCHECK_PORT": str(service.port),
            }
            done = run("drain", "--reason", "ticket 42: all is synced.\nmore", **environ)
            words = '"ticket 42: all is synced."'
            assert words in done.stdout
            assert service.disabled_file.stat().st_mode & 0o777 == 0o644
            assert words in service.status()["detail"]
            assert words in run("check", **environ, **beside(server)).stdout
            wait_for("its line", lambda: "ticket 42" in service.log.read_text(), seconds=SECONDS)
            assert " draining reason=disabled " in service.log.read_text()
            # Users match on "is synced".
            assert words.replace("is synced", "is-synced") in service.get("/").body
            assert "is synced" not in service.get("/").body
            again = run("drain", "--reason", "another", **environ)
            assert words in again.stdout
            edit = f"to change the words, edit {service.disabled_file}"
            assert again.stderr == f"clustercheckd: --reason is not written: {edit}\n"
            service.disabled_file.write_text("other words\n")
            wait_for("the other words", lambda: ': "other words" ' in service.status()["detail"], seconds=SECONDS)

    def test_a_mistake_in_another_setting_does_not_stop_a_drain(self, services: Services, tmp_path: Path) -> None:
        service = services.start()
        path, env_file = service.disabled_file, tmp_path / "env"
        env_file.write_text(
            f"AVAILABLE_WHEN_DONOR=perhaps\nCLUSTERCHECK_DISABLED_FILE={path}\nbroken\nCLUSTERCHECK_PORT={service.port}\n"
        )
        done = run("drain", CLUSTERCHECK_ENV_FILE=str(env_file), MYSQL_PASSWORD_FILE="/no/file")
        expected = f"clustercheckd: CLUSTERCHECK_ENV_FILE: {env_file}, line 3: is not NAME=value\n"
        assert (0, expected, True) == (done.returncode, done.stderr, path.exists())
        # Without a port, nobody can be asked, but the file is made.
        path.unlink()
        done = run("drain", CLUSTERCHECK_DISABLED_FILE=str(path), CLUSTERCHECK_PORT="x")
        expected = "clustercheckd: not confirmed: CLUSTERCHECK_PORT: x is not a whole number\n"
        assert (1, expected, True) == (done.returncode, done.stderr, path.exists())
        done = run("drain", CLUSTERCHECK_ENV_FILE=f"{tmp_path}/none", CLUSTERCHECK_DISABLED_FILE=str(path))
        assert "No such file" in done.stderr.splitlines()[0]
        assert done.stdout.startswith(f"{path} exists")

    @pytest.mark.skipif(os.geteuid() != 0, reason="mounts a full filesystem, which needs root")
    @pytest.mark.parametrize(("inodes", "drained"), [("1", False), ("10", True)])
    def test_a_full_disk_is_told_with_what_to_do(self, inodes: str, *, drained: bool) -> None:
        with TemporaryDirectory() as directory:
            mounted = (
                f"mount -t tmpfs -o size=4k,nr_inodes={inodes} none {directory};"
                f" head -c 4096 /dev/zero > {directory}/full; "
                f'"$@"; status=$?; test -e {directory}/disabled && echo drained; exit $status'
            )
            done = subprocess.run(
                ["unshare", "-m", "sh", "-c", mounted, "sh", sys.executable, "-m", "app", "drain", "--reason", "x"],
                env={**without_settings(os.environ), "CLUSTERCHECK_DISABLED_FILE": f"{directory}/disabled"},
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        assert done.returncode == 1
        assert ("drained" in done.stdout.splitlines()) == drained
        if drained:
            assert "clustercheckd: --reason is not written: No space left on device\n" in done.stderr
        else:
            assert f"{directory}/disabled: No space left on device: the node is not drained. " in done.stderr
            assert "maint in HAProxy" in done.stderr

    def test_a_service_that_looks_elsewhere_is_told(self, services: Services, tmp_path: Path) -> None:
        service = services.start()
        where = f"127.0.0.1:{service.port}"
        environ = {"CLUSTERCHECK_DISABLED_FILE": f"{tmp_path}/other", "CLUSTERCHECK_PORT": str(service.port)}
        done = run("drain", **environ)
        assert done.returncode == 1
        assert done.stderr.startswith(f"clustercheckd: {where} is NOT available, unreachable: ")
        assert done.stderr.endswith(f": it does not see {tmp_path}/other\n")
        service.disabled_file.touch()
        done = run("undrain", **environ)
        assert done.returncode == 1
        expected = f"clustercheckd: {where} is still draining, disabled: {service.disabled_file} exists, made by "
        assert done.stderr.startswith(expected)

    @pytest.mark.parametrize("command", ["drain", "undrain"])
    def test_a_service_that_does_not_answer_is_told_with_the_setting_of_its_port(
        self, services: Services, tmp_path: Path, command: str
    ) -> None:
        path = f"{tmp_path}/disabled"
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = str(unused.getsockname()[1])
        done = run(command, CLUSTERCHECK_DISABLED_FILE=path, CLUSTERCHECK_PORT=port)
        hint = "run: systemctl status clustercheckd; CLUSTERCHECK_PORT must be its port"
        expected = f"clustercheckd: not confirmed: 127.0.0.1:{port}: Connection refused; {hint}\n"
        assert (done.returncode, done.stderr, Path(path).exists()) == (1, expected, command == "drain")
        # It answers nobody here, but listens.
        service = services.start_unasked(CLUSTERCHECK_HOST="*", CLUSTERCHECK_ALLOW_FROM="::1")
        wait_for("it to listen", lambda: "INFO started " in service.log.read_text(), seconds=SECONDS)
        refused = run(command, CLUSTERCHECK_DISABLED_FILE=path, CLUSTERCHECK_PORT=str(service.port))
        assert refused.returncode == 1
        assert "closed the connection: check CLUSTERCHECK_ALLOW_FROM there" in refused.stderr

    @pytest.mark.parametrize("command", ["drain", "undrain"])
    def test_what_another_program_answers_reaches_no_terminal(self, tmp_path: Path, command: str) -> None:
        answers = {
            b"HTTP/1.0 200 OK\r\n\r\nhello\x1b[2J": "something other than clustercheckd answers there",
            b'HTTP/1.0 200 OK\r\n\r\n{"available": false, "reason": "x\\u001b[2J", "detail": "\\u009b2J"}': "x?[2J: ",
        }
        for answer, words in answers.items():
            path = tmp_path / "disabled"
            path.unlink(missing_ok=True)
            with socket.create_server(("127.0.0.1", 0)) as other:
                port = str(other.getsockname()[1])
                answering = threading.Thread(target=answer_once, args=(other, answer))
                answering.start()
                done = run(command, CLUSTERCHECK_DISABLED_FILE=str(path), CLUSTERCHECK_PORT=port)
                answering.join()
            printed = done.stdout + done.stderr
            assert words in printed
            assert all(character.isprintable() and character.isascii() for character in printed.replace("\n", ""))

    @pytest.mark.parametrize("command", ["drain", "undrain"])
    def test_what_cannot_be_done_is_one_line(self, tmp_path: Path, command: str) -> None:
        path = tmp_path / "file"
        path.touch()
        done = run(command, CLUSTERCHECK_DISABLED_FILE=f"{path}/below")
        expected = f"clustercheckd: CLUSTERCHECK_DISABLED_FILE: {path}/below: Not a directory"
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert done.stderr.startswith(expected)

    def test_a_link_to_nowhere_is_no_drain(self, tmp_path: Path) -> None:
        path = tmp_path / "link"
        path.symlink_to(tmp_path / "nowhere")
        done = run("drain", CLUSTERCHECK_DISABLED_FILE=str(path))
        expected = f"clustercheckd: CLUSTERCHECK_DISABLED_FILE: {path} is a link to nowhere\n"
        assert (1, "", expected) == (done.returncode, done.stdout, done.stderr)


def answer_once(listening: socket.socket, answer: bytes) -> None:
    """Answer one HTTP request."""
    listening.settimeout(SECONDS)
    connection, _ = listening.accept()
    with connection:
        connection.recv(1024)
        connection.sendall(answer)
