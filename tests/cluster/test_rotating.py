"""What docs/operations.md shows for rotating secrets, on a real server with a real service."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.galera import ACCOUNT, Installation, Node
from harness.ports import LOOPBACK, Ports
from harness.service import Service, service_beside
from tests.cluster.test_logins import wait_for_login
from tests.http.test_reload import no_health_check_fails
from tests.unit.pages import typed_on_pages

HEADING = "Runbook: rotate the password or the certificate"


def statements() -> list[str]:
    """Return the two statements for the password, in the order of the page."""
    return [
        words[2]
        for command, words in typed_on_pages("mariadb")
        if HEADING in command.block.headings
    ]


def test_a_rotated_password_fails_no_health_check_and_no_login(
    installation: Installation, ports: Ports, tmp_path: Path
) -> None:
    node = installation.node("rotated")
    node.start_alone()
    both, new_alone = statements()
    password = tmp_path / "password"
    password.write_text("old\n")
    node.sql(f"ALTER USER {ACCOUNT}@localhost IDENTIFIED BY 'old'")
    settings = {
        "MYSQL_PASSWORD": "",
        "MYSQL_PASSWORD_FILE": str(password),
    }
    with rotating(node, tmp_path, ports, settings) as service:
        node.sql(both)
        wait_for_login(service, None)
        password.write_text("new\n")
        wait_for_login(service, None)
        node.sql(new_alone)
        wait_for_login(service, None)


def test_a_new_authority_of_the_servers_certificate_fails_no_health_check(
    installation: Installation, ports: Ports, tmp_path: Path
) -> None:
    old, served = installation.certified("old")
    new, next_served = installation.certified("new")
    node = installation.node(
        "rotated-tls", [f"--ssl-cert={served.cert}", f"--ssl-key={served.key}"]
    )
    node.start_alone()
    trusted = tmp_path / "ca.pem"
    trusted.write_text(old.cert.read_text())
    settings = {
        "MYSQL_SOCKET": "",
        "MYSQL_HOST": LOOPBACK,
        "MYSQL_PORT": str(node.port),
        "MYSQL_SSL_CA": str(trusted),
    }
    with rotating(node, tmp_path, ports, settings) as service:
        trusted.write_text(old.cert.read_text() + new.cert.read_text())
        wait_for_login(service, None)
        for before, after in (
            (served.cert, next_served.cert),
            (served.key, next_served.key),
        ):
            before.write_bytes(after.read_bytes())
        node.sql("FLUSH SSL")
        wait_for_login(service, None)
        trusted.write_text(new.cert.read_text())
        wait_for_login(service, None)


@contextmanager
def rotating(
    node: Node, directory: Path, ports: Ports, settings: dict[str, str]
) -> Iterator[Service]:
    """Run a service whose health checks must all be 200, and no login fail, in the block."""
    settings["CLUSTERCHECK_LOGIN_INTERVAL"] = "0.2"
    with service_beside(node, directory, ports, **settings) as service:
        service.wait_for_verdict(200, "synced")
        with no_health_check_fails(service):
            yield service
        assert "login failed" not in service.log.read_text()
    node.stop()
