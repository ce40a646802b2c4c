"""check, watch, drain and undrain as people type them."""

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness.service import without_settings
from harness.waiting import wait_for
from tests.conftest import Services
from tests.fake_mysql import FakeMySQL, Peer, fake_mysql, galera
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
        assert done.stdout == "NOT available donor: wsrep_local_state is 2 (Donor/Desynced); AVAILABLE_WHEN_DONOR=0\n"
        assert (done.returncode, allowed.returncode) == (1, 0)

    def test_misuse_is_2(self) -> None:
        assert run("check", MYSQL_PORT="x").returncode == 2
        assert run("chekc").returncode == 2
        assert run("drain", "--json").returncode == 2

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
    for command in ("serve", "check", "watch", "drain"):
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

    @pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
    def test_closed_descriptors_abort_no_check(self, closed: str) -> None:
        with fake_mysql(galera()) as server:
            done = run_redirected(closed, "check", **beside(server))
            misused = run_redirected(closed, "check", MYSQL_PORT="x")
        expected = "" if " >" in f" {closed}" else "available synced: wsrep_local_state is 4 (Synced)\n"
        assert (0, expected, "") == (done.returncode, done.stdout, done.stderr)
        assert (misused.returncode, misused.stdout) == (2, "")
        assert ("MYSQL_PORT" in misused.stderr) == ("2>" not in closed)

    @pytest.mark.parametrize("arguments", [("check",), ("check", "--json")])
    @pytest.mark.parametrize(("state", "code"), [("4", 0), ("1", 1)])
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

    def test_watch_ends_where_its_rows_cannot_be_written(self) -> None:
        with fake_mysql(galera()) as server:
            done = run_redirected(">/dev/full", "watch", **beside(server))
        assert (done.returncode, done.stderr) == (1, "clustercheckd: standard output: No space left on device\n")


class TestDrain:
    """drain makes the disabled file, undrain removes it, and both ask the service whether it sees that."""

    def test_drain_and_undrain_are_confirmed_by_the_service(self, services: Services) -> None:
        service = services.start(CLUSTERCHECK_DRAIN_STATUS="404")
        path, where = service.disabled_file, f"127.0.0.1:{service.port}"
        environ = {"CLUSTERCHECK_DISABLED_FILE": str(path), "CLUSTERCHECK_PORT": str(service.port)}
        done = run("drain", **environ)
        expected = (
            f"created {path}; to remove it, type: clustercheckd undrain\n{where} answers 404 disabled: no new traffic\n"
        )
        assert (0, expected, "", True) == (done.returncode, done.stdout, done.stderr, path.exists())
        # Whoever may not read the password may still drain.
        done = run("drain", **environ, MYSQL_PASSWORD_FILE="/no/file")
        assert done.returncode == 0
        assert done.stdout.startswith(f"{path} exists, made by ")
        done = run("undrain", **environ, MYSQL_PASSWORD_FILE="/no/file")
        expected = f"removed {path}\n{where} answers 503 unreachable\n"
        assert (0, expected, False) == (done.returncode, done.stdout, path.exists())
        expected = f"{path} does not exist\n{where} answers 503 unreachable\n"
        assert run("undrain", **environ).stdout == expected
        # What cannot be printed is done all the same.
        done = run_redirected(">/dev/full", "drain", **environ)
        expected = "clustercheckd: standard output: No space left on device\n"
        assert (0, expected, True) == (done.returncode, done.stderr, path.exists())

    def test_a_service_that_looks_elsewhere_is_told(self, services: Services, tmp_path: Path) -> None:
        service = services.start()
        where = f"127.0.0.1:{service.port}"
        environ = {"CLUSTERCHECK_DISABLED_FILE": f"{tmp_path}/other", "CLUSTERCHECK_PORT": str(service.port)}
        done = run("drain", **environ)
        expected = f"clustercheckd: {where} answers 503 unreachable: it does not see {tmp_path}/other\n"
        assert (done.returncode, done.stderr) == (1, expected)
        service.disabled_file.touch()
        done = run("undrain", **environ)
        assert done.returncode == 1
        assert done.stderr.startswith(
            f"clustercheckd: {where} still answers 503 disabled: {service.disabled_file} exists, made by "
        )

    @pytest.mark.parametrize("command", ["drain", "undrain"])
    def test_a_service_that_does_not_answer_is_told(self, services: Services, tmp_path: Path, command: str) -> None:
        path = f"{tmp_path}/disabled"
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = str(unused.getsockname()[1])
        done = run(command, CLUSTERCHECK_DISABLED_FILE=path, CLUSTERCHECK_PORT=port)
        expected = f"clustercheckd: not confirmed: 127.0.0.1:{port}: Connection refused\n"
        assert (done.returncode, done.stderr, Path(path).exists()) == (1, expected, command == "drain")
        # It answers nobody here, but listens.
        service = services.start_unasked(CLUSTERCHECK_HOST="*", CLUSTERCHECK_ALLOW_FROM="::1")
        wait_for("it to listen", lambda: "INFO started " in service.log.read_text(), seconds=SECONDS)
        environ = {"CLUSTERCHECK_DISABLED_FILE": path, "CLUSTERCHECK_PORT": str(service.port)}
        refused = run(command, **environ, CLUSTERCHECK_ALLOW_FROM="::1")
        expected = f"127.0.0.1:{service.port} does not answer 127.0.0.1, which is not in CLUSTERCHECK_ALLOW_FROM"
        assert (refused.returncode, refused.stderr) == (1, f"clustercheckd: not confirmed: {expected}\n")

    def test_another_program_on_the_port_is_told(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            where = f"127.0.0.1:{other.getsockname()[1]}"
            answering = threading.Thread(target=answer_once, args=(other,))
            answering.start()
            environ = {"CLUSTERCHECK_DISABLED_FILE": f"{tmp_path}/x", "CLUSTERCHECK_PORT": where.partition(":")[2]}
            done = run("drain", **environ)
            answering.join()
        expected = f"what answers on {where} is not clustercheckd (no x-clustercheck-reason)"
        assert (done.returncode, done.stderr) == (1, f"clustercheckd: not confirmed: {expected}\n")

    @pytest.mark.parametrize("command", ["drain", "undrain"])
    def test_what_cannot_be_done_is_one_line(self, tmp_path: Path, command: str) -> None:
        path = tmp_path / "file"
        path.touch()
        done = run(command, CLUSTERCHECK_DISABLED_FILE=f"{path}/below")
        expected = f"clustercheckd: CLUSTERCHECK_DISABLED_FILE: {path}/below: Not a directory\n"
        assert (1, "", expected) == (done.returncode, done.stdout, done.stderr)

    def test_a_link_to_nowhere_is_no_drain(self, tmp_path: Path) -> None:
        path = tmp_path / "link"
        path.symlink_to(tmp_path / "nowhere")
        done = run("drain", CLUSTERCHECK_DISABLED_FILE=str(path))
        expected = f"clustercheckd: CLUSTERCHECK_DISABLED_FILE: {path} is a link to nowhere\n"
        assert (1, "", expected) == (done.returncode, done.stdout, done.stderr)


def answer_once(listening: socket.socket) -> None:
    """Answer one HTTP request as a program that is not clustercheckd."""
    listening.settimeout(SECONDS)
    connection, _ = listening.accept()
    with connection:
        connection.recv(1024)
        connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nhello")


class TestWatch:
    """A row a second, until Ctrl-C."""

    def watching(self, server: FakeMySQL, output: int, **environ: str) -> "subprocess.Popen[bytes]":
        """Start watching."""
        settings = {**without_settings(os.environ), **beside(server), **environ}
        return subprocess.Popen([sys.executable, "-m", "app", "watch"], env=settings, stdout=output)

    def test_rows_have_what_a_dba_looks_for(self, tmp_path: Path) -> None:
        path = tmp_path / "rows"
        with fake_mysql(galera({"wsrep_flow_control_active": "false"})) as server, path.open("wb") as output:
            watch = self.watching(server, output.fileno())
            wait_for("two rows", lambda: len(path.read_text().splitlines()) >= 3, seconds=SECONDS)
            watch.send_signal(signal.SIGINT)
            assert watch.wait(SECONDS) == 0
            assert server.connections == 1
        header, row, *_ = path.read_text().splitlines()
        assert header.split() == ["time", "status", "reason", "state", "size", "index", "recvq", "flow"]
        assert row.split()[1:] == ["200", "synced", "Synced", "3", "0", "0", "false"]
        assert "\x1b" not in path.read_text()

    @pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
    def test_colours_are_for_terminals_only(self, no_color: str, *, coloured: bool) -> None:
        ours, theirs = pty.openpty()
        with fake_mysql(galera()) as server:
            watch = self.watching(server, theirs, NO_COLOR=no_color)
            os.close(theirs)
            shown = b""
            while b"synced" not in shown:
                shown += os.read(ours, 1024)
            watch.send_signal(signal.SIGINT)
            watch.wait(SECONDS)
        os.close(ours)
        assert (b"\x1b[32m" in shown) == coloured

    def test_a_pipe_that_is_gone_is_no_traceback(self) -> None:
        with fake_mysql(galera()) as server:
            command = f"{sys.executable} -m app watch | head -n 2"
            settings = {**without_settings(os.environ), **beside(server)}
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", command],
                env=settings,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        assert (done.returncode, done.stderr, len(done.stdout.splitlines())) == (0, "", 2)
