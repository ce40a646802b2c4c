"""What docs/operations.md shows for rotating secrets, on a real server with a real service."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.certificates import make_authority, make_certificate
from harness.galera import ACCOUNT, Installation, Node
from harness.ports import LOOPBACK, Ports
from harness.service import Service, service_beside
from harness.waiting import wait_for
from tests.unit.pages import blocks_under, commands_of

PAGE, HEADING = "docs/operations.md", "Runbook: rotate the password or the certificate"


def statements() -> list[str]:
    """Return the two statements for the password, in the order of the page."""
    return [
        program[2]
        for block in blocks_under(PAGE, HEADING, "console")
        for command in commands_of(block)
        for program in command.programs()
        if program[0] == "mariadb"
    ]


@contextmanager
def asked_without_end(service: Service) -> Iterator[list[str]]:
    """Send health checks while the block runs, and return each answer that was not 200."""
    ended, bad = threading.Event(), list[str]()

    def ask() -> None:
        while not ended.wait(0.02):
            reply = service.get()
            if reply.status != 200:
                bad.append(reply.body)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield bad
    finally:
        ended.set()
        thread.join()


def logs_in_again(service: Service) -> None:
    """Wait for logins that began after this call, and that the server accepted."""

    def accepted() -> float:
        (line,) = (
            line
            for line in service.get("/metrics").body.splitlines()
            if line.startswith('clustercheckd_logins_total{outcome="accepted"}')
        )
        return float(line.split()[1])

    before = accepted()
    wait_for("two more logins", lambda: accepted() >= before + 2)
    assert service.status()["login_failure"] is None


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
        "MYSQL_PASSWORD_FILE": str(password),
        "CLUSTERCHECK_LOGIN_INTERVAL": "0.2",
    }
    with rotating(node, tmp_path, ports, settings) as service:
        node.sql(both)
        logs_in_again(service)
        password.write_text("new\n")
        logs_in_again(service)
        node.sql(new_alone)
        logs_in_again(service)
        assert "login failed" not in service.log.read_text()
    node.stop()


def test_a_new_authority_of_the_servers_certificate_fails_no_health_check(
    installation: Installation, ports: Ports, tmp_path: Path
) -> None:
    secrets = installation.directory / "rotated-tls"
    secrets.mkdir()
    made = []
    for name in ("old", "new"):
        (secrets / name).mkdir()
        authority = make_authority(secrets / name)
        made.append(
            (authority, make_certificate(secrets / name, "server", authority, LOOPBACK))
        )
    (old, served), (new, next_served) = made
    for path in [secrets, *secrets.rglob("*")]:
        installation.give_to_server(path)
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
        "CLUSTERCHECK_LOGIN_INTERVAL": "0.2",
    }
    with rotating(node, tmp_path, ports, settings) as service:
        trusted.write_text(old.cert.read_text() + new.cert.read_text())
        logs_in_again(service)
        for before, after in (
            (served.cert, next_served.cert),
            (served.key, next_served.key),
        ):
            before.write_bytes(after.read_bytes())
        node.sql("FLUSH SSL")
        logs_in_again(service)
        trusted.write_text(new.cert.read_text())
        logs_in_again(service)
        assert "login failed" not in service.log.read_text()
    node.stop()


@contextmanager
def rotating(
    node: Node, directory: Path, ports: Ports, settings: dict[str, str]
) -> Iterator[Service]:
    """Run a service whose health checks must all be 200 while the block runs."""
    own = (
        {"MYSQL_PASSWORD": "", **settings}
        if "MYSQL_PASSWORD_FILE" in settings
        else settings
    )
    with service_beside(node, directory, ports, **own) as service:
        service.wait_for_verdict(200, "synced")
        with asked_without_end(service) as bad:
            yield service
        assert bad == []
