"""What `clustercheckd status` says of a set of nodes."""

from dataclasses import replace

import pytest

from app.commands.asking import Reply, Service, Status
from app.commands.cluster import FAULTS, remarks_on
from app.verdict.node_state import NodeState
from tests import real_rows

MEMBER = replace(real_rows.parsed(real_rows.SYNCED), sync_wait_seconds=0.0)
OF_TWO = replace(
    MEMBER, wsrep_cluster_size=2, wsrep_cluster_conf_id=4, wsrep_incoming_addresses="a:1,b:1"
)
# After pc.bootstrap=1 on a node that was cut off, the number is the same on both sides.
ALONE = replace(OF_TWO, wsrep_cluster_size=1, wsrep_incoming_addresses="c:1")
OF_OTHER_DATA = replace(
    MEMBER, wsrep_cluster_state_uuid="0dd5f2d6-e7ab-11f1-9f2b-5b3cbd3ba3b3", version="11.8.6"
)
DONOR = replace(real_rows.parsed(real_rows.DONOR), wsrep_local_recv_queue=900, sync_wait_seconds=60)
CUT_OFF = real_rows.parsed(real_rows.NON_PRIMARY)
JOINING = replace(real_rows.parsed(real_rows.JOINING_IN_PRIMARY), wsrep_cluster_conf_id=2)
PAUSED = replace(MEMBER, wsrep_flow_control_active="true")
PAUSES = replace(MEMBER, wsrep_flow_control_status="ON", wsrep_local_recv_queue=30)
LATE = replace(MEMBER, sync_wait_seconds=1.5)
# It has not applied yet that a member has gone.
BEHIND = replace(LATE, wsrep_local_recv_queue=5)
AUTO = replace(MEMBER, wsrep_incoming_addresses="AUTO,AUTO,AUTO")
WITH_ARBITRATOR = replace(OF_TWO, wsrep_cluster_size=3, wsrep_incoming_addresses="a:1,,b:1")
NO_ANSWER = None
SIDES = "wsrep_cluster_size 2, configuration 4 of fbfb0a61"
DISK = "run there: df -h /var/lib/mysql"


def replies(*nodes: NodeState | None, unavailable: str = "") -> list[Reply]:
    """Return the answers of n1, n2, ...; unavailable: their numbers."""
    answers = []
    for number, node in enumerate(nodes, 1):
        service = Service(f"n{number}", f"n{number}", 9200)
        if node is NO_ANSWER:
            answers.append(Reply(service, fault="no answer"))
        else:
            available = str(number) not in unavailable
            answers.append(
                Reply(service, Status(available=available, reason="of the test", node=node))
            )
    return answers


@pytest.mark.parametrize(
    ("nodes", "unavailable", "expected"),
    [
        ((MEMBER, MEMBER, MEMBER), "", {}),
        ((MEMBER, MEMBER, NO_ANSWER), "", {}),
        ((MEMBER, MEMBER, replace(MEMBER, version="10.11.19-MariaDB-log")), "", {}),
        ((MEMBER, MEMBER, DONOR), "3", {}),
        ((OF_TWO, OF_TWO, CUT_OFF), "3", {}),
        ((OF_TWO, OF_TWO, JOINING), "3", {}),
        ((WITH_ARBITRATOR, WITH_ARBITRATOR), "", {}),
        ((NO_ANSWER,), "", {}),
        ((NodeState(),), "1", {}),
        (
            (OF_TWO, OF_TWO, ALONE),
            "",
            {
                "split": f"each side takes writes; n1, n2: {SIDES}; n3: wsrep_cluster_size 1, configuration 4 of fbfb0a61"
            },
        ),
        (
            (MEMBER, MEMBER, OF_OTHER_DATA),
            "",
            {
                "split": "each side takes writes; n1, n2: wsrep_cluster_size 3, configuration 3 of fbfb0a61;"
                " n3: wsrep_cluster_size 3, configuration 3 of 0dd5f2d6",
                "versions": "an upgrade is not finished; n1, n2: 10.11.19; n3: 11.8.6",
            },
        ),
        ((OF_TWO, BEHIND, CUT_OFF), "3", {"held-up": f"reads in sync wait on n2; {DISK}"}),
        ((LATE, LATE, LATE), "", {"held-up": f"reads in sync wait on n1, n2, n3; {DISK}"}),
        (
            (PAUSED, replace(PAUSED, wsrep_local_recv_queue=150), MEMBER),
            "",
            {"held-up": f"flow control waits for the receive queue on n2; {DISK}"},
        ),
        (
            (MEMBER, PAUSES, MEMBER),
            "",
            {"held-up": f"flow control waits for the receive queue on n2; {DISK}"},
        ),
        (
            (CUT_OFF, NO_ANSWER, NodeState()),
            "13",
            {"nobody": "no node takes traffic; do not bootstrap anything yet"},
        ),
        ((MEMBER,), "", {"not-asked": "2 of its members; run: clustercheckd status --all"}),
        ((AUTO, AUTO), "", {"not-asked": "1 of its members; run: clustercheckd status --all"}),
    ],
)
def test_what_no_row_shows_is_a_word_with_what_was_seen(
    nodes: tuple[NodeState | None, ...], unavailable: str, expected: dict[str, str]
) -> None:
    assert remarks_on(replies(*nodes, unavailable=unavailable)) == expected


def test_every_fault_is_a_word_of_the_rules() -> None:
    worst = replies(replace(PAUSED, version="11"), replace(ALONE, version="10"), unavailable="12")
    assert len(FAULTS) == 3
    assert remarks_on(worst).keys() == {*FAULTS, "not-asked", "versions"}
