"""clustercheckd as a process: how it starts, what it logs, how it ends."""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from app import __version__
from harness.ports import LOOPBACK
from harness.service import without_settings
from harness.waiting import meanwhile, wait_for
from tests.conftest import Services, settings_for
from tests.fake_mysql import FakeMySQL, galera
from tests.measured import done_within
from tests.unit import pages

SECONDS = 20
COMMAND = ("-m", "app")


def run(
    *arguments: str,
    through: Sequence[str] = (),
    program: Sequence[str] = COMMAND,
    **environ: str,
) -> "subprocess.CompletedProcess[str]":
    """Run the command line to its end, by way of a wrapper's command if there is one.

    program: what Python is to run in place of it.
    """
    return subprocess.run(
        [*through, sys.executable, *program, *arguments],
        env={**without_settings(os.environ), **environ},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def begin(*arguments: str, **environ: str) -> "subprocess.Popen[str]":
    """Start the command line, and do not wait for its end."""
    return subprocess.Popen(
        [sys.executable, *COMMAND, *arguments],
        env={**without_settings(os.environ), **environ},
        stdout=subprocess.PIPE,
        text=True,
    )


def redirected(redirections: str) -> Sequence[str]:
    """Give the command of a shell that redirects the standard streams of what it runs."""
    return ("bash", "-c", f'exec "$@" {redirections}', "bash")


def with_file_in_etc(name: str, path: Path) -> Sequence[str]:
    """Give a wrapper whose command finds a file in /etc that nobody else sees. It needs root."""
    return with_mounts(f"mount --bind '{path}' /etc/{name}")


def with_mounts(commands: str) -> Sequence[str]:
    """Give a wrapper whose command sees what these have mounted, and nobody else. It needs root."""
    return ("unshare", "--mount", "sh", "-ec", f'{commands}; exec "$@"', "sh")


BLOCKED = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_each_setting_that_stops_the_start_is_an_error_in_the_journal(
    tmp_path: Path,
) -> None:
    journal = tmp_path / "journal"
    journal.touch()
    status = journal.stat()
    settings = {"CLUSTERCHECK_PORT": "0x", "MAX_RECV_QUEUE": "x"}
    settings["JOURNAL_STREAM"] = f"{status.st_dev}:{status.st_ino}"
    assert run(through=redirected(f"2>{journal}"), **settings).returncode == 2
    lines = journal.read_text().splitlines()
    for line, name in zip(lines, ("CLUSTERCHECK_PORT", "MAX_RECV_QUEUE"), strict=True):
        assert line.startswith(f"<3>clustercheckd: {name}: ")


def test_a_port_in_use_is_told_in_one_line() -> None:
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        address = f"CLUSTERCHECK_HOST={LOOPBACK} CLUSTERCHECK_PORT={port}"
        done = run(through=("env", *address.split()))
    told = (
        f"clustercheckd: cannot listen on {address}: Address already in use: see, as root:"
        f" ss -Hltnp 'sport = :{port}'; systemctl list-sockets\n"
    )
    assert (done.returncode, done.stderr) == (2, told)


def test_sighup_ends_nothing_and_ctrl_c_all(
    services: Services, node: FakeMySQL
) -> None:
    node.hang_all()
    service = services.start_unasked(**settings_for(node), CLUSTERCHECK_DEADLINE="60")
    wait_for("the first poll", lambda: node.connections)
    # Before it serves, and while it does.
    service.process.send(signal.SIGHUP)
    service.wait_until_up()
    service.process.send(signal.SIGHUP)
    assert service.get("/livez").status == 200
    # Nor does a poll that hangs delay the end.
    with done_within("the end", 5):
        assert service.process.stop(signal.SIGINT) == 0
    assert "INFO stopping signal=SIGINT" in service.log.read_text()


def test_sighup_in_the_end_does_not_turn_it_into_a_failure(
    services: Services, node: FakeMySQL
) -> None:
    service = services.beside(node)
    service.process.terminate()
    with meanwhile(lambda _: service.process.send(signal.SIGHUP), 0.001):
        wait_for("the end", lambda: service.process.exit_code is not None)
    assert service.process.exit_code == 0


def test_the_script_of_the_page_imports_no_other_app(tmp_path: Path) -> None:
    (isolate,) = (
        command.line
        for block in pages.blocks_under("docs/install.md", "From source", "console")
        for command in pages.commands_of(block)
        if command.line.endswith(" -I/' /opt/clustercheckd/bin/clustercheckd")
    )
    script = tmp_path / "clustercheckd"
    shutil.copy(Path(sys.executable).parent / "clustercheckd", script)
    # As a file of another project would, in its directory.
    (tmp_path / "app.py").touch()
    asked = [str(script), "--version"]
    environ = {"PYTHONPATH": str(tmp_path)}
    assert subprocess.run(
        asked, env=environ, capture_output=True, check=False
    ).returncode
    in_tmp = isolate.replace("/opt/clustercheckd/bin", str(tmp_path))
    subprocess.run(shlex.split(in_tmp), check=True)
    shown = subprocess.check_output(asked, env=environ, text=True)
    assert shown == f"clustercheckd {__version__}\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_whoever_started_it_had_blocked_ends_it(
    services: Services, number: signal.Signals
) -> None:
    service = services.start_through((sys.executable, "-c", BLOCKED), {})
    with done_within("the end", 5):
        assert service.process.stop(number) == 0


def test_the_log_says_what_is_watched_and_each_change_and_no_health_check(
    services: Services, node: FakeMySQL
) -> None:
    service = services.beside(node, MYSQL_PASSWORD="geheim", CLUSTERCHECK_PROT="1")
    node.behaviour = galera({"wsrep_ready": "OFF"})
    node.drop_connections()
    service.wait_for_verdict(503, "not-ready")
    assert service.stop() == 0
    log = [line.partition(" ")[2] for line in service.log.read_text().splitlines()]
    assert log[0].startswith('WARNING setting ignored detail="CLUSTERCHECK_PROT ')
    address = f"127.0.0.1:{node.port} as someone (with a password)"
    assert log[1].startswith(
        f'INFO started version={__version__} database="{address}" listen='
    )
    assert " max_age_seconds=1.9 available_when_donor=false " in log[1]
    # A visit may have been in one of the sessions that were dropped.
    changes = [
        line.partition(" detail")[0] for line in log[2:] if " login " not in line
    ]
    assert changes == [
        "INFO available reason=synced",
        "WARNING unavailable reason=not-ready was=synced",
        "INFO stopping signal=SIGTERM",
    ]
