"""What `clustercheckd status` says of a set of nodes."""

from dataclasses import replace

import pytest

from app.commands.asking import Address, Answer, Finding, no_answer
from app.commands.cluster import FAULTS, remarks_on
from app.verdict.node_state import NodeState
from tests import real_rows

MEMBER = replace(real_rows.parsed(real_rows.SYNCED), sync_wait_seconds=0.0)
OF_TWO = replace(
    MEMBER,
    wsrep_cluster_size=2,
    wsrep_cluster_conf_id=4,
    wsrep_incoming_addresses="a:1,b:1",
)
# After pc.bootstrap=1 on a node that was cut off, the number is the same on both sides.
ALONE = replace(OF_TWO, wsrep_cluster_size=1, wsrep_incoming_addresses="c:1")
OF_OTHER_DATA = replace(
    MEMBER,
    wsrep_cluster_state_uuid="0dd5f2d6-e7ab-11f1-9f2b-5b3cbd3ba3b3",
)
DONOR = replace(
    real_rows.parsed(real_rows.DONOR), wsrep_local_recv_queue=900, sync_wait_seconds=60
)
CUT_OFF = real_rows.parsed(real_rows.NON_PRIMARY)
JOINING = replace(
    real_rows.parsed(real_rows.JOINING_IN_PRIMARY), wsrep_cluster_conf_id=2
)
PAUSED = replace(MEMBER, wsrep_flow_control_active="true")
PAUSES = replace(MEMBER, wsrep_flow_control_status="ON", wsrep_local_recv_queue=30)
LATE = replace(MEMBER, sync_wait_seconds=1.5)
AUTO = replace(MEMBER, wsrep_incoming_addresses="AUTO,AUTO,AUTO")
WITH_ARBITRATOR = replace(
    OF_TWO, wsrep_cluster_size=3, wsrep_incoming_addresses="a:1,,b:1"
)
NO_ANSWER = None
SIDES = "wsrep_cluster_size 2, configuration 4, a:1,b:1"
OF_TWO_B = replace(OF_TWO, wsrep_incoming_addresses="c:1,d:1")
FIRST, SECOND, THIRD, FOURTH = (
    replace(
        OF_TWO,
        wsrep_incoming_addresses="AUTO,AUTO",
        wsrep_local_index=index,
        wsrep_node_name=name,
    )
    for name, index in (("w", 0), ("x", 1), ("y", 0), ("z", 1))
)
ASKED_TWICE = replace(MEMBER, wsrep_node_name="w")
NO_ONE = "no node that answers takes traffic; do not bootstrap anything yet"
HINT = "run there: df -h /var/lib/mysql"
ONE_MORE = (
    "1 of its members; name each: clustercheckd status db1 db2 db3, or one with --all"
)


def answers_of(*nodes: NodeState | None, unavailable: str = "") -> list[Answer]:
    """Return the answers of n1, n2, ...; unavailable: their numbers."""
    answers = []
    for number, node in enumerate(nodes, 1):
        address = Address(f"n{number}", f"n{number}", 9200)
        if node is NO_ANSWER:
            answers.append(no_answer(address, "no answer"))
        else:
            own = node
            if node.wsrep_node_name == MEMBER.wsrep_node_name:
                # As each member has.
                own = replace(
                    node, wsrep_node_name=address.name, wsrep_local_index=number - 1
                )
            answers.append(
                Answer(
                    address=address,
                    available=str(number) not in unavailable,
                    reason="of the test",
                    node=own,
                )
            )
    return answers


REMARKS: list[tuple[tuple[NodeState | None, ...], str, dict[str, str]]] = [
    ((MEMBER, MEMBER, MEMBER), "", {}),
    ((MEMBER, MEMBER, NO_ANSWER), "", {}),
    ((MEMBER, MEMBER, DONOR), "3", {}),
    ((OF_TWO, OF_TWO, CUT_OFF), "3", {}),
    ((OF_TWO, OF_TWO, JOINING), "3", {}),
    ((WITH_ARBITRATOR, WITH_ARBITRATOR), "", {}),
    ((NodeState(),), "1", {}),
    (
        (OF_TWO, OF_TWO, ALONE),
        "",
        {
            "split": f"each side takes writes; n1, n2: {SIDES};"
            " n3: wsrep_cluster_size 1, configuration 4, c:1"
        },
    ),
    # Sides of the same size.
    (
        (OF_TWO, OF_TWO_B, OF_TWO, OF_TWO_B),
        "",
        {
            "split": f"each side takes writes; n1, n3: {SIDES};"
            " n2, n4: wsrep_cluster_size 2, configuration 4, c:1,d:1"
        },
    ),
    (
        (FIRST, SECOND, THIRD, FOURTH),
        "",
        {
            "split": "each side takes writes; n1, n2, n3, n4: two with the same wsrep_local_index"
        },
    ),
    # One node by two names.
    ((FIRST, SECOND, FIRST), "", {}),
    # Its own row tells of it, and it may not know yet that it was excluded.
    ((OF_TWO, OF_TWO, replace(MEMBER, returning=True)), "3", {}),
    # All of them apply what has come in.
    (
        (replace(MEMBER, wsrep_local_recv_queue=2), OF_OTHER_DATA),
        "",
        {
            "split": f"each side takes writes; n1: data of {MEMBER.wsrep_cluster_state_uuid};"
            f" n2: data of {OF_OTHER_DATA.wsrep_cluster_state_uuid}",
            "not-asked": ONE_MORE,
        },
    ),
    # It has not applied yet that a member has gone.
    ((OF_TWO, replace(MEMBER, wsrep_local_recv_queue=5), CUT_OFF), "3", {}),
    (
        (OF_TWO, LATE, CUT_OFF),
        "3",
        {"held-up": f"reads in sync wait on n2; {HINT}"},
    ),
    (
        (replace(LATE, stall="group"), replace(LATE, stall="group"), MEMBER),
        "",
        {
            "held-up": "reads in sync wait on n1, n2; the whole group waits: look for DDL, a large"
            " transaction, a lost member"
        },
    ),
    (
        (MEMBER, replace(LATE, stall="group"), MEMBER),
        "",
        {
            "held-up": "reads in sync wait on n2; others do not wait: run there:"
            " mariadb -e 'SHOW PROCESSLIST'"
        },
    ),
    (
        (LATE, replace(LATE, stall="stalled"), replace(LATE, stall="group")),
        "2",
        {"held-up": "reads in sync wait on n1, n2, n3; look first at n2 (stalled)"},
    ),
    # The one that they wait for cannot be read, or not even its service.
    (
        (LATE, LATE, NodeState(), NO_ANSWER),
        "3",
        {
            "held-up": "reads in sync wait on n1, n2;"
            " look first at n3 (of the test), n4 (no answer)"
        },
    ),
    (
        (PAUSED, replace(PAUSED, wsrep_local_recv_queue=150), MEMBER),
        "",
        {"held-up": f"flow control waits for the receive queue on n2; {HINT}"},
    ),
    (
        (MEMBER, replace(PAUSES, sync_wait_seconds=3), MEMBER),
        "",
        {
            "held-up": "reads in sync wait on n2;"
            f" flow control waits for the receive queue on n2; {HINT}"
        },
    ),
    (
        (PAUSED, PAUSED, NO_ANSWER),
        "",
        {
            "held-up": "flow control waits for the receive queue on"
            " a node that is not shown here; look first at n3 (no answer)"
        },
    ),
    (
        (CUT_OFF, NO_ANSWER, NodeState()),
        "13",
        {"nobody": NO_ONE},
    ),
    # Perhaps the scripts answer there, or this host may not connect.
    ((NO_ANSWER, NO_ANSWER, NO_ANSWER), "", {}),
    # One that was not asked may take traffic.
    (
        (MEMBER, MEMBER),
        "12",
        {"not-asked": ONE_MORE},
    ),
    (
        (AUTO, AUTO),
        "",
        {"not-asked": ONE_MORE},
    ),
    # A member that announces localhost: the service here is asked in its place.
    (
        (ASKED_TWICE, ASKED_TWICE, MEMBER),
        "",
        {"not-asked": ONE_MORE},
    ),
]


@pytest.mark.parametrize(("nodes", "unavailable", "expected"), REMARKS)
def test_what_no_row_shows_is_a_word_with_what_was_seen(
    nodes: tuple[NodeState | None, ...], unavailable: str, expected: dict[str, str]
) -> None:
    assert remarks_on(answers_of(*nodes, unavailable=unavailable)) == expected


@pytest.mark.parametrize(
    ("verdicts", "is_told"),
    [
        ((False, False, False), True),
        ((False, True, False), False),
        # It was asked of two nodes only.
        ((False, False, None), False),
    ],
)
def test_a_health_check_that_no_node_says_yes_to_is_told(
    verdicts: tuple[bool | None, ...], *, is_told: bool
) -> None:
    path = "/?available_when_readonly=0"
    answers = [
        one.model_copy(
            update={
                "answered": {}
                if available is None
                else {path: Finding(available=available, reason="read-only")}
            }
        )
        for one, available in zip(answers_of(*3 * [MEMBER]), verdicts, strict=True)
    ]
    told = {"nobody": f"no node that answers says yes to {path}"}
    assert remarks_on(answers) == (told if is_told else {})


def test_every_fault_is_in_the_table() -> None:
    words = {word for _, _, expected in REMARKS for word in expected}
    assert words | {"same-server", "no-logins"} == {*FAULTS, "not-asked"}


def test_two_services_that_watch_one_server_are_named() -> None:
    one, other, third = answers_of(FIRST, FIRST, SECOND)
    one, third = (answer.model_copy(update={"pid": 7}) for answer in (one, third))
    # The same service by two names.
    assert remarks_on([one, other.model_copy(update={"pid": 7}), third]) == {}
    assert remarks_on([one, other.model_copy(update={"pid": 8}), third]) == {
        "same-server": "n1, n2 watch one server: see MYSQL_HOST"
    }


def test_logins_that_fail_on_all_nodes_are_a_fault() -> None:
    failure = {"login_failure": Finding(reason="access-denied", detail="seen")}
    one, other, silent = answers_of(OF_TWO, OF_TWO, NO_ANSWER)
    failing = one.model_copy(update=failure)
    assert remarks_on([failing, other, silent]) == {}
    assert remarks_on([failing, other.model_copy(update=failure), silent]) == {
        "no-logins": "n1, n2: logins fail, and open sessions go on"
    }


def test_after_a_bootstrap_nobody_is_told_to_wait_for_it() -> None:
    answers = answers_of(ALONE, NO_ANSWER, unavailable="1")
    assert remarks_on(answers) == {
        "nobody": "no node that answers takes traffic; there is a primary component"
    }
