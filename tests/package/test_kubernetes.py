"""contrib/kubernetes, applied by kustomize to StatefulSets, against the schemas of Kubernetes."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.process import output_of
from tests.unit.manifests import ROOT, documents_in
from tests.unit.pages import blocks_under

FOLDER = ROOT / "contrib" / "kubernetes"
KUSTOMIZE = ROOT / "build" / "tools" / "kustomize"
VALIDATOR = ROOT / "build" / "kubernetes-venv" / "bin" / "kubernetes-validate"
OPERATOR = "modules/github.com/prometheus-operator/prometheus-operator@*"
CRDS = [*(ROOT / "build" / "tools").glob(f"{OPERATOR}/example/prometheus-operator-crd")]
JSONSCHEMA = (
    "import json, jsonschema, sys; jsonschema.validate(*map(json.loads, sys.argv[1:]))"
)
# A preStop may sleep from the first on; the second is the newest that there are schemas of.
VERSIONS = ("1.30", "1.37")

pytestmark = pytest.mark.skipif(
    not (KUSTOMIZE.exists() and VALIDATOR.exists()),
    reason="NOT TESTED: make test-package installs the schemas, and kustomize where there is Go",
)

needs_crds = pytest.mark.skipif(
    not CRDS, reason="NOT TESTED: make test-package downloads the schemas with Go"
)

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
"""
WITH_PROBES = """\
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: galera
spec:
  replicas: 3
  serviceName: galera-nodes
  podManagementPolicy: OrderedReady
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
USERS = pytest.mark.parametrize(
    "base", [ONE_CONTAINER, WITH_PROBES], ids=["one-container", "with-probes"]
)


def validate(version: str, *files: Path) -> None:
    """Validate files. Raises AssertionError with what is wrong."""
    output_of(VALIDATOR, "--strict", "--kubernetes-version", version, *files)


def prepare(directory: Path, base: str) -> Path:
    """Write what adds the component to a base. Return the component's own file."""
    component = shutil.copytree(FOLDER, directory / "component")
    (directory / "base.yaml").write_text(base)
    (directory / "kustomization.yaml").write_text(
        "resources: [base.yaml]\ncomponents: [component]\n"
    )
    return component / "kustomization.yaml"


def kustomize(directory: Path) -> str:
    """Return the manifest that kustomize makes. Raises AssertionError with what is wrong."""
    return output_of(KUSTOMIZE, "build", directory)


@USERS
@pytest.mark.parametrize("version", VERSIONS)
def test_what_kustomize_makes_is_valid(version: str, tmp_path: Path, base: str) -> None:
    made = tmp_path / "made.yaml"
    prepare(tmp_path, base)
    made.write_text(kustomize(tmp_path))
    validate(version, made, FOLDER / "secret.example.yaml")
    made.write_text(made.read_text().replace("timeoutSeconds", "timeoutSecond"))
    with pytest.raises(AssertionError, match="timeoutSecond"):
        validate(version, made)


def test_a_stateful_set_of_another_name_fails_unless_it_is_found_by_its_label(
    tmp_path: Path,
) -> None:
    other = "  name: another\n  labels: {app: galera}\n"
    component = prepare(tmp_path, ONE_CONTAINER.replace("  name: galera\n", other, 1))
    fault = r"failed to find unique target for patch StatefulSet\.v1\.apps/galera\."
    with pytest.raises(AssertionError, match=fault):
        kustomize(tmp_path)
    component.write_text(component.read_text().replace("# target: ", "target: "))
    assert "name: clustercheckd\n" in kustomize(tmp_path)


def strict(schema: Any) -> Any:  # noqa: ANN401 (JSON)
    """Return a schema that refuses fields it does not know, as the API server warns of them."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if isinstance(schema, str):
        # Go takes a flag behind the beginning, too.
        return schema.replace("^(?i)", "(?i)^")
    if not isinstance(schema, dict):
        return schema
    made = {name: strict(one) for name, one in schema.items()}
    if isinstance(schema.get("properties"), dict) and "type" in schema:
        made["additionalProperties"] = False
    return made


def validate_resource(resource: dict[str, Any]) -> None:
    """Validate a resource of the Prometheus operator. Raises AssertionError."""
    (crds,) = CRDS
    name = f"monitoring.coreos.com_{resource['kind'].lower()}s.yaml"
    (definition,) = documents_in(crds / name)
    (version,) = definition["spec"]["versions"]
    assert resource["apiVersion"] == f"{definition['spec']['group']}/{version['name']}"
    schema = strict(version["schema"]["openAPIV3Schema"])
    python = VALIDATOR.with_name("python")
    output_of(python, "-c", JSONSCHEMA, json.dumps(resource), json.dumps(schema))


@needs_crds
def test_the_pod_monitor_is_valid_and_scrapes_the_port_of_the_sidecar() -> None:
    (monitor,) = documents_in(FOLDER / "podmonitor.yaml")
    validate_resource(monitor)
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (patch,) = documents_in(FOLDER / "sidecar.yaml")
    (sidecar,) = patch["spec"]["template"]["spec"]["initContainers"]
    assert [port["name"] for port in sidecar["ports"]] == [endpoint["port"]]
    endpoint["relabeling"] = endpoint.pop("relabelings")
    with pytest.raises(AssertionError, match="'relabeling' was unexpected"):
        validate_resource(monitor)


@needs_crds
def test_the_command_of_the_page_makes_a_valid_rule_of_the_alerts(
    tmp_path: Path,
) -> None:
    (block,) = blocks_under("docs/kubernetes.md", "Prometheus", "console")
    _, line = block.text.strip().split("$ ", 1)
    made, _, _ = line.rpartition(" | kubectl apply")
    rules = tmp_path / "rules.yaml"
    rules.write_text(output_of("sh", "-c", made, cwd=ROOT / "contrib" / "prometheus"))
    (rule,) = documents_in(rules)
    (alerts,) = documents_in(ROOT / "contrib" / "prometheus" / "alerts.yml")
    assert rule["spec"] == alerts
    validate_resource(rule)
