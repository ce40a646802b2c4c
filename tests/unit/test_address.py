"""Which server is polled: the one that the mariadb client connects to with the same options."""

from pathlib import Path
from typing import Any

import pytest

from app.settings.database import USUAL_SOCKETS, Database
from app.settings.error import SettingsError
from tests.unit.test_option_file import written

USUAL = "the first usual place"
FILE, OURS = "/of/the/file.sock", "/of/a/setting.sock"
FULL = f"host=db2\nport=1\nsocket={FILE}"


def server_of(directory: Path, lines: str, **settings: Any) -> str:  # noqa: ANN401 (of several types)
    """Return where these options and settings lead."""
    file = written(directory / "my.cnf", f"[client]\n{lines}\n")
    target = Database(defaults_extra_file=str(file), **settings).target()
    return USUAL if target.socket in USUAL_SOCKETS else str(target)


@pytest.mark.parametrize(
    ("lines", "settings", "expected"),
    [
        ("", {}, USUAL),
        ("host=localhost\nport=1", {}, USUAL),
        (f"socket={FILE}\nport=1", {}, FILE),
        (f"socket={FILE}\nprotocol=Socket", {}, FILE),
        (f"loose_Socket={FILE}", {}, FILE),
        (f'socket={FILE}\nport=1\nprotocol="TCP"', {}, "127.0.0.1:1"),
        ("protocol=tcp", {}, "127.0.0.1:3306"),
        (FULL, {}, "db2:1"),
        (FULL, {"mysql_host": "localhost"}, FILE),
        (FULL, {"mysql_host": "db3"}, "db3:1"),
        (FULL, {"mysql_port": 2}, "db2:2"),
        (f"socket={FILE}", {"mysql_port": 2}, "127.0.0.1:2"),
        (FULL, {"mysql_host": "localhost", "mysql_port": 2}, "localhost:2"),
        ("", {"mysql_host": "::1", "mysql_port": 2}, "[::1]:2"),
        (f"socket={FILE}", {"mysql_socket": OURS, "mysql_host": "localhost"}, OURS),
        # Not so for the client: nobody would notice the verdict of another node.
        (FULL, {"mysql_socket": OURS}, OURS),
    ],
)
def test_the_server_that_options_and_settings_lead_to(
    tmp_path: Path, lines: str, settings: dict[str, Any], expected: str
) -> None:
    assert server_of(tmp_path, lines, **settings) == expected


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
    tmp_path: Path, lines: str, option: str
) -> None:
    with pytest.raises(SettingsError, match=f"^{option} in DEFAULTS_EXTRA_FILE"):
        server_of(tmp_path, lines)


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
