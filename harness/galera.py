"""Real MariaDB servers here, with or without Galera: one installation, any number of nodes."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any

import pymysql

from harness.block import Block
from harness.certificates import Certificate, make_authority, make_certificate
from harness.network import RemoteHost
from harness.ports import LOOPBACK, Ports, listens
from harness.process import Process, ProcessEndedError, with_system_path
from harness.waiting import wait_for

ACCOUNT, PASSWORD = "clustercheck", "s3cret, with = and #"
"""The account that clustercheckd logs in with. It has only USAGE."""

DEMO = "demo"
"""The name, password and database of an account for clients that read and write."""

WRITE = "INSERT INTO writes (node) VALUES (@@wsrep_node_name) RETURNING node"
"""What such a client writes; it returns the name of the node."""

_GROUP = "clustercheckd"
_GROUP_PORT = 4567
_PROVIDERS = (
    "/usr/lib/galera/libgalera_smm.so",
    "/usr/lib64/galera-4/libgalera_smm.so",
    "/usr/lib64/galera/libgalera_smm.so",
)
_IN_MEMORY = Path("/dev/shm")  # noqa: S108 (its subdirectories are made by mkdtemp)
_ROOM_BYTES = 4 << 30
"""What all the nodes of a run need at the most, twice over."""
_DATA_BYTES = 8 << 30
_BINARY_LOG_BYTES = 1 << 30
"""Enough for the commits of some hours, and for a large transaction."""
_PAGE_BYTES = 4096
_SPARE_BYTES = 256 << 10
_START_SECONDS = 60.0
_RESTARTS = 2
_QUERY_SECONDS = 10
_FEW_CONNECTIONS, _USUAL_CONNECTIONS = 20, 151
_REGISTERS = (
    *("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp"),
    *(f"r{number}" for number in range(8, 16)),
    *("rip", "orig_rax"),
)
_SQL_OF_INSTALLATION = (
    f"CREATE USER '{ACCOUNT}'@'localhost' IDENTIFIED BY '{PASSWORD}'",
    f"CREATE USER '{ACCOUNT}'@'{LOOPBACK}' IDENTIFIED BY '{PASSWORD}'",
    f"CREATE DATABASE {DEMO}",
    (
        f"CREATE TABLE {DEMO}.writes (id INT PRIMARY KEY AUTO_INCREMENT, node VARCHAR(64),"
        " at TIMESTAMP(6) DEFAULT NOW(6))"
    ),
    *(
        statement
        for host in (LOOPBACK, "198.%")
        for statement in (
            f"CREATE USER '{DEMO}'@'{host}' IDENTIFIED BY '{DEMO}'",
            f"GRANT ALL ON {DEMO}.* TO '{DEMO}'@'{host}'",
        )
    ),
    f"CREATE TABLE {DEMO}.altered (id INT PRIMARY KEY)",
)

Rows = tuple[tuple[Any, ...], ...]


def can_mount() -> bool:
    """Return whether this process may mount a file system.

    It tries, in a mount namespace that ends at once.
    """
    mounting = ["mount", "-t", "tmpfs", "tmpfs", tempfile.gettempdir()]
    return (
        subprocess.run(
            ["unshare", "--mount", *mounting], capture_output=True, check=False
        ).returncode
        == 0
    )


def _has_memory() -> bool:
    """Return whether there is a file system in memory with room for the nodes.

    On a busy disk a node hangs for seconds. The other members then take it for lost, and health
    checks fail, as they should.
    """
    return _IN_MEMORY.exists() and shutil.disk_usage(_IN_MEMORY).free >= _ROOM_BYTES


RECEIVERS = {"rsync": "rsync", "mariabackup": "socat"}
"""By the method of a full state transfer, the command that receives it."""

SHORT_TIMEOUTS = (
    "evs.keepalive_period=PT0.5S",
    "evs.suspect_timeout=PT3S",
    "evs.inactive_timeout=PT6S",
    "gmcast.time_wait=PT1S",
    "gmcast.peer_timeout=PT2S",
)
"""Shorter than usual, for tests wait for them; long enough for a machine that is busy for a
second."""


@dataclass(frozen=True)
class Group:
    """How a group differs from the usual one.

    provider_options, options: more of them, of each member's provider and server. is_encrypted: its
    members speak TLS with each other. is_ipv6: or IPv6, on hosts of their own. weightless: its last
    member counts for no majority. has_arbitrator: garbd is one more member, on a host of its own.
    """

    provider_options: Sequence[str] = ()
    options: Sequence[str] = ()
    is_encrypted: bool = False
    is_ipv6: bool = False
    weightless: bool = False
    has_arbitrator: bool = False


class Installation(Block):
    """A directory with the data of a first node, and the nodes made from it.

    When the `with` block ends, everything is removed, processes included. If root starts it, the
    servers run as the user mysql, because an rsync state transfer refuses to write as root.

    hosts: where the nodes of its cluster run, in that order; without any, they run here.
    binary_logs: each node has a binary log, on a small file system of its own, and syncs its logs.
    That needs the right to mount. options: more options of each server. group_timeouts: provider
    options for how soon the group excludes a node; none are Galera's defaults. group: other ways of
    it; an arbitrator takes the last host.
    """

    def __init__(
        self,
        *,
        hosts: Sequence[RemoteHost] = (),
        binary_logs: bool = False,
        options: Sequence[str] = (),
        group_timeouts: Sequence[str] = SHORT_TIMEOUTS,
        group: Group = Group(),
    ) -> None:
        self.group = group
        self.provider_options = [*group_timeouts, *group.provider_options]
        self.hosts = hosts
        self.options = (*options, *group.options)
        self.user = "mysql" if os.geteuid() == 0 else None
        self.directory = Path(
            tempfile.mkdtemp(
                prefix="clustercheckd-", dir=_IN_MEMORY if _has_memory() else None
            )
        )
        # Not an option of the command: mariabackup does not take it there.
        self.option_file = self.directory / "server.cnf"
        self.ports = Ports()
        self._nodes: list[Node] = []
        self.arbitrator = (
            Arbitrator(self, hosts[-1].within if hosts else ())
            if group.has_arbitrator
            else None
        )
        self._binary_logs = binary_logs
        self._mounted: list[Path] = []

    def _start(self) -> None:
        """Install, which takes about two seconds."""
        if self._binary_logs:
            # InnoDB never syncs a redo log in /dev/shm.
            self._mount(self.directory, _DATA_BYTES)
        self.give_to_server(self.directory)
        self.option_file.write_text("[mysqld]\ninnodb_buffer_pool_size=64M\n")
        if self.group.is_encrypted:
            authority, own = self.certified("group")
            self.provider_options += [
                f"socket.ssl_ca={authority.cert}",
                f"socket.ssl_cert={own.cert}",
                f"socket.ssl_key={own.key}",
            ]
        self.template = template = self.node("template")
        self.install(template)
        # Start it once as a cluster of one node: nodes that copy this data then join without a full
        # state transfer.
        template.start_alone()
        for statement in _SQL_OF_INSTALLATION:
            template.sql(statement)
        template.stop()

    def close(self) -> None:
        """Kill the nodes and remove their data."""
        if self.arbitrator:
            self.arbitrator.kill()
        for node in self._nodes:
            node.kill()
        for path in reversed(self._mounted):
            subprocess.run(["umount", str(path)], check=True)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.ports.close()

    def node(
        self, name: str, options: Sequence[str] = (), host: RemoteHost | None = None
    ) -> "Node":
        """Return a new node. It is not started, and only the first one has data yet."""
        data = self.directory / f"{name}-{len(self._nodes)}"
        node = Node(self, name, [*self.options, *options], data, host)
        self._nodes.append(node)
        if self._binary_logs:
            self._mount(node.binary_log, _BINARY_LOG_BYTES)
        return node

    def give_to_server(self, path: Path) -> None:
        """Make the user of the servers the owner of path."""
        path.chmod(0o755)
        if self.user:
            shutil.chown(path, self.user, self.user)

    def certified(self, name: str) -> tuple[Certificate, Certificate]:
        """Make an authority, and a server's certificate for the loopback address.

        The servers can read both.
        """
        directory = self.directory / name
        directory.mkdir()
        authority = make_authority(directory)
        certificate = make_certificate(directory, "server", authority, LOOPBACK)
        for path in (directory, *directory.iterdir()):
            self.give_to_server(path)
        return authority, certificate

    @contextmanager
    def with_full_disk(self) -> Iterator[None]:
        """Have no room for any node's data while the block runs. Needs binary logs."""

        def limit(size_bytes: int) -> None:
            options = f"remount,size={size_bytes}"
            subprocess.run(
                ["mount", "-o", options, str(self.directory)], check=True, timeout=10
            )

        # The servers write meanwhile.
        limit(shutil.disk_usage(self.directory).used + _SPARE_BYTES)
        try:
            yield
        finally:
            limit(_DATA_BYTES)

    def _mount(self, path: Path, room_bytes: int) -> None:
        path.mkdir(exist_ok=True)
        subprocess.run(
            [
                "mount",
                "-t",
                "tmpfs",
                "-o",
                f"size={room_bytes}",
                "tmpfs",
                str(path),
            ],
            check=True,
        )
        self._mounted.append(path)
        self.give_to_server(path)

    def install(self, node: "Node") -> None:
        """Make the data of a new server, without accounts."""
        command = [
            "mariadb-install-db",
            "--no-defaults",
            f"--datadir={node.data}",
            "--auth-root-authentication-method=socket",
            f"--auth-root-socket-user={getpass.getuser()}",
            "--skip-test-db",
        ]
        with node.log.open("ab") as log:
            subprocess.run(
                command,
                check=True,
                stdout=log,
                stderr=log,
                env=with_system_path(node.environ),
                user=self.user,
                group=self.user,
                timeout=_START_SECONDS,
            )


class Node:
    """One MariaDB server: its own data, socket and ports on the loopback address, or on a host.

    data: the directory of its data. Its other files are beside it. binary_log: the directory of its
    binary log, if it has one. link: the name here of what leads to its host.
    """

    def __init__(
        self,
        installation: Installation,
        name: str,
        options: Sequence[str],
        data: Path,
        host: RemoteHost | None,
    ) -> None:
        ports = installation.ports
        self.name, self.host = name, host
        self.address = host.address if host else LOOPBACK
        self.link = host.link if host else ""
        self._group_host = self.address
        if host and installation.group.is_ipv6:
            self._group_host = f"[{host.address_6}]"
        self.port = ports.free()
        self.group_port = _GROUP_PORT if host else ports.free()
        self.data = data
        self.socket, self.log, self._temporary = (
            data.with_suffix(suffix) for suffix in (".sock", ".log", ".tmp")
        )
        self.binary_log = data.with_suffix(".binlog")
        self._temporary.mkdir()
        installation.give_to_server(self._temporary)
        self._installation = installation
        self._options = options
        self._sst_port, self._ist_port = ports.free(), ports.free()
        self._process: Process | None = None
        self.provider_options: Sequence[str] = ()

    @property
    def group_address(self) -> str:
        """Where the other members reach it."""
        return f"{self._group_host}:{self.group_port}"

    @property
    def environ(self) -> dict[str, str]:
        """The environment to run it in.

        A server that starts removes what other servers have in the same TMPDIR.
        """
        return {**os.environ, "TMPDIR": str(self._temporary)}

    @property
    def process(self) -> Process:
        """The running server."""
        if self._process is None:
            raise RuntimeError(f"{self.name} has not been started")
        return self._process

    def start(
        self,
        addresses: Sequence[str] | None = None,
        *,
        bootstrap: bool = False,
        options: Sequence[str] = (),
    ) -> None:
        """Start the server as a member of the cluster at these addresses.

        None: without Galera.

        bootstrap: as the first member of a new component.

        options: more of them, for this start.
        """
        if not self.data.exists():
            # Not shutil, which does not preserve owners and holes.
            template = self._installation.template.data
            subprocess.run(["cp", "-a", str(template), str(self.data)], check=True)
        galera = [] if addresses is None else self._galera_options(addresses)
        logs = (
            [f"--log-bin={self.binary_log}/log", "--sync-binlog=1"]
            if self.binary_log.exists()
            else []
        )
        command = [
            "mariadbd",
            f"--defaults-file={self._installation.option_file}",
            f"--datadir={self.data}",
            f"--socket={self.socket}",
            f"--port={self.port}",
            f"--bind-address={self.address}",
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
            "--innodb-log-file-size=16M",
            "--innodb-flush-log-at-trx-commit=0",
            *galera,
            *logs,
            *self._options,
            *(["--wsrep-new-cluster"] if bootstrap else []),
            *options,
        ]
        user = self._installation.user
        self._process = Process(
            f"mariadbd {self.name}",
            command,
            self.log,
            environ=self.environ,
            user=user,
            within=self.host.within if self.host else (),
        )

    def recover(self) -> list[str]:
        """Run galera_recovery(1) for the stopped server, as Debian's unit does before each start.

        Returns what it prints: the option with the position of the data, UUID:SEQNO.
        """
        options = self.data.with_suffix(".cnf")
        provider = next(filter(os.path.exists, _PROVIDERS))
        lines = (
            "[mysqld]",
            f"datadir={self.data}",
            f"socket={self.socket}",
            f"port={self.port}",
            "innodb_log_file_size=16M",
            "wsrep_on=ON",
            f"wsrep_provider={provider}",
            "wsrep_cluster_address=gcomm://",
            "binlog_format=ROW",
            "innodb_autoinc_lock_mode=2",
        )
        options.write_text("\n".join(lines))
        return subprocess.run(
            ["galera_recovery", f"--defaults-file={options}"],
            check=True,
            capture_output=True,
            text=True,
            timeout=_START_SECONDS,
            env=with_system_path(self.environ),
        ).stdout.split()

    def start_alone(self) -> None:
        """Start the server as a cluster of its own, and wait until it is Synced."""
        self.start([], bootstrap=True)
        self.wait_until_synced()

    def wait_until_synced(self) -> None:
        """Wait until the server is Synced. Raises `ProcessEndedError`."""
        wait_for(
            f"{self.name} to be Synced",
            lambda: (
                self.process.check()
                and self.status("wsrep_local_state_comment") == "Synced"
            ),
            seconds=_START_SECONDS,
        )

    def wait_until_up(self) -> None:
        """Wait until the server answers, whatever its state."""
        wait_for(
            f"{self.name} to answer",
            lambda: self.process.check() and self.status("Uptime"),
        )

    def connect(self, *, seconds: float = _QUERY_SECONDS) -> "pymysql.Connection[Any]":
        """Connect as the administrator over the socket. Raises OSError or pymysql.MySQLError.

        seconds: the time limit for each step.
        """
        return connect_over_socket(self.socket, seconds)

    def connect_as_client(
        self, *, seconds: float = _QUERY_SECONDS
    ) -> "pymysql.Connection[Any]":
        """Connect over TCP as a client. seconds: the time limit for each step.

        Raises pymysql.MySQLError.
        """
        return connect_as_client(self.port, seconds, self.address)

    def sql(self, statement: str) -> Rows:
        """Run a statement as the administrator."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return tuple(cursor.fetchall())

    def status(self, name: str) -> str | None:
        """Return a status variable; None if the server does not answer or does not have it."""
        rows = self._rows(f"SHOW STATUS LIKE '{name}'")
        return str(rows[0][1]) if rows else None

    def sessions_of(self, account: str) -> int | None:
        """Return the number of an account's sessions; None if the server does not answer."""
        rows = self._rows("SHOW PROCESSLIST")
        return None if rows is None else [row[1] for row in rows].count(account)

    def _rows(self, statement: str) -> Rows | None:
        try:
            return self.sql(statement)
        except (pymysql.MySQLError, OSError):
            return None

    def stop(self) -> None:
        """Shut the server down cleanly."""
        self.process.stop(seconds=_START_SECONDS)

    def kill(self) -> None:
        """Kill the server with SIGKILL, if it was ever started."""
        if self._process is not None:
            self._process.kill()

    def commits(self) -> bool:
        """Return whether a client can commit a row, with two seconds for each step."""
        try:
            with self.connect_as_client(seconds=2) as client:
                client.query(WRITE)
        except pymysql.MySQLError:
            return False
        return True

    @contextmanager
    def setting(self, name: str, value: str, back: str) -> Iterator[None]:
        """Set a global variable while the block runs."""
        self._set(name, value)
        try:
            yield
        finally:
            self._set(name, back)

    @contextmanager
    def holding(self, *statements: str) -> Iterator[None]:
        """Hold a session that has run these statements while the block runs."""
        with self.connect() as session:
            for statement in statements:
                session.query(statement)
            yield

    def stalled(self) -> AbstractContextManager[None]:
        """Have the node apply nothing while the block runs, as under a global read lock."""
        return self.holding("FLUSH TABLES WITH READ LOCK")

    def stuck(self) -> AbstractContextManager[None]:
        """Have the node apply no write while the block runs, and still say Synced.

        A session holds a lock that Galera knows nothing of.
        """
        return self.holding(
            "SET SESSION wsrep_on=OFF", f"LOCK TABLES {DEMO}.writes READ"
        )

    def without_commits(self) -> AbstractContextManager[None]:
        """Have every commit wait while the block runs, as at the end of a backup."""
        return self.holding("BACKUP STAGE START", "BACKUP STAGE BLOCK_COMMIT")

    @contextmanager
    def with_full_disk(self) -> Iterator[None]:
        """Have the disk under the binary log full while the block runs: the next commits hang.

        Needs an installation with binary logs, and gdb: by itself, the server looks for space once
        a minute.
        """
        ballast = self.binary_log / "ballast"
        # The server writes meanwhile: how much room is left is known only at its end.
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(_PAGE_BYTES))
        try:
            yield
        finally:
            ballast.unlink()
            for thread, state in self.sql(
                "SELECT TID, STATE FROM information_schema.PROCESSLIST"
            ):
                if state == "Waiting for someone to free space":
                    self._wake(thread)

    @contextmanager
    def full(self) -> Iterator[None]:
        """Have the server refuse new clients while the block runs: it has as many as it allows."""
        with self.connect() as administrator, ExitStack() as clients:
            # More than the limit, so that nobody gets in when another client leaves, not even the
            # administrator.
            for _ in range(2 * _FEW_CONNECTIONS):
                clients.enter_context(self.connect_as_client())
            administrator.query(f"SET GLOBAL max_connections={_FEW_CONNECTIONS}")
            try:
                yield
            finally:
                administrator.query(f"SET GLOBAL max_connections={_USUAL_CONNECTIONS}")

    @contextmanager
    def without_threads(self) -> Iterator[None]:
        """Have the server fail to start threads: new clients get error 1135."""
        self.sql("SET GLOBAL thread_cache_size=0")
        limits = Path(f"/proc/{self.process.pid}/limits").read_text()
        (before,) = (
            line.split()[2]
            for line in limits.splitlines()
            if line.startswith("Max processes")
        )
        self._limit_threads("1")
        try:
            yield
        finally:
            self._limit_threads(before)

    @contextmanager
    def with_hanging_status(self) -> Iterator[None]:
        """Have every SHOW STATUS hang, while clients can log in and work.

        Needs gdb, and the right to trace.
        """
        self._call("pthread_rwlock_wrlock")
        try:
            yield
        finally:
            self._call("pthread_rwlock_unlock")

    def _set(self, name: str, value: str) -> None:
        # The provider refuses some settings while the group agrees on a view.
        def is_set() -> bool:
            with suppress(pymysql.MySQLError):
                self.sql(f"SET GLOBAL {name}={value}")
                return True
            return False

        wait_for(f"{self.name} to take {name}={value}", is_set)

    def _limit_threads(self, limit: str) -> None:
        # Only the user that a process runs as may change its limits.
        user = self._installation.user
        command = ["prlimit", "--pid", str(self.process.pid), f"--nproc={limit}:"]
        subprocess.run(
            command, check=True, capture_output=True, timeout=10, user=user, group=user
        )

    def _call(self, function: str) -> None:
        # In the server's first thread, which is then the owner of the lock.
        printed = self._debug(
            *_calling(function, "&LOCK_all_status_vars"), "print $result"
        )
        if "$1 = 0" not in printed:
            raise RuntimeError(
                f"{self.name}: gdb could not call {function}: {printed[-300:]}"
            )

    def _wake(self, thread: int) -> None:
        # THD::signal_wakeup_ready(current_thd), in the thread that waits.
        threads = "gdb.selected_inferior().threads()"
        self._debug(
            f"python [one.switch() for one in {threads} if one.ptid[1] == {thread}]",
            *_calling("_current_thd", "0"),
            *_calling("_ZN3THD19signal_wakeup_readyEv", "$result"),
        )

    def _debug(self, *commands: str) -> str:
        """Run gdb's commands in the server, and return what it printed."""
        options = [option for command in commands for option in ("-ex", command)]
        command = ["gdb", "-p", str(self.process.pid), "-batch", "-nx", *options]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=True
        ).stdout

    @contextmanager
    def holding_up_transfer(self, receiver: str) -> Iterator[None]:
        """Stop the receiver of this node's full state transfer while the block runs.

        The donor stays one meanwhile.
        """
        # If the receiver were stopped before it listens, the joiner would never ask for the
        # transfer.
        wait_for(
            f"{self.name} to wait for a state transfer",
            lambda: listens(self._sst_port, self.process.pid),
        )
        self.process.send_to_session(receiver, signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_to_session(receiver, signal.SIGCONT)

    def forget_position(self) -> None:
        """Make the stopped node ask for a full state transfer when it starts again."""
        (self.data / "grastate.dat").unlink(missing_ok=True)

    def _galera_options(self, addresses: Sequence[str]) -> list[str]:
        provider = next(filter(os.path.exists, _PROVIDERS))
        provider_options = ";".join(
            [
                f"gmcast.listen_addr=tcp://{self.group_address}",
                f"ist.recv_addr={self._group_host}:{self._ist_port}",
                "gcache.size=8M",
                *self._installation.provider_options,
                *self.provider_options,
            ]
        )
        return [
            "--wsrep-on=ON",
            f"--wsrep-provider={provider}",
            # MariaDB 11.8 loads this plugin by default, which makes wsrep_provider_options
            # read-only. Tests need that variable to isolate a node. 10.11 does not have the option:
            # there, "loose" turns the error into a warning.
            "--loose-plugin-wsrep-provider=OFF",
            f"--wsrep-cluster-name={_GROUP}",
            f"--wsrep-cluster-address=gcomm://{','.join(addresses)}",
            f"--wsrep-node-name={self.name}",
            f"--wsrep-node-address={self.group_address}",
            f"--wsrep-node-incoming-address={self.address}:{self.port}",
            "--wsrep-sst-method=rsync",
            f"--wsrep-sst-receive-address={self._group_host}:{self._sst_port}",
            f"--wsrep-provider-options={provider_options}",
        ]


class Arbitrator:
    """garbd(8): a member without data."""

    def __init__(self, installation: Installation, within: Sequence[str]) -> None:
        self._log = installation.directory / "garbd.log"
        self._within = within
        self._process: Process | None = None

    def start(self, member: Node) -> None:
        """Start it, instead of one that runs, as a member of a node's group."""
        self.kill()
        address = f"gcomm://{member.group_address}"
        command = ["garbd", f"--address={address}", f"--group={_GROUP}"]
        self._process = Process("garbd", command, self._log, within=self._within)

    def kill(self) -> None:
        """Kill it, if it runs."""
        if self._process:
            self._process.kill()


def _calling(function: str, argument: str) -> list[str]:
    """Return gdb's commands that call a function of the server, with its answer in $result.

    gdb's own calls save the vector registers, which gdb 13 cannot write back on processors with
    AMX.
    """
    return [
        "handle SIGSEGV nopass",
        *(f"set $saved_{name} = ${name}" for name in _REGISTERS),
        f"set $rdi = (long){argument}",
        # The function returns to address 0, where the process stops again.
        "set $rsp = (((long)$rsp - 1024) & ~15) - 8",
        "set {long}$rsp = 0",
        "set $orig_rax = -1",
        f"set $rip = (long){function}",
        "continue",
        "set $result = $rax",
        *(f"set ${name} = $saved_{name}" for name in _REGISTERS),
    ]


def connect_over_socket(
    path: Path, seconds: float = _QUERY_SECONDS
) -> "pymysql.Connection[Any]":
    """Connect as the administrator. Raises OSError or pymysql.MySQLError."""
    user = getpass.getuser()
    connection = pymysql.connect(
        user=user,
        autocommit=True,
        defer_connect=True,
        ssl_disabled=True,
        read_timeout=seconds,
        write_timeout=seconds,
    )
    # If PyMySQL 1.2 connects by itself, it leaks a descriptor when nothing listens on the unix
    # socket.
    channel = socket.socket(socket.AF_UNIX)
    try:
        channel.settimeout(seconds)
        channel.connect(str(path))
        connection.connect(channel)
    except BaseException:
        channel.close()
        raise
    return connection


def connect_as_client(
    port: int, seconds: float = _QUERY_SECONDS, address: str = LOOPBACK
) -> "pymysql.Connection[Any]":
    """Connect over TCP as a client, to a server or to HAProxy. Raises pymysql.MySQLError."""
    return pymysql.connect(
        host=address,
        port=port,
        user=DEMO,
        password=DEMO,
        database=DEMO,
        connect_timeout=seconds,
        read_timeout=seconds,
        write_timeout=seconds,
        autocommit=True,
        # Or else PyMySQL 1.2 loads the system's certificates each time: 50 ms of CPU.
        ssl_disabled=True,
    )


class Cluster:
    """Galera nodes that form one cluster.

    The installation stops them. tell: called with what begins.
    """

    def __init__(
        self,
        installation: Installation,
        size: int = 3,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        hosts = installation.hosts or repeat(None)
        self.nodes = [
            installation.node(f"node{number}", host=host)
            for number, host in zip(range(1, size + 1), hosts, strict=False)
        ]
        if installation.group.weightless:
            self.nodes[-1].provider_options = ["pc.weight=0"]
        self._arbitrator = installation.arbitrator
        self.size = size + (self._arbitrator is not None)
        self._tell = tell

    def start(self) -> None:
        """Start the nodes one after the other, each once the one before is Synced."""
        for node in self.nodes:
            self._tell(f"starting {node.name}")
            self.start_node(node, bootstrap=node is self.nodes[0])
            self.wait_until_synced(node)
            if self._arbitrator and node is self.nodes[0]:
                self._arbitrator.start(node)

    def start_node(
        self, node: Node, *, bootstrap: bool = False, options: Sequence[str] = ()
    ) -> None:
        """Start one node, as the first of a new component or to join the others."""
        members = [member.group_address for member in self.nodes]
        node.start(members, bootstrap=bootstrap, options=options)

    def wait_until_synced(self, node: Node) -> None:
        """Wait until a node that has been started is Synced.

        Start it again if it dies, as systemd would.

        A node that finds the others too slow to answer gives up: "failed to open gcomm backend
        connection".
        """
        for _ in range(_RESTARTS):
            with suppress(ProcessEndedError):
                node.wait_until_synced()
                return
            node.kill()
            self.start_node(node)
        node.wait_until_synced()

    @contextmanager
    def altering(self, node: Node) -> Iterator[None]:
        """Have an ALTER TABLE on node hold up the commits of all nodes while the block runs.

        Galera runs it in total order (TOI), so every later commit waits for it. On each node, it
        waits for a lock.
        """
        table = f"{DEMO}.altered"
        with ThreadPoolExecutor(1) as pool, ExitStack() as locks:
            for member in self.nodes:
                locks.enter_context(
                    member.holding(f"FLUSH TABLES {table} WITH READ LOCK")
                )
            altered = pool.submit(node.sql, f"ALTER TABLE {table} FORCE")
            yield
        altered.result()

    @contextmanager
    def full_transfer_to(self, node: Node, method: str = "rsync") -> Iterator[None]:
        """Restart a node with a full state transfer that lasts as long as the block runs.

        Its donor stays one meanwhile. method: a key of RECEIVERS.
        """
        node.stop()
        node.forget_position()
        self.start_node(node, options=[f"--wsrep-sst-method={method}"])
        with node.holding_up_transfer(RECEIVERS[method]):
            yield
        self.wait_until_synced(node)
