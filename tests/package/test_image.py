"""The container image, built for real and run as a random user on a read-only root, beside a real node."""

import http.client
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app import __version__
from harness.galera import ACCOUNT, PASSWORD, Cluster, Installation, Node
from harness.ports import LOOPBACK, Ports
from harness.waiting import wait_for
from tests.fake_mysql import fake_mysql
from tests.package.image import ROOT, Container, Image, NoImageError, require_what_it_takes, size_bytes
from tests.unit.test_authentication import PASSWORD as SHA2_PASSWORD
from tests.unit.test_authentication import asks_for_the_encrypted_password

# Nobody's, as OpenShift gives one to each namespace.
RANDOM_UID = 1_000_660_000
START_SECONDS = 20.0
MEGABYTE = 1_000_000
NOT_IN_AN_IMAGE = ("pip", "pip3", "cc", "c++", "gcc", "g++", "ld", "as", "make")


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    """Build the image."""
    try:
        require_what_it_takes()
    except NoImageError as fault:
        pytest.skip(f"THE IMAGE IS NOT TESTED: {fault}")
    with Image(__version__) as built:
        yield built


@pytest.fixture(scope="module")
def node(installation: Installation) -> Node:
    """Start a Galera node of its own."""
    cluster = Cluster(installation, 1)
    cluster.start()
    return cluster.nodes[0]


@contextmanager
def running(image: Image, directory: Path, *arguments: str, **environ: str) -> Iterator[Container]:
    """Run the image."""
    container = image.run(directory, environ, RANDOM_UID, *arguments)
    try:
        yield container
    finally:
        container.kill()


def get(port: int, path: str) -> tuple[int, str]:
    """Ask once; status and reason, 0 where nobody answers."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.headers.get("x-clustercheck-reason", "")
    except OSError:
        return 0, ""
    finally:
        connection.close()


def test_it_answers_for_a_node_and_stops_within_a_second(
    image: Image, node: Node, ports: Ports, tmp_path: Path
) -> None:
    port = ports.free()
    settings = {
        "MYSQL_HOST": LOOPBACK,
        "MYSQL_PORT": str(node.port),
        "MYSQL_USERNAME": ACCOUNT,
        "MYSQL_PASSWORD": PASSWORD,
        "CLUSTERCHECK_PORT": str(port),
    }
    with running(image, tmp_path, **settings) as container:
        wait_for("a 200", lambda: container.check() and get(port, "/readyz") == (200, "synced"), seconds=START_SECONDS)
        assert get(port, "/livez")[0] == 200
        # It is process 1 there, nobody here, can become nothing else and write nowhere.
        assert container.status("NSpid").split()[-1] == "1"
        assert container.status("Uid").split()[0] == str(RANDOM_UID)
        assert int(container.status("CapBnd"), 16) == 0
        mounts = [line.split() for line in Path(f"/proc/{container.pid}/mountinfo").read_text().splitlines()]
        writable = {mount[4] for mount in mounts if not mount[5].startswith("ro")}
        assert writable == {"/proc", "/dev/null"}
        os.kill(container.pid, signal.SIGTERM)
        assert container.wait_for_exit(seconds=1) == 0


def test_an_account_of_mysql_8_is_read_over_plain_tcp(image: Image, tmp_path: Path) -> None:
    # That takes the package cryptography: an option elsewhere, included here.
    with fake_mysql(asks_for_the_encrypted_password) as server:
        settings = {"MYSQL_HOST": LOOPBACK, "MYSQL_PORT": str(server.port), "MYSQL_USERNAME": "someone"}
        with running(image, tmp_path, "check", **settings, MYSQL_PASSWORD=SHA2_PASSWORD) as container:
            assert container.wait_for_exit(START_SECONDS) == 0, container.log.read_text()
            assert container.log.read_text() == "available synced: wsrep_local_state is 4 (Synced)\n"


def test_it_says_what_it_is(image: Image) -> None:
    configuration = image.configuration
    labels = configuration["Labels"]
    assert labels["org.opencontainers.image.title"] == "clustercheckd"
    assert labels["org.opencontainers.image.version"] == __version__
    assert labels["org.opencontainers.image.licenses"] == "MIT"
    assert configuration["StopSignal"] == "SIGTERM"
    assert configuration["User"].split(":")[0] not in ("", "0", "root")


def test_nothing_is_left_that_builds_or_installs(image: Image) -> None:
    root = image.files()
    commands = {path.name for folder in ("bin", "sbin", "usr/local/bin") for path in (root / "usr" / folder).glob("*")}
    commands |= {path.name for path in (root / "opt/clustercheckd/bin").iterdir()}
    assert {"python3", "clustercheckd", "clustercheck"} <= commands
    assert not commands & set(NOT_IN_AN_IMAGE)
    found = [path.name for path in root.rglob("*") if path.name in ("pip", "ensurepip", "setuptools")]
    assert found == []


def test_its_size_is_the_one_that_is_stated(image: Image) -> None:
    page = (ROOT / "docs" / "install.md").read_text()
    stated = re.search(r"adds (\d+) MB to its base", page)
    assert stated is not None
    added = (size_bytes(image.files()) - size_bytes(image.base_files())) / MEGABYTE
    assert added == pytest.approx(int(stated[1]), rel=0.1)
