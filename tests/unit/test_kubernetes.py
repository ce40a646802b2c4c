"""contrib/kubernetes: what a schema cannot say. The schemas themselves: tests/package/test_kubernetes.py."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from app import __version__
from tests.unit.manifests import ROOT, Document, documents_in, settings_from

FOLDER = ROOT / "contrib" / "kubernetes"
NOT_APPLIED = {"kustomization.yaml", "secret.example.yaml"}
ALL = {path.name: list(documents_in(path)) for path in FOLDER.glob("*.yaml")}
(KUSTOMIZATION,) = ALL["kustomization.yaml"]
(STATEFUL_SET,) = ALL["statefulset.yaml"]
(SECRET,) = ALL["secret.example.yaml"]
(BUDGET,) = ALL["poddisruptionbudget.yaml"]
SERVICES = {service["metadata"]["name"]: service for service in ALL["services.yaml"]}
TEMPLATE = STATEFUL_SET["spec"]["template"]
POD = TEMPLATE["spec"]
(SIDECAR,) = POD["initContainers"]
(DATABASE,) = POD["containers"]
CONTAINERS = [SIDECAR, DATABASE]


def environ(container: Document) -> dict[str, str]:
    """Give a container's variables that have a value."""
    return {variable["name"]: variable["value"] for variable in container["env"] if "value" in variable}


def port_names(container: Document) -> set[str]:
    """Give the names of a container's ports."""
    return {port["name"] for port in container["ports"]}


def test_everything_is_applied_and_everything_that_is_applied_is_there() -> None:
    assert set(KUSTOMIZATION["resources"]) == set(ALL) - NOT_APPLIED
    (generated,) = KUSTOMIZATION["configMapGenerator"]
    assert all((FOLDER / name).is_file() for name in generated["files"])
    assert generated["name"] in [volume["configMap"]["name"] for volume in POD["volumes"] if "configMap" in volume]
    (image,) = KUSTOMIZATION["images"]
    assert (image["name"], image["newTag"]) == (SIDECAR["image"], __version__)


class TestSidecar:
    """A native sidecar, whose readiness is the Pod's."""

    def test_it_is_a_native_one_with_settings_that_exist(self) -> None:
        assert SIDECAR["restartPolicy"] == "Always"
        settings = settings_from(environ(SIDECAR))
        assert settings.mysql_password_file is not None
        assert settings.mysql_password is None
        assert [port["containerPort"] for port in SIDECAR["ports"]] == [settings.clustercheck_port]

    def test_readiness_is_the_verdict_and_liveness_is_not(self) -> None:
        paths = {kind: SIDECAR[kind]["httpGet"]["path"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
        # Before the database runs, whose start waits for the startup probe, there is no verdict but 503.
        assert paths == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
        assert not {"livenessProbe", "readinessProbe", "startupProbe"} & set(DATABASE)

    def test_a_probe_waits_longer_than_an_answer_may_be_held(self) -> None:
        deadline = settings_from(environ(SIDECAR)).clustercheck_deadline
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert SIDECAR[kind]["timeoutSeconds"] > deadline
            assert SIDECAR[kind]["httpGet"]["port"] in port_names(SIDECAR)

    def test_services_set_no_variables(self) -> None:
        assert POD["enableServiceLinks"] is False


def test_the_page_says_what_the_manifests_set() -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    variables = environ(SIDECAR)
    for name in ("AVAILABLE_WHEN_DONOR", "MAX_RECV_QUEUE"):
        assert f"`{name}={variables[name]}`" in page
    readiness = SIDECAR["readinessProbe"]
    assert f"the manifest sets {readiness['timeoutSeconds']}." in page
    assert (
        f"With `periodSeconds: {readiness['periodSeconds']}` and `failureThreshold: {readiness['failureThreshold']}`"
        in page
    )
    assert f"({settings_from(variables).clustercheck_deadline:g} s)" in page


class TestReferences:
    """Names that are given in one place and meant in another."""

    def test_selectors_select_the_pods(self) -> None:
        labels = TEMPLATE["metadata"]["labels"]
        selectors = [
            STATEFUL_SET["spec"]["selector"]["matchLabels"],
            BUDGET["spec"]["selector"]["matchLabels"],
            *(service["spec"]["selector"] for service in SERVICES.values()),
            *(spread["labelSelector"]["matchLabels"] for spread in POD["topologySpreadConstraints"]),
        ]
        for selector in selectors:
            assert selector
            assert selector.items() <= labels.items()

    def test_named_ports_exist_once(self) -> None:
        names = [port["name"] for container in CONTAINERS for port in container["ports"]]
        assert len(names) == len(set(names))
        for service in SERVICES.values():
            for port in service["spec"]["ports"]:
                assert port["targetPort"] in names

    def test_mounts_are_of_volumes_and_keys_are_of_their_files(self) -> None:
        volumes: dict[str, Any] = {volume["name"]: volume for volume in POD["volumes"]}
        volumes |= {claim["metadata"]["name"]: claim for claim in STATEFUL_SET["spec"]["volumeClaimTemplates"]}
        files = set(KUSTOMIZATION["configMapGenerator"][0]["files"])
        for container in CONTAINERS:
            for mount in container["volumeMounts"]:
                assert mount["name"] in volumes
                assert mount.get("subPath") in files | {None}
        for volume in POD["volumes"]:
            if "secret" in volume:
                assert volume["secret"]["secretName"] == SECRET["metadata"]["name"]
                assert {item["key"] for item in volume["secret"].get("items", [])} <= set(SECRET["stringData"])

    def test_passwords_are_in_files_and_rotate(self) -> None:
        mounts = {mount["name"]: mount for mount in SIDECAR["volumeMounts"]}
        (volume,) = [volume for volume in POD["volumes"] if volume["name"] == "clustercheck-password"]
        mount = mounts["clustercheck-password"]
        # A subPath would keep the password of the Pod's first day.
        assert "subPath" not in mount
        (item,) = volume["secret"]["items"]
        assert environ(SIDECAR)["MYSQL_PASSWORD_FILE"] == f"{mount['mountPath']}/{item['path']}"
        # And those of the database in what its own container mounts.
        assert environ(DATABASE)["MARIADB_ROOT_PASSWORD_FILE"].rpartition("/")[2] in SECRET["stringData"]
        assert re.search(r"cat /secret/(\w+)", (FOLDER / "account.sh").read_text())[1] in SECRET["stringData"]  # type: ignore[index]
        for container in CONTAINERS:
            assert not [name for name in environ(container) if name.endswith("PASSWORD")]

    def test_the_account_is_the_one_that_the_node_makes(self) -> None:
        settings = settings_from(environ(SIDECAR))
        script = (FOLDER / "account.sh").read_text()
        assert f"CREATE USER {settings.mysql_username}@{settings.mysql_host} " in script

    def test_joiners_are_found_and_clients_are_not_sent_to_them(self) -> None:
        nodes, clients = SERVICES[STATEFUL_SET["spec"]["serviceName"]], SERVICES["galera"]
        assert (nodes["spec"]["clusterIP"], nodes["spec"]["publishNotReadyAddresses"]) == ("None", True)
        assert "publishNotReadyAddresses" not in clients["spec"]
        replicas = STATEFUL_SET["spec"]["replicas"]
        names = [f"{STATEFUL_SET['metadata']['name']}-{number}.galera-nodes" for number in range(replicas)]
        assert f"nodes={','.join(names)}\n" in (FOLDER / "start.sh").read_text()
        assert replicas - BUDGET["spec"]["maxUnavailable"] > replicas / 2


class TestRestricted:
    """The Pod Security Standard "restricted", rule by rule."""

    def test_the_pod(self) -> None:
        (namespace,) = ALL["namespace.yaml"]
        assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
        assert POD["securityContext"]["runAsNonRoot"] is True
        assert POD["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(POD)
        allowed = {"name", "configMap", "emptyDir", "projected", "secret", "downwardAPI", "persistentVolumeClaim"}
        assert all(set(volume) <= allowed for volume in POD["volumes"])

    @pytest.mark.parametrize("container", CONTAINERS, ids=lambda container: str(container["name"]))
    def test_each_container(self, container: Document) -> None:
        context = container["securityContext"]
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context.get("runAsUser", POD["securityContext"]["runAsUser"]) > 0
        assert not any("hostPort" in port for port in container["ports"])
        assert {"requests", "limits"} <= set(container["resources"])
        assert "cpu" not in container["resources"]["limits"]


@pytest.mark.parametrize(
    ("host", "grastate", "others", "new_cluster"),
    [
        ("galera-0", None, "", True),
        # It has lost its data: the cluster goes on in the others.
        ("galera-0", None, "galera-1", False),
        ("galera-1", None, "", False),
        ("galera-2", None, "galera-0 galera-1", False),
        ("galera-0", 1, "", True),
        ("galera-0", 1, "galera-2", False),
        ("galera-0", 0, "", False),
    ],
)
def test_a_new_cluster_is_made_only_where_there_is_none(
    tmp_path: Path, host: str, grastate: int | None, others: str, *, new_cluster: bool
) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in (
        ("getent", f'case " {others} " in *" ${{2%%.*}} "*) exit 0 ;; esac; exit 2'),
        ("docker-entrypoint.sh", 'printf "%s\\n" "$@"'),
    ):
        (commands / name).write_text(f"#!/bin/sh\n{text}\n")
        (commands / name).chmod(0o755)
    if grastate is not None:
        (tmp_path / "grastate.dat").write_text(f"# GALERA saved state\nseqno:   -1\nsafe_to_bootstrap: {grastate}\n")
    environment = {"HOSTNAME": host, "POD_IP": "192.0.2.1", "DATA": str(tmp_path)}
    done = subprocess.run(
        ["bash", FOLDER / "start.sh"],
        env={"PATH": f"{commands}:{os.environ['PATH']}", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    options = done.stdout.splitlines()
    assert options[0] == "mariadbd"
    assert f"--wsrep-node-name={host}" in options
    assert ("--wsrep-new-cluster" in options) == new_cluster
