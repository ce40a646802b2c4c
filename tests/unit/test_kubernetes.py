"""contrib/kubernetes: what a schema cannot say. What kustomize makes of it: tests/package/test_kubernetes.py."""

import pytest

from app import __version__
from tests.unit.manifests import ROOT, Document, documents_in, settings_from

FOLDER = ROOT / "contrib" / "kubernetes"
(COMPONENT,) = documents_in(FOLDER / "kustomization.yaml")
(PATCH,) = documents_in(FOLDER / "sidecar.yaml")
(SECRET,) = documents_in(FOLDER / "secret.example.yaml")
POD = PATCH["spec"]["template"]["spec"]
(SIDECAR,) = POD["initContainers"]
(DATABASE,) = POD["containers"]
(VOLUME,) = POD["volumes"]
(MOUNT,) = SIDECAR["volumeMounts"]
ENVIRON = {variable["name"]: variable["value"] for variable in SIDECAR["env"]}
SETTINGS = settings_from(ENVIRON)
PROBES: list[Document] = [
    *(SIDECAR[kind] for kind in ("startupProbe", "livenessProbe", "readinessProbe")),
    DATABASE["readinessProbe"],
]


def test_the_component_is_one_patch_without_a_target() -> None:
    # A target that selects nothing is no error to kustomize.
    assert (COMPONENT["kind"], COMPONENT["patches"]) == ("Component", [{"path": "sidecar.yaml"}])
    (image,) = COMPONENT["images"]
    assert (image["name"], image["newTag"]) == (SIDECAR["image"], __version__)


def test_it_is_a_native_sidecar_with_settings_that_exist() -> None:
    assert SIDECAR["restartPolicy"] == "Always"
    assert POD["enableServiceLinks"] is False
    assert [port["containerPort"] for port in SIDECAR["ports"]] == [SETTINGS.clustercheck_port]


def test_readiness_is_the_verdict_and_liveness_is_not() -> None:
    # Before the database runs, whose start waits for the startup probe, there is no verdict but 503.
    assert [probe["httpGet"]["path"] for probe in PROBES] == ["/livez", "/livez", "/readyz", "/readyz"]
    assert not {"livenessProbe", "startupProbe"} & set(DATABASE)


def test_each_probe_waits_longer_than_an_answer_may_be_held() -> None:
    for probe in PROBES:
        assert probe["timeoutSeconds"] > SETTINGS.clustercheck_deadline
        # A number, which every container of the Pod can name.
        assert probe["httpGet"]["port"] == SETTINGS.clustercheck_port


def test_the_password_is_a_file_that_rotates() -> None:
    assert SETTINGS.mysql_password is None
    # A subPath would keep the password of the Pod's first day.
    assert {"name": VOLUME["name"], "mountPath": MOUNT["mountPath"], "readOnly": True} == MOUNT
    assert VOLUME["secret"]["secretName"] == SECRET["metadata"]["name"]
    assert [f"{MOUNT['mountPath']}/{key}" for key in SECRET["stringData"]] == [SETTINGS.mysql_password_file]


def test_the_account_is_the_one_that_the_sidecar_uses() -> None:
    statement = (FOLDER / "account.sql").read_text()
    (password,) = SECRET["stringData"].values()
    assert f"CREATE USER {SETTINGS.mysql_username}@{SETTINGS.mysql_host} IDENTIFIED BY '{password}' " in statement


def test_the_page_says_what_the_manifest_sets() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    for name in ("AVAILABLE_WHEN_DONOR", "MAX_RECV_QUEUE"):
        assert f"`{name}={ENVIRON[name]}`" in page
    assert f"({SETTINGS.clustercheck_deadline:g} s)" in page


@pytest.mark.parametrize("name", ["sidecar.yaml", "secret.example.yaml", "kustomization.yaml"])
def test_no_namespace_is_ours(name: str) -> None:
    assert all("namespace" not in {*found, *found.get("metadata", {})} for found in documents_in(FOLDER / name))


def test_the_sidecar_complies_with_pod_security_restricted() -> None:
    # The rules of the standard for one container; kustomization and Pod are the user's.
    context = SIDECAR["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] > 0
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not any("hostPort" in port for port in SIDECAR["ports"])
    assert set(VOLUME) == {"name", "secret"}
    assert "cpu" not in SIDECAR["resources"]["limits"]
