"""Which server is polled, side by side with the one that the mariadb client connects to."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from app.settings.database import DEFAULT_PORT, USUAL_SOCKETS, Database
from app.settings.error import SettingsError
from tests.fake_mysql import Address, FakeMySQL, Peer, error, fake_mysql, packet

FILES_HOST, OUR_HOST = "127.0.0.2", "127.0.0.3"
EVERY_ADDRESS = ("0.0.0.0", 0)  # noqa: S104
ASKED = "asked: "
SECONDS = 20


def says_where_it_is(peer: Peer) -> None:
    """Answer a client with the address that it asked, as an error."""
    address = peer.connection.getsockname()
    where = address if isinstance(address, str) else f"{address[0]}:{address[1]}"
    peer.connection.sendall(packet(0, error(1040, f"{ASKED}{where}")))


class MockServers:
    """Servers on every socket and port that a test leads to, but not on the usual ones."""

    def __init__(self, directory: Path, exits: ExitStack) -> None:
        self._directory = directory
        self._exits = exits
        sockets = [
            str(directory / name) for name in ("file.sock", "our.sock", "usual.sock")
        ]
        for path in sockets:
            self._serve(path)
        self.files_socket, self.our_socket, self._usual_socket = sockets
        self.files_port, self.our_port, self._usual_port = (
            self._serve(EVERY_ADDRESS).port for _ in range(3)
        )

    def database(self, text: str) -> Database:
        """Write an option file; {socket} and {port} in its text are the file's."""
        path = self._directory / "my.cnf"
        lines = text.format(socket=self.files_socket, port=self.files_port)
        path.write_text(f"[client]\n{lines}\n")
        path.chmod(0o600)
        return Database(defaults_extra_file=str(path))

    def asked_by_client(self, database: Database) -> str:
        """Return where the mariadb client connects to."""
        settings = {
            "socket": database.mysql_socket,
            "host": database.mysql_host,
            "port": database.mysql_port,
        }
        flags = [
            f"--{name}={value}" for name, value in settings.items() if value is not None
        ]
        own = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("MYSQL_")
        }
        usual = {
            "MYSQL_UNIX_PORT": self._usual_socket,
            "MYSQL_TCP_PORT": str(self._usual_port),
        }
        client = subprocess.run(
            [
                "mariadb",
                f"--defaults-file={database.defaults_extra_file}",
                *flags,
                "-e",
                "SELECT 1",
            ],
            env=own | usual,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        where = client.stderr.strip().rpartition(ASKED)[2]
        return where.replace(self._usual_socket, "usual socket").replace(
            f":{self._usual_port}", ":usual"
        )

    def asked_by_us(self, database: Database) -> str:
        """Return where clustercheckd connects to."""
        target = database.target()
        where = "usual socket" if target.socket in USUAL_SOCKETS else str(target)
        return where.replace("localhost:", "127.0.0.1:").replace(
            f":{DEFAULT_PORT}", ":usual"
        )

    def _serve(self, address: Address) -> FakeMySQL:
        return self._exits.enter_context(fake_mysql(says_where_it_is, address))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MockServers]:
    with ExitStack() as exits:
        yield MockServers(tmp_path_factory.mktemp("servers"), exits)


@pytest.mark.parametrize("protocol", ["", "protocol=tcp", "protocol=Socket"])
@pytest.mark.parametrize("port", ["", "port={port}"])
@pytest.mark.parametrize("host", ["", f"host={FILES_HOST}", "host=localhost"])
@pytest.mark.parametrize("path", ["", "socket={socket}"])
def test_the_server_read_is_the_one_that_the_mariadb_client_connects_to(
    servers: MockServers, path: str, host: str, port: str, protocol: str
) -> None:
    database = servers.database(f"{protocol}\n{path}\n{port}\n{host}")
    names, numbers = (None, "localhost", OUR_HOST), (None, servers.our_port)
    cases = [
        replace(database, mysql_host=name, mysql_port=number)
        for name in names
        for number in numbers
    ]
    cases.append(
        replace(database, mysql_socket=servers.our_socket, mysql_host="localhost")
    )
    if FILES_HOST not in host:  # MYSQL_SOCKET beside it has a test of its own
        cases.append(replace(database, mysql_socket=servers.our_socket))
    for case in cases:
        assert servers.asked_by_client(case) == servers.asked_by_us(case)


@pytest.mark.parametrize(
    "lines",
    [
        'socket={socket}\nport={port}\nprotocol="TCP"',
        "socket={socket}\nprotocol=",
        "loose_Socket={socket}",
        "port=\nhost=127.0.0.2",
    ],
)
def test_any_spelling_leads_us_where_it_leads_the_mariadb_client(
    servers: MockServers, lines: str
) -> None:
    database = servers.database(lines)
    assert servers.asked_by_client(database) == servers.asked_by_us(database)


def test_a_socket_that_is_set_takes_precedence_over_the_files_host(
    servers: MockServers,
) -> None:
    database = servers.database(f"host={FILES_HOST}\nport={{port}}")
    assert (
        servers.asked_by_us(replace(database, mysql_socket=servers.our_socket))
        == servers.our_socket
    )


@pytest.mark.parametrize(
    ("lines", "option"),
    [
        ("socket=x", "socket"),
        ("host=db2\nport=x", "port"),
        ("host=db2\nport=65536", "port"),
        ("host=db2:3306", "host"),
    ],
)
def test_what_leads_nowhere_is_an_error_that_names_the_option(
    servers: MockServers, lines: str, option: str
) -> None:
    with pytest.raises(SettingsError, match=f"^{option} in DEFAULTS_EXTRA_FILE"):
        servers.database(lines).target()


@pytest.mark.parametrize(
    ("host", "port"),
    [("db2", None), ("127.0.0.1", None), ("LOCALHOST", None), (None, 3307)],
)
def test_a_socket_beside_a_host_or_port_that_means_tcp_is_an_error(
    host: str | None, port: int | None
) -> None:
    with pytest.raises(
        SettingsError, match=r"^MYSQL_SOCKET with MYSQL_HOST or MYSQL_PORT"
    ):
        Database("/s", host, port).target()


def test_no_socket_is_looked_for_where_any_local_user_can_listen() -> None:
    anywhere = ("/tmp/", "/var/tmp/", "/dev/shm/")  # noqa: S108 (what it looks for)
    assert USUAL_SOCKETS
    assert not [path for path in USUAL_SOCKETS if path.startswith(anywhere)]


@pytest.mark.parametrize(
    ("host", "port", "expected"),
    [("db2", None, "db2:3306"), ("localhost", 1, "localhost:1"), ("::1", 2, "[::1]:2")],
)
def test_an_address_is_shown_with_its_port(
    host: str, port: int | None, expected: str
) -> None:
    assert str(Database(mysql_host=host, mysql_port=port).target()) == expected
