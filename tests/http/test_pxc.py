"""What PXC does with its maintenance mode, on a mock node."""

from harness.waiting import wait_for
from tests.conftest import Services
from tests.fake_mysql import fake_mysql
from tests.pxc import Node


def test_a_partition_undoes_a_drain_by_maintenance_mode_but_not_one_by_the_disabled_file(
    services: Services,
) -> None:
    node = Node()
    with fake_mysql(node) as server:
        service = services.beside(server, CLUSTERCHECK_DRAIN_STATUS="404")
        node.set_maintenance()
        service.wait_for_verdict(404, "maintenance")
        node.lose_majority()
        # Not maintenance, although the mode is on: the sessions could not work.
        service.wait_for_verdict(503, "non-primary")
        assert service.status()["node"]["pxc_maint_mode"] == "MAINTENANCE"
        node.find_majority()
        service.wait_for_verdict(200, "synced")
        service.command("drain")
        for change, otherwise in (
            (node.lose_majority, "non-primary"),
            (node.find_majority, "synced"),
        ):
            change()
            wait_for(
                otherwise,
                lambda: service.status()["otherwise"]["reason"] == otherwise,  # noqa: B023 (in turn)
            )
            assert (service.get().status, service.get().reason) == (404, "disabled")
