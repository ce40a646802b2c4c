"""contrib/kubernetes: what a schema cannot say.

What kustomize makes of it: tests/package/test_kubernetes.py.
"""

from pathlib import Path

from tests.unit.manifests import ROOT, documents_in, settings_from

FOLDER = ROOT / "contrib" / "kubernetes"
(PATCH,) = documents_in(FOLDER / "sidecar.yaml")
(SECRET,) = documents_in(FOLDER / "secret.example.yaml")
POD = PATCH["spec"]["template"]["spec"]
(SIDECAR,) = POD["initContainers"]
(DATABASE,) = POD["containers"]
(VOLUME,) = POD["volumes"]
(MOUNT,) = SIDECAR["volumeMounts"]
SETTINGS = settings_from(
    {variable["name"]: variable["value"] for variable in SIDECAR["env"]}
)
PROBES = [SIDECAR[kind] for kind in ("startupProbe", "livenessProbe", "readinessProbe")]


def test_it_can_be_drained_although_the_root_is_read_only() -> None:
    assert SIDECAR["securityContext"]["readOnlyRootFilesystem"] is True
    # The Pod's containers share this folder, which outlives each of them, and everybody may write
    # there.
    assert Path(SETTINGS.clustercheck_disabled_file).parent == Path("/dev", "shm")


def test_each_probe_waits_longer_than_an_answer_may_be_held() -> None:
    for probe in PROBES:
        assert probe["timeoutSeconds"] > SETTINGS.clustercheck_deadline
        # A number, which every container of the Pod can name.
        assert probe["httpGet"]["port"] == SETTINGS.clustercheck_port


def test_the_password_is_a_file_that_rotates() -> None:
    assert SETTINGS.mysql_password is None
    # A subPath would keep the password of the Pod's first day.
    assert {
        "name": VOLUME["name"],
        "mountPath": MOUNT["mountPath"],
        "readOnly": True,
    } == MOUNT
    assert {
        "name": MOUNT["name"],
        "secret": {"secretName": SECRET["metadata"]["name"]},
    } == VOLUME
    assert [f"{MOUNT['mountPath']}/{key}" for key in SECRET["stringData"]] == [
        SETTINGS.mysql_password_file
    ]


def test_the_account_is_the_one_that_the_sidecar_uses() -> None:
    statement = (FOLDER / "account.sql").read_text()
    (password,) = SECRET["stringData"].values()
    assert (
        f"CREATE USER {SETTINGS.mysql_username}@{SETTINGS.mysql_host} IDENTIFIED BY '{password}' "
        in statement
    )


def test_the_sidecar_complies_with_pod_security_restricted() -> None:
    # The rules of the standard for one container; kustomization and Pod are the user's.
    assert SIDECAR["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert "cpu" not in SIDECAR["resources"]["limits"]
