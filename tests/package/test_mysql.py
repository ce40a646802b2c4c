"""A real MySQL, from Debian sid: what the mock server claims of its logins and variables.

It has no wsrep.
"""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pymysql
import pytest

from app.database.poller import poll_once
from app.settings.database import Database
from app.verdict.node_state import NodeState, PollFailure
from app.verdict.reason import Reason
from harness.galera import connect_over_socket
from harness.ports import LOOPBACK, Ports
from harness.process import Process, output_of, with_system_path
from harness.waiting import wait_for
from tests.cluster.test_verdicts import check_select_is_like_show
from tests.conftest import Services
from tests.package.machine import system

ACCOUNT, PASSWORD = "clustercheck", "geheim é"
# Of Debian's user nobody.
NOBODY = 65534
START_SECONDS = 60.0
DEADLINE_SECONDS = 10.0


class MySQL:
    """A server in the system of sid, on free ports of this machine. It runs as nobody."""

    def __init__(self, root: Path, directory: Path, ports: Ports) -> None:
        self._root = root
        self._directory = directory
        self._port = ports.free()
        self.socket = directory / "s"

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make its data, keys and certificates, and run it while the block runs."""
        shutil.chown(self._directory, NOBODY, NOBODY)
        output_of(
            *self._command("--initialize-insecure"),
            seconds=START_SECONDS,
            env=with_system_path(os.environ),
        )
        command = self._command(
            f"--port={self._port}",
            f"--bind-address={LOOPBACK}",
            f"--socket={self._inside('s')}",
            "--mysqlx=OFF",
        )
        server = Process("mysqld", command, self._directory / "log")

        def answers() -> bool:
            server.check()
            with suppress(pymysql.MySQLError, OSError):
                self.connect().close()
                return True
            return False

        try:
            wait_for("MySQL to answer", answers, seconds=START_SECONDS)
            yield
        finally:
            server.stop(seconds=START_SECONDS)

    def connect(self) -> "pymysql.Connection[Any]":
        """Connect as the administrator."""
        return connect_over_socket(self.socket)

    def sql(self, *statements: str) -> None:
        """Run statements as the administrator."""
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def database(self, way: str) -> Database:
        """Return the settings to connect in this way."""
        tcp = {"mysql_host": LOOPBACK, "mysql_port": self._port}
        authority = str(self._directory / "data" / "ca.pem")
        ways: dict[str, dict[str, Any]] = {
            "socket": {"mysql_socket": str(self.socket)},
            "plain tcp": tcp,
            # The certificates that the server makes for itself name no host.
            "tls": {**tcp, "mysql_ssl_ca": authority, "mysql_ssl_verify": "ca"},
        }
        return Database(**ways[way], mysql_username=ACCOUNT, mysql_password=PASSWORD)

    def poll(self, way: str = "socket") -> NodeState | PollFailure:
        """Log in in this way, and poll once."""
        return asyncio.run(poll_once(self.database(way), DEADLINE_SECONDS))

    def _inside(self, name: str) -> str:
        """Return the path within its system."""
        return f"/{(self._directory / name).relative_to(self._root)}"

    def _command(self, *options: str) -> list[str]:
        return [
            "chroot",
            str(self._root),
            "setpriv",
            f"--reuid={NOBODY}",
            f"--regid={NOBODY}",
            "--clear-groups",
            "--pdeathsig=KILL",
            "/usr/sbin/mysqld",
            "--no-defaults",
            f"--datadir={self._inside('data')}",
            f"--pid-file={self._inside('pid')}",
            "--secure-file-priv=NULL",
            "--skip-log-bin",
            "--innodb-buffer-pool-size=64M",
            *options,
        ]


@pytest.fixture(scope="module")
def running(ports: Ports) -> Iterator[MySQL]:
    """Make a system with MySQL, once, and run a server with data of its own in it."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: to make the system of MySQL needs root")
    try:
        root = system("sid")
    except subprocess.CalledProcessError as fault:
        pytest.skip(
            f"NOT TESTED: no Debian sid with MySQL: system.sh exited with {fault.returncode}"
        )
    with tempfile.TemporaryDirectory(dir=root / "tmp") as directory:
        mysql = MySQL(root, Path(directory), ports)
        with mysql.running():
            # Only root of this machine may be its administrator.
            mysql.sql("INSTALL PLUGIN auth_socket SONAME 'auth_socket.so'")
            mysql.sql("ALTER USER root@localhost IDENTIFIED WITH auth_socket")
            yield mysql


@pytest.fixture
def mysql(running: MySQL) -> MySQL:
    """Return the server with its defaults, and a new account: USAGE, and the default plugin."""
    running.sql("SET GLOBAL max_connections=151", "SET GLOBAL offline_mode=OFF")
    running.sql(
        f"DROP USER IF EXISTS {ACCOUNT}",
        f"CREATE USER {ACCOUNT} IDENTIFIED BY '{PASSWORD}'",
    )
    return running


def assert_refused(result: NodeState | PollFailure, number: int) -> None:
    """Fail unless a poll was denied access with this error of the server."""
    assert isinstance(result, PollFailure)
    assert result.reason is Reason.ACCESS_DENIED
    assert f"(error {number})" in result.detail


@pytest.mark.parametrize("way", ["socket", "tls", "plain tcp"])
def test_caching_sha2_password_logs_in_for_the_first_time_and_from_the_servers_cache(
    mysql: MySQL, way: str
) -> None:
    # That empties the cache: the first login then needs the whole password, the next one only its
    # hash.
    mysql.sql("FLUSH PRIVILEGES")
    for _ in range(3):
        state = mysql.poll(way)
        assert isinstance(state, NodeState), state
        assert state.threads_connected
    mysql.sql(f"ALTER USER {ACCOUNT} IDENTIFIED BY 'x'")
    assert_refused(mysql.poll(way), 1045)


def test_select_and_show_give_the_same_variables_of_which_it_lacks_tx_read_only(
    mysql: MySQL,
) -> None:
    assert check_select_is_like_show(mysql.database("socket")) == {
        "read_only",
        "super_read_only",
        "transaction_read_only",
        "offline_mode",
        "skip_networking",
        "max_connections",
        "max_user_connections",
        "version",
    }


def test_offline_mode_ends_the_session_and_is_the_reason_at_the_next_login(
    mysql: MySQL, services: Services
) -> None:
    service = services.start(
        MYSQL_SOCKET=str(mysql.socket), MYSQL_USERNAME=ACCOUNT, MYSQL_PASSWORD=PASSWORD
    )
    service.wait_for_verdict(503, "not-galera")
    mysql.sql("SET GLOBAL offline_mode=ON")
    assert "(error 3032)" in service.wait_for_verdict(503, "offline").body
    mysql.sql("SET GLOBAL offline_mode=OFF")
    service.wait_for_verdict(503, "not-galera")


@pytest.mark.parametrize(
    ("option", "number"), [("PASSWORD EXPIRE", 1862), ("ACCOUNT LOCK", 3118)]
)
def test_an_account_that_is_expired_or_locked_is_refused(
    mysql: MySQL, option: str, number: int
) -> None:
    mysql.sql(f"ALTER USER {ACCOUNT} {option}")
    assert_refused(mysql.poll(), number)
