"""check, watch, drain and undrain as people type them."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.service import without_settings
from harness.waiting import wait_for
from tests.fake_mysql import FakeMySQL, Peer, fake_mysql, galera
from tests.http.test_process import SECONDS, run


def beside(server: FakeMySQL, **environ: str) -> dict[str, str]:
    """Give the settings for a hand-written server."""
    return {"MYSQL_HOST": "127.0.0.1", "MYSQL_PORT": str(server.port), "MYSQL_USERNAME": "someone", **environ}


class TestCheck:
    """One line for people, and exit code 0, 1 or 2."""

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


class TestDrain:
    """drain makes the disabled file, undrain removes it, and both say what they did."""

    def test_drain_and_undrain(self, tmp_path: Path) -> None:
        path = tmp_path / "disabled"
        environ = {"CLUSTERCHECK_DISABLED_FILE": str(path)}
        done = run("drain", **environ)
        expected = f"made {path}: this node takes no new traffic (clustercheckd undrain ends that)\n"
        assert (0, expected, True) == (done.returncode, done.stdout, path.exists())
        assert run("drain", **environ).stdout == f"{path} exists already: this node takes no traffic\n"
        done = run("undrain", **environ)
        expected = f"removed {path}: this node takes traffic again as its state allows\n"
        assert (0, expected, False) == (done.returncode, done.stdout, path.exists())
        # Whoever may not read the password may still drain.
        assert run("drain", **environ, MYSQL_PASSWORD_FILE="/no/file").returncode == 0
        assert run("undrain", **environ, MYSQL_PASSWORD_FILE="/no/file").returncode == 0
        assert run("undrain", **environ).stdout == f"there is no {path}: this node is not drained\n"

    @pytest.mark.parametrize("command", ["drain", "undrain"])
    def test_what_cannot_be_done_is_one_line(self, tmp_path: Path, command: str) -> None:
        path = tmp_path / "file"
        path.touch()
        done = run(command, CLUSTERCHECK_DISABLED_FILE=f"{path}/below")
        expected = f"clustercheckd: CLUSTERCHECK_DISABLED_FILE: {path}/below: Not a directory\n"
        assert (1, "", expected) == (done.returncode, done.stdout, done.stderr)


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
        assert header.split() == ["time", "verdict", "reason", "state", "size", "index", "recvq", "flow"]
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
