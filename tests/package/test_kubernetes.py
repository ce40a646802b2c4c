"""contrib/kubernetes, applied by kustomize to StatefulSets as people write them, against the schemas of Kubernetes."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.unit.manifests import ROOT, Document

FOLDER = ROOT / "contrib" / "kubernetes"
KUSTOMIZE = ROOT / "build" / "tools" / "kustomize"
ENVIRONMENT = ROOT / "build" / "kubernetes-venv"
LOCK = ROOT / "requirements" / "kubernetes.txt"
# Native sidecars are there from the first on; the second is the newest that there are schemas of.
VERSIONS = ("1.29", "1.37")
SECONDS = 600

ONE_CONTAINER = """\
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: galera
spec:
  replicas: 3
  serviceName: galera-nodes
  selector: {matchLabels: {app: galera}}
  template:
    metadata: {labels: {app: galera}}
    spec:
      containers:
        - name: mariadb
          image: docker.io/library/mariadb:11.8
          ports: [{name: mysql, containerPort: 3306}]
          volumeMounts: [{name: data, mountPath: /var/lib/mysql}]
  volumeClaimTemplates:
    - metadata: {name: data}
      spec:
        accessModes: [ReadWriteOnce]
        resources: {requests: {storage: 10Gi}}
"""
WITH_PROBES = """\
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: galera
spec:
  replicas: 3
  serviceName: galera-nodes
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: galera}}
  template:
    metadata: {labels: {app: galera, tier: database}}
    spec:
      terminationGracePeriodSeconds: 120
      securityContext: {runAsUser: 999, fsGroup: 999}
      initContainers:
        - name: configure
          image: registry.example/configure:1
          volumeMounts: [{name: config, mountPath: /config}]
      containers:
        - name: exporter
          image: registry.example/exporter:1
          ports: [{name: metrics, containerPort: 9104}]
          readinessProbe: {httpGet: {path: /, port: metrics}}
        - name: mariadb
          image: docker.io/library/mariadb:11.8
          ports: [{name: mysql, containerPort: 3306}, {name: group, containerPort: 4567}]
          readinessProbe:
            exec: {command: [healthcheck.sh, --connect]}
            initialDelaySeconds: 30
          livenessProbe:
            tcpSocket: {port: mysql}
          volumeMounts: [{name: config, mountPath: /etc/mysql/conf.d}]
      volumes:
        - name: config
          emptyDir: {}
"""
SERVICES = """\
---
apiVersion: v1
kind: Service
metadata: {name: galera-nodes}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {app: galera}
  ports: [{name: mysql, port: 3306, targetPort: mysql}]
---
apiVersion: v1
kind: Service
metadata: {name: checks}
spec:
  selector: {app: galera}
  ports: [{name: check, port: 9200, targetPort: clustercheck}]
"""
USERS = pytest.mark.parametrize("base", [ONE_CONTAINER, WITH_PROBES], ids=["one-container", "with-probes"])


@pytest.fixture(scope="session")
def validator() -> Path:
    """Install the schemas, the first time and when their lock has changed; give the program."""
    stamp, digest = ENVIRONMENT / "installed", hashlib.sha256(LOCK.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != digest:
        install = ["install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--only-binary", ":all:"]
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)],
            [str(ENVIRONMENT / "bin" / "pip"), *install, "-r", str(LOCK)],
        ):
            subprocess.run(command, check=True, timeout=SECONDS)
        stamp.write_text(digest)
    return ENVIRONMENT / "bin" / "kubernetes-validate"


@pytest.fixture(scope="session", autouse=True)
def kustomize() -> None:
    """Install kustomize the first time."""
    subprocess.run(["packaging/setup.sh", "kustomize"], cwd=ROOT, check=False, timeout=SECONDS)
    if not KUSTOMIZE.exists():
        pytest.skip("NOT TESTED: there is no kustomize here, and packaging/setup.sh could not install it without Go")


def problems(validator: Path, version: str, *files: Path) -> str:
    """Validate files; empty where nothing is wrong."""
    command = [str(validator), "--strict", "--kubernetes-version", version, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def build(directory: Path, base: str) -> "subprocess.CompletedProcess[str]":
    """Let kustomize add the component to a base, with the Services that people have beside it."""
    shutil.copytree(FOLDER, directory / "component")
    (directory / "base.yaml").write_text(base + SERVICES)
    (directory / "kustomization.yaml").write_text("resources: [base.yaml]\ncomponents: [component]\n")
    return kustomized(directory)


def kustomized(directory: Path) -> "subprocess.CompletedProcess[str]":
    """Run kustomize on a directory."""
    command = [str(KUSTOMIZE), "build", str(directory)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def made_of(directory: Path, base: str) -> list[Document]:
    """Return what kustomize makes: the StatefulSet first, then the Services."""
    done = build(directory, base)
    assert (done.returncode, done.stderr) == (0, "")
    return sorted(yaml.safe_load_all(done.stdout), key=lambda document: str(document["kind"]), reverse=True)


@USERS
@pytest.mark.parametrize("version", VERSIONS)
def test_what_kustomize_makes_is_valid(validator: Path, version: str, tmp_path: Path, base: str) -> None:
    done = build(tmp_path, base)
    assert (done.returncode, done.stderr) == (0, "")
    made = tmp_path / "made.yaml"
    made.write_text(done.stdout)
    assert problems(validator, version, made, FOLDER / "secret.example.yaml") == ""


def test_a_misspelt_field_is_found(validator: Path, tmp_path: Path) -> None:
    made = tmp_path / "made.yaml"
    made.write_text(build(tmp_path, ONE_CONTAINER).stdout.replace("timeoutSeconds", "timeoutSecond"))
    assert "timeoutSecond" in problems(validator, VERSIONS[0], made)


def test_the_page_names_these_versions() -> None:
    assert f"Kubernetes {' and '.join(VERSIONS)}" in (ROOT / "docs" / "kubernetes.md").read_text()


@USERS
def test_the_component_adds_its_lines_and_changes_nothing_else(tmp_path: Path, base: str) -> None:
    stateful_set = made_of(tmp_path, base)[0]
    expected = yaml.safe_load(base)
    added = yaml.safe_load((FOLDER / "sidecar.yaml").read_text())["spec"]["template"]["spec"]
    made, pod = stateful_set["spec"]["template"]["spec"], expected["spec"]["template"]["spec"]
    (sidecar,), (volume,), (database,) = added["initContainers"], added["volumes"], added["containers"]
    assert made["initContainers"][0].pop("image").startswith("registry.example/clustercheckd:")
    del sidecar["image"], database["readinessProbe"]["$patch"]
    # First, so that the database's other init containers cannot hold it up.
    pod["initContainers"] = [sidecar, *pod.get("initContainers", [])]
    pod["volumes"] = [volume, *pod.get("volumes", [])]
    pod["enableServiceLinks"] = False
    (mariadb,) = [container for container in pod["containers"] if container["name"] == "mariadb"]
    mariadb["readinessProbe"] = database["readinessProbe"]
    # kustomize may put the container that it changes first, which means nothing.
    for spec in (made, pod):
        spec["containers"].sort(key=lambda container: container["name"])
    assert stateful_set == expected


@USERS
def test_names_ports_and_selectors_still_meet(tmp_path: Path, base: str) -> None:
    stateful_set, *services = made_of(tmp_path, base)
    template = stateful_set["spec"]["template"]
    containers = [*template["spec"]["initContainers"], *template["spec"]["containers"]]
    ports = [port for container in containers for port in container.get("ports", [])]
    for kind in ("name", "containerPort"):
        assert len({port[kind] for port in ports}) == len(ports)
    assert len(services) == 2
    for service in services:
        assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= {port["name"] for port in ports}
    claims = stateful_set["spec"].get("volumeClaimTemplates", [])
    volumes = [*(claim["metadata"]["name"] for claim in claims), *(v["name"] for v in template["spec"]["volumes"])]
    assert len(volumes) == len(set(volumes))
    assert {mount["name"] for container in containers for mount in container.get("volumeMounts", [])} <= set(volumes)


def test_a_stateful_set_that_is_not_there_fails(tmp_path: Path) -> None:
    done = build(tmp_path, ONE_CONTAINER.replace("name: galera\n", "name: another\n"))
    assert (done.returncode != 0, done.stdout) == (True, "")
    assert "failed to find unique target for patch StatefulSet.v1.apps/galera.[noNs]" in done.stderr


def test_a_namespace_is_part_of_the_name(tmp_path: Path) -> None:
    name, named = "  name: galera\n", "  name: galera\n  namespace: shop\n"
    base = ONE_CONTAINER.replace(name, named, 1)
    assert build(tmp_path, base).returncode != 0
    sidecar = tmp_path / "component" / "sidecar.yaml"
    sidecar.write_text(sidecar.read_text().replace(name, named))
    assert kustomized(tmp_path).returncode == 0


def test_a_container_that_is_not_there_becomes_one_without_an_image_which_the_server_refuses(tmp_path: Path) -> None:
    stateful_set = made_of(tmp_path, ONE_CONTAINER.replace("name: mariadb\n", "name: mysql\n"))[0]
    (nameless,) = [found for found in stateful_set["spec"]["template"]["spec"]["containers"] if "image" not in found]
    assert nameless["name"] == "mariadb"
