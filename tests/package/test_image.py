"""The container image, built and run as a random user on a read-only root, beside a real node."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.galera import ACCOUNT, PASSWORD, Cluster, Installation, Node
from harness.ports import LOOPBACK, Ports
from harness.service import Service
from tests.conftest import settings_for
from tests.fake_mysql import fake_mysql
from tests.package.image import BASE, IMAGE, Podman, image_of
from tests.unit.manifests import ROOT
from tests.unit.test_authentication import PASSWORD as SHA2_PASSWORD
from tests.unit.test_authentication import asks_for_the_encrypted_password

# Nobody's, as OpenShift gives one to each namespace.
VERSION = "1.1.0~git20261125.130833.abcdef"
RANDOM_UID = 1_000_660_000
SECONDS = 60


@pytest.fixture(scope="module")
def podman(namespaces: None) -> Iterator[Podman]:  # noqa: ARG001 (skips)
    """Build the image."""
    with image_of(VERSION) as built:
        yield built


@pytest.fixture(scope="module")
def node(installation: Installation) -> Node:
    """Start a Galera node of its own."""
    cluster = Cluster(installation, 1)
    cluster.start()
    return cluster.nodes[0]


def test_it_answers_for_a_node_and_stops_when_it_is_told_to(
    podman: Podman, node: Node, ports: Ports, tmp_path: Path
) -> None:
    port = ports.free()
    settings = {
        "MYSQL_HOST": LOOPBACK,
        "MYSQL_PORT": str(node.port),
        "MYSQL_USERNAME": ACCOUNT,
        "MYSQL_PASSWORD": PASSWORD,
        "CLUSTERCHECK_PORT": str(port),
    }
    container = Service(tmp_path, port, {}, command=podman.run(RANDOM_UID, **settings))
    container.wait_until_up()
    container.wait_for_verdict(200, "synced", target="/readyz")
    # A process 1 that ignores SIGTERM would be killed after 10 s.
    assert container.stop() == 0


def test_an_account_of_mysql_8_is_read_over_plain_tcp(podman: Podman) -> None:
    # That takes the package cryptography, whose library is not Python.
    with fake_mysql(asks_for_the_encrypted_password) as server:
        settings = settings_for(server, MYSQL_PASSWORD=SHA2_PASSWORD)
        command = podman.run(RANDOM_UID, "check", **settings)
        said = subprocess.check_output(command, text=True, timeout=SECONDS)
    assert said == "available synced: wsrep_local_state is 4 (Synced)\n"


def test_it_says_what_it_is(podman: Podman) -> None:
    config = json.loads(podman("image", "inspect", IMAGE))[0]["Config"]
    said = {
        "org.opencontainers.image.title": "clustercheckd",
        "org.opencontainers.image.version": VERSION,
        "org.opencontainers.image.licenses": "MIT",
    }
    assert config["Labels"].items() >= said.items()
    shown = subprocess.check_output(podman.run(RANDOM_UID, "--version"), text=True)
    assert shown == f"clustercheckd {VERSION}\n"
    assert (config["StopSignal"], config["User"]) == (
        "SIGTERM",
        "65532:65532",
    )


def test_nothing_is_left_that_builds_or_installs(podman: Podman) -> None:
    root = podman.files(IMAGE)
    folders = ("usr/bin", "usr/sbin", "usr/local/bin", "opt/clustercheckd/bin")
    commands = {path.name for folder in folders for path in (root / folder).iterdir()}
    assert {"python3", "clustercheckd", "clustercheck"} <= commands
    assert not commands & {"pip", "pip3", "cc", "c++", "gcc", "g++", "ld", "as", "make"}
    names = {path.name for path in root.rglob("*")}
    assert not names & {"pip", "ensurepip", "setuptools"}


def test_its_size_is_the_one_that_is_stated(podman: Podman) -> None:
    (stated,) = re.findall(
        r"(\d+) MB to its base", (ROOT / "docs" / "install.md").read_text()
    )
    with_base, base = (
        int(subprocess.check_output(["du", "-sb", podman.files(image)]).split()[0])
        for image in (IMAGE, BASE)
    )
    assert (with_base - base) / 1_000_000 == pytest.approx(int(stated), rel=0.1)
