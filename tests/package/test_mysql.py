"""A real MySQL, from Debian sid: what the mock server claims of its logins and variables.

It has no wsrep.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymysql
import pytest

from app.database.login import Database
from app.database.poller import poll_once
from app.verdict.node_state import NodeState, PollFailure
from app.verdict.reason import Reason
from harness.galera import connect_over_socket
from harness.ports import LOOPBACK, Ports
from harness.process import Process
from harness.service import Service
from harness.waiting import wait_for
from tests.cluster.test_verdicts import check_select_is_like_show
from tests.conftest import Services
from tests.package.machine import system

ACCOUNT, PASSWORD = "clustercheck", "geheim é"
# Of Debian's user nobody.
NOBODY = 65534
START_SECONDS = 60.0
DEADLINE_SECONDS = 10.0
WAYS = ("socket", "tls", "plain tcp")


class MySQL:
    """A server in the system of sid, on free ports of this machine. It runs as nobody."""

    def __init__(self, root: Path, directory: Path, ports: Ports) -> None:
        self._root = root
        self._directory = directory
        self._ports = {name: ports.free() for name in ("port", "admin-port")}
        self._process: Process | None = None
        self._as_nobody = [
            "setpriv",
            f"--reuid={NOBODY}",
            f"--regid={NOBODY}",
            "--clear-groups",
            "--pdeathsig=KILL",
        ]

    def install(self) -> None:
        """Make its data, keys and certificates."""
        shutil.chown(self._directory, NOBODY, NOBODY)
        installing = self._run("--initialize-insecure")
        wait_for(
            "the data of MySQL", lambda: installing.exit_code is not None, seconds=START_SECONDS
        )
        assert installing.exit_code == 0, installing.log.read_text()

    def restart(self, *options: str) -> None:
        """Start it, again after a stop, and wait until it answers."""
        self.stop()
        ports = [f"--{name}={port}" for name, port in self._ports.items()]
        addresses = [f"--bind-address={LOOPBACK}", f"--admin-address={LOOPBACK}", "--mysqlx=OFF"]
        self._process = started = self._run(
            *ports, *addresses, f"--socket={self._inside('s')}", *options
        )

        def answers() -> bool:
            started.check()
            try:
                self.connect().close()
            except (pymysql.MySQLError, OSError):
                return False
            return True

        wait_for("MySQL to answer", answers, seconds=START_SECONDS)

    def stop(self) -> None:
        """Stop it, if it runs."""
        if self._process is not None:
            self._process.stop(seconds=START_SECONDS)

    def connect(self) -> "pymysql.Connection[Any]":
        """Connect as the administrator."""
        return connect_over_socket(self._directory / "s")

    def sql(self, *statements: str) -> None:
        """Run statements as the administrator."""
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    @contextmanager
    def setting(self, name: str, value: str, back: str) -> Iterator[None]:
        """Set a global variable while the block runs."""
        self.sql(f"SET GLOBAL {name}={value}")
        try:
            yield
        finally:
            self.sql(f"SET GLOBAL {name}={back}")

    def database(self, way: str) -> Database:
        """Return the settings to connect in this way."""
        if way == "socket":
            return Database(socket=str(self._directory / "s"), username=ACCOUNT, password=PASSWORD)
        port = self._ports["admin-port" if way == "admin port" else "port"]
        # The certificates that the server makes for itself name no host.
        tls = (
            {"ssl_ca": str(self._directory / "data" / "ca.pem"), "ssl_verify": "ca"}
            if way == "tls"
            else {}
        )
        return Database(host=LOOPBACK, port=port, username=ACCOUNT, password=PASSWORD, **tls)  # type: ignore[arg-type]

    def poll(self, way: str = "socket") -> NodeState | PollFailure:
        """Log in in this way, and poll once."""
        return poll_once(self.database(way), DEADLINE_SECONDS)

    def service(self, services: Services) -> Service:
        """Run the service beside it, and wait until it has read that this is no Galera node."""
        path = str(self._directory / "s")
        service = services.start(MYSQL_SOCKET=path, MYSQL_USERNAME=ACCOUNT, MYSQL_PASSWORD=PASSWORD)
        service.wait_for_verdict(503, "not-galera")
        return service

    def _inside(self, name: str) -> str:
        """Return the path within its system."""
        return f"/{(self._directory / name).relative_to(self._root)}"

    def _run(self, *options: str) -> Process:
        own = [
            "--no-defaults",
            f"--datadir={self._inside('data')}",
            f"--pid-file={self._inside('pid')}",
        ]
        small = ["--secure-file-priv=NULL", "--skip-log-bin", "--innodb-buffer-pool-size=64M"]
        command = [
            "chroot",
            str(self._root),
            *self._as_nobody,
            "/usr/sbin/mysqld",
            *own,
            *small,
            *options,
        ]
        return Process("mysqld", command, self._directory / "log")


@pytest.fixture(scope="module")
def running(ports: Ports) -> Iterator[MySQL]:
    """Make a system with MySQL, once, and run a server with data of its own in it."""
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: to make the system of MySQL needs root")
    try:
        root = system("sid")
    except subprocess.CalledProcessError as fault:
        pytest.skip(
            f"NOT TESTED: no Debian sid with MySQL here: system.sh exited with status {fault.returncode}"
        )
    with tempfile.TemporaryDirectory(dir=root / "tmp") as directory:
        mysql = MySQL(root, Path(directory), ports)
        try:
            mysql.install()
            mysql.restart()
            # Only root of this machine may be its administrator.
            mysql.sql("INSTALL PLUGIN auth_socket SONAME 'auth_socket.so'")
            mysql.sql("ALTER USER root@localhost IDENTIFIED WITH auth_socket")
            yield mysql
        finally:
            mysql.stop()


@pytest.fixture
def mysql(running: MySQL) -> MySQL:
    """Return the running server, with a new account for the socket and for TCP: USAGE, and the
    default plugin.
    """
    for host in ("localhost", LOOPBACK):
        account = f"{ACCOUNT}@'{host}'"
        running.sql(
            f"DROP USER IF EXISTS {account}", f"CREATE USER {account} IDENTIFIED BY '{PASSWORD}'"
        )
    return running


@pytest.mark.parametrize("way", WAYS)
def test_caching_sha2_password_logs_in_for_the_first_time_and_from_the_servers_cache(
    mysql: MySQL, way: str
) -> None:
    # That empties the cache: the first login then needs the whole password, the next one only its
    # hash.
    mysql.sql("FLUSH PRIVILEGES")
    states = [mysql.poll(way) for _ in range(3)]
    assert all(
        isinstance(state, NodeState) and (state.version or "").startswith("9.") for state in states
    ), states
    mysql.sql(
        f"ALTER USER {ACCOUNT}@localhost IDENTIFIED BY 'x'",
        f"ALTER USER {ACCOUNT}@'{LOOPBACK}' IDENTIFIED BY 'x'",
    )
    assert mysql.poll(way) == PollFailure(
        Reason.ACCESS_DENIED, "the server refused user clustercheck (error 1045)"
    )


def test_a_server_without_wsrep_is_not_galera(mysql: MySQL, services: Services) -> None:
    node = mysql.service(services).status()["node"]
    assert {
        name: value
        for name, value in node.items()
        if name.startswith("wsrep_") and value is not None
    } == {}


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
        "version",
    }


def test_super_read_only_is_seen(mysql: MySQL) -> None:
    with mysql.setting("super_read_only", "ON", "OFF"), mysql.setting("read_only", "ON", "OFF"):
        state = mysql.poll()
    assert isinstance(state, NodeState)
    assert (state.read_only, state.super_read_only) == ("ON", "ON")


def test_offline_mode_ends_the_session_and_is_the_reason_at_the_next_login(
    mysql: MySQL, services: Services
) -> None:
    service = mysql.service(services)
    with mysql.setting("offline_mode", "ON", "OFF"):
        assert "(error 3032)" in service.wait_for_verdict(503, "offline").body
    service.wait_for_verdict(503, "not-galera")


def test_an_account_at_its_limit_is_too_many_connections_while_the_session_goes_on(
    mysql: MySQL, services: Services
) -> None:
    mysql.sql(f"ALTER USER {ACCOUNT}@localhost WITH MAX_USER_CONNECTIONS 1")
    service = mysql.service(services)
    words = (
        "account clustercheck has reached its own limit, such as MAX_USER_CONNECTIONS (error 1226)"
    )
    assert mysql.poll() == PollFailure(Reason.TOO_MANY_CONNECTIONS, words)
    wait_for("another login of the service", lambda: service.status()["login_failure"])
    assert service.status()["login_failure"] == {"reason": "too-many-connections", "detail": words}
    assert service.get().reason == "not-galera"


@pytest.mark.parametrize(("option", "number"), [("PASSWORD EXPIRE", 1862), ("ACCOUNT LOCK", 3118)])
def test_an_account_that_is_expired_or_locked_is_refused(
    mysql: MySQL, option: str, number: int
) -> None:
    mysql.sql(f"ALTER USER {ACCOUNT}@localhost {option}")
    words = f"the server refused user clustercheck (error {number})"
    assert mysql.poll() == PollFailure(Reason.ACCESS_DENIED, words)


def test_the_admin_port_takes_an_account_with_its_privilege_although_the_server_is_full(
    mysql: MySQL,
) -> None:
    words = "the server refused user clustercheck (error 1227)"
    assert mysql.poll("admin port") == PollFailure(Reason.ACCESS_DENIED, words)
    mysql.sql(f"GRANT SERVICE_CONNECTION_ADMIN ON *.* TO {ACCOUNT}@'{LOOPBACK}'")
    # More than max_connections, so that nobody gets in when another one leaves.
    with mysql.connect() as administrator, mysql.connect(), administrator.cursor() as cursor:
        cursor.execute("SET GLOBAL max_connections=1")
        try:
            full, on_its_own_port = mysql.poll("plain tcp"), mysql.poll("admin port")
        finally:
            cursor.execute("SET GLOBAL max_connections=151")
    assert full == PollFailure(
        Reason.TOO_MANY_CONNECTIONS,
        "the server has no connection left for user clustercheck (error 1040)",
    )
    assert isinstance(on_its_own_port, NodeState)


def test_an_expired_password_is_refused_too_where_the_server_lets_it_log_in(mysql: MySQL) -> None:
    mysql.restart("--disconnect-on-expired-password=OFF")
    mysql.sql(f"ALTER USER {ACCOUNT}@localhost PASSWORD EXPIRE")
    seen = mysql.poll()
    mysql.restart()
    assert seen == PollFailure(
        Reason.ACCESS_DENIED, "the server refused user clustercheck (error 1820)"
    )
