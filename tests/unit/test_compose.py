"""compose.yaml, without Docker: what it refers to is there, and its settings are settings."""

from tests.unit.manifests import ROOT, documents_in, settings_from

(COMPOSE,) = documents_in(ROOT / "compose.yaml")
SERVICES = COMPOSE["services"]


def test_what_it_refers_to_is_there() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (ROOT / source).is_file(), source
        for secret in service.get("secrets", []):
            assert secret["source"] in COMPOSE["secrets"]
        shared = service.get("network_mode", "").removeprefix("service:")
        assert not shared or shared in SERVICES
    assert (ROOT / SERVICES["clustercheckd"]["build"] / "Dockerfile").is_file()


def test_its_settings_are_settings() -> None:
    service = SERVICES["clustercheckd"]
    settings = settings_from(service["environment"])
    assert settings.mysql_password_file in [
        secret["target"] for secret in service["secrets"]
    ]
    # The port that is published, where its network is.
    assert (
        f"127.0.0.1:{settings.clustercheck_port}:{settings.clustercheck_port}"
        in SERVICES["galera"]["ports"]
    )
