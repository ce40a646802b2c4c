"""Which server is read, side by side with the one that the mariadb client connects to."""

import os
import socket
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.database.address import DEFAULT_PORT, USUAL_SOCKETS
from app.database.login import Database, Login
from app.settings_error import SettingsError
from tests.fake_mysql import Peer, error

THIS_MACHINE, FILES_HOST, OUR_HOST = "127.0.0.1", "127.0.0.2", "127.0.0.3"
ASKED = "asked: "
SECONDS = 20


class _Asked(socketserver.BaseRequestHandler):
    """Answers each client with the address that it asked, as an error."""

    def handle(self) -> None:
        address = self.request.getsockname()
        where = address if isinstance(address, str) else f"{address[0]}:{address[1]}"
        Peer(self.request).send(error(1040, f"{ASKED}{where}"))


class _UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    request_queue_size = 64


class _TcpServer(socketserver.ThreadingTCPServer):
    request_queue_size = 64


@dataclass(frozen=True)
class Settings:
    """Ours, and the client's flags."""

    socket: str | None = None
    host: str | None = None
    port: int | None = None

    def database(self, option_file: str | None = None) -> Database:
        return Database(self.socket, self.host, self.port, "someone", defaults_extra_file=option_file)

    def flags(self) -> list[str]:
        given = {"socket": self.socket, "host": self.host, "port": self.port}
        return [f"--{name}={value}" for name, value in given.items() if value is not None]


class StandIns:
    """Servers on every socket and port that a test leads to, but for the usual ones of a real server."""

    def __init__(self, directory: Path, exits: ExitStack) -> None:
        self._directory = directory
        self._exits = exits
        self.files_socket, self.our_socket, self._usual_socket = (
            self._listen_on_socket(directory / name) for name in ("file.sock", "our.sock", "usual.sock")
        )
        self.files_port, self.our_port, self._usual_port = (self._listen_on_port() for _ in range(3))

    def option_file(self, text: str) -> str:
        """Write a [client] group, in which {socket} and {port} stand for those of the file."""
        path = self._directory / "my.cnf"
        lines = text.format(socket=self.files_socket, port=self.files_port)
        path.write_text(f"[client]\n{lines}\n")
        path.chmod(0o600)
        return str(path)

    def asked_by_client(self, option_file: str, settings: Settings) -> str:
        """Say where the mariadb client connects to; what it complains of where it does not."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("MYSQL_")}
        done = subprocess.run(
            ["mariadb", f"--defaults-file={option_file}", *settings.flags(), "-e", "SELECT 1"],
            env={**own, "MYSQL_UNIX_PORT": self._usual_socket, "MYSQL_TCP_PORT": str(self._usual_port)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        said = done.stderr.strip()
        where = said.partition(ASKED)[2] or said
        return where.replace(self._usual_socket, "usual socket").replace(f":{self._usual_port}", ":usual")

    def asked_by_us(self, login: Login) -> str:
        """Say where a login leads to, by going there."""
        if login.socket in USUAL_SOCKETS:
            return "usual socket"
        if login.socket is None and login.port == DEFAULT_PORT:
            return f"{socket.gethostbyname(login.host)}:usual"
        with socket.socket(socket.AF_UNIX if login.socket else socket.AF_INET) as connection:
            connection.settimeout(SECONDS)
            connection.connect(login.socket or (login.host, login.port))
            return connection.makefile("rb").read().decode("latin-1").partition(ASKED)[2]

    def _listen_on_socket(self, path: Path) -> str:
        self._serve(_UnixServer(str(path), _Asked))
        return str(path)

    def _listen_on_port(self) -> int:
        port = 0
        for host in (THIS_MACHINE, FILES_HOST, OUR_HOST):
            server = _TcpServer((host, port), _Asked)
            port = server.server_address[1]
            self._serve(server)
        return port

    def _serve(self, server: socketserver.BaseServer) -> None:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        self._exits.callback(server.server_close)
        self._exits.callback(thread.join)
        self._exits.callback(server.shutdown)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandIns]:
    with ExitStack() as exits:
        yield StandIns(tmp_path_factory.mktemp("servers"), exits)


@pytest.mark.parametrize("protocol", ["", "protocol=tcp", "protocol=Socket"])
@pytest.mark.parametrize("port", ["", "port={port}"])
@pytest.mark.parametrize("host", ["", f"host={FILES_HOST}", "host=localhost"])
@pytest.mark.parametrize("path", ["", "socket={socket}"])
def test_the_server_read_is_the_one_that_the_mariadb_client_connects_to(
    servers: StandIns, path: str, host: str, port: str, protocol: str
) -> None:
    file = servers.option_file(f"{protocol}\n{path}\n{port}\n{host}")
    names, numbers = (None, "localhost", OUR_HOST), (None, servers.our_port)
    given = [Settings(host=name, port=number) for name in names for number in numbers]
    given.append(Settings(servers.our_socket, "localhost"))
    if FILES_HOST not in host:  # MYSQL_SOCKET beside it has a test of its own
        given.append(Settings(servers.our_socket))
    expected = {settings: servers.asked_by_client(file, settings) for settings in given}
    assert expected == {settings: servers.asked_by_us(settings.database(file).login()) for settings in given}


@pytest.mark.parametrize("value", ["tcp", "TCP", '"tcp "', "socket", "SOCKET", ""])
def test_a_protocol_is_read_as_the_mariadb_client_reads_it(servers: StandIns, value: str) -> None:
    file = servers.option_file(f"socket={{socket}}\nport={{port}}\nprotocol={value}")
    asked = servers.asked_by_us(Settings().database(file).login())
    assert servers.asked_by_client(file, Settings()) == asked


@pytest.mark.parametrize("value", ["pipe", "PIPE", "memory", "udp", "tcp,socket", "0"])
def test_a_protocol_that_leads_nowhere_is_an_error_as_it_is_to_the_mariadb_client(
    servers: StandIns, value: str
) -> None:
    file = servers.option_file(f"socket={{socket}}\nprotocol={value}")
    assert "protocol" in servers.asked_by_client(file, Settings())
    with pytest.raises(SettingsError) as caught:
        Database(defaults_extra_file=file).login()
    assert (
        str(caught.value) == f"DEFAULTS_EXTRA_FILE: {file}: protocol={value} is not supported: set it to tcp or socket"
    )


def test_a_socket_that_is_set_takes_precedence_over_the_files_host(servers: StandIns) -> None:
    file = servers.option_file(f"host={FILES_HOST}\nport={{port}}")
    login = Settings(servers.our_socket).database(file).login()
    assert servers.asked_by_us(login) == servers.our_socket


@pytest.mark.parametrize("host", ["db2", "127.0.0.1", "::1", "LOCALHOST"])
def test_a_socket_beside_a_host_that_means_tcp_is_an_error_that_names_both(host: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Database("/s", host).login()
    assert str(caught.value) == (
        f"MYSQL_SOCKET=/s and MYSQL_HOST={host} name two servers: unset MYSQL_SOCKET, or set MYSQL_HOST=localhost"
    )


def test_a_socket_beside_a_port_is_an_error_that_names_both() -> None:
    # To the mariadb client the flag counts that comes last; variables have no order.
    for host in (None, "localhost"):
        with pytest.raises(SettingsError) as caught:
            Database("/s", host, 3307).login()
        assert str(caught.value) == ("MYSQL_SOCKET=/s and MYSQL_PORT=3307 may name two servers: unset one of them")


def test_no_socket_is_looked_for_where_any_local_user_can_listen() -> None:
    writable = [path for path in USUAL_SOCKETS if path.startswith(("/tmp/", "/var/tmp/", "/dev/shm/"))]  # noqa: S108
    assert USUAL_SOCKETS
    assert not writable


@pytest.mark.parametrize("option", ["host", "port", "socket", "protocol", "user"])
def test_an_option_without_its_value_is_an_error_as_it_is_to_the_mariadb_client(servers: StandIns, option: str) -> None:
    # The port counts only where it is used.
    file = servers.option_file(option if option != "port" else f"port\nhost={FILES_HOST}")
    assert f"option '--{option}' requires an argument" in servers.asked_by_client(file, Settings())
    with pytest.raises(SettingsError, match=f"^DEFAULTS_EXTRA_FILE: {file}: {option} has no value"):
        Database(defaults_extra_file=file).login()


def test_an_empty_socket_in_the_file_is_no_reason_to_ask_another(servers: StandIns) -> None:
    file = servers.option_file("socket=")
    assert "Can't connect to local server through socket ''" in servers.asked_by_client(file, Settings())
    with pytest.raises(SettingsError, match="socket is not an absolute path"):
        Database(defaults_extra_file=file).login()


@pytest.mark.parametrize(
    "lines", ["SOCKET={socket}", "loose_Socket={socket}", "port=0\nhost=127.0.0.2", "port=\nhost=127.0.0.2"]
)
def test_spellings_that_lead_the_mariadb_client_somewhere_lead_us_there(servers: StandIns, lines: str) -> None:
    file = servers.option_file(lines)
    assert servers.asked_by_client(file, Settings()) == servers.asked_by_us(Settings().database(file).login())
