"""Rows from a server into a NodeState."""

import re
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.node_state import (
    NOT_A_NUMBER,
    STATUS_VARIABLES,
    SWITCHES,
    SYSTEM_VARIABLES,
    Cell,
    NodeState,
    PollFailure,
    one_line,
    parse_node_state,
)
from app.reason import Reason
from app.verdict import Policy, Switches, decide
from tests import real_rows


def parsed(*rows: tuple[object, ...]) -> NodeState:
    """Parse rows that must give a state."""
    state = parse_node_state(rows)  # type: ignore[arg-type]
    assert isinstance(state, NodeState)
    return state


def test_every_variable_asked_for_has_a_field() -> None:
    asked = {name.lower() for name in STATUS_VARIABLES + SYSTEM_VARIABLES}
    assert asked | {"rejects_logins"} == set(NodeState.__dataclass_fields__)


def test_the_real_rows_hold_every_variable_asked_for() -> None:
    assert set(STATUS_VARIABLES + SYSTEM_VARIABLES) == set(real_rows.SYNCED) | real_rows.NOT_EVERYWHERE


@pytest.mark.parametrize("version", real_rows.VERSIONS)
def test_the_real_rows_are_read_without_loss(version: str) -> None:
    rows = real_rows.SYNCED | {"version": version}
    expected = {name.lower(): int(value) if value.isdecimal() else value for name, value in rows.items()}
    seen = asdict(parsed(*rows.items()))
    assert expected == {name: value for name, value in seen.items() if value is not None}


def test_bytes_and_text_and_numbers_are_read_alike() -> None:
    expected = NodeState(wsrep_local_state=4)
    assert expected == parsed((b"wsrep_local_state", b"4")) == parsed(("wsrep_local_state", "4"))
    assert expected == parsed(("wsrep_local_state", 4))


def test_names_come_in_either_case() -> None:
    assert NodeState(wsrep_ready="ON", threads_connected=3) == parsed(("WSREP_READY", "ON"), ("Threads_connected", "3"))


@pytest.mark.parametrize("name", sorted(SWITCHES))
def test_a_switch_that_is_1_or_0_is_on_or_off(name: str) -> None:
    expected = [NodeState(**{name: value}) for value in ("ON", "OFF", "NO_LOCK")]  # type: ignore[arg-type]
    assert expected == [parsed((name, value)) for value in (b"1", 0, "NO_LOCK")]


def test_1_and_0_stay_what_they_are_in_all_else() -> None:
    assert NodeState(max_connections=1, wsrep_node_name="1") == parsed(
        ("max_connections", "1"), ("wsrep_node_name", "1")
    )


def test_rows_nobody_asked_for_are_passed_over() -> None:
    assert NodeState() == parsed(("Uptime", "3"), ("", ""), (None, None))


@pytest.mark.parametrize(
    "value", ["", "4.0", "four", "-1", "4 4", "18446744073709551615", "9" * 30, None, b"\xff", "٤"]
)
def test_what_is_no_number_is_kept_as_such(value: object) -> None:
    assert parsed(("wsrep_local_state", value)).wsrep_local_state == NOT_A_NUMBER


def test_an_absent_variable_is_none() -> None:
    assert parsed(("wsrep_ready", "ON")).wsrep_local_state is None


def test_text_is_made_harmless() -> None:
    seen = parsed(
        ("wsrep_local_state_comment", b" Donor\r\nX: \xff\x00\x1b[31m" + b"y" * 100)
    ).wsrep_local_state_comment
    assert seen is not None
    assert seen.isprintable()
    assert len(seen) <= 60
    assert seen.startswith("Donor??X: ")


def test_the_same_row_twice_is_one() -> None:
    assert NodeState(wsrep_ready="ON") == parsed(("wsrep_ready", "ON"), ("WSREP_READY", b"ON"))


def test_a_server_that_contradicts_itself_is_a_failed_poll() -> None:
    expected = PollFailure(Reason.ERROR, "the server sent two different values for wsrep_ready")
    assert expected == parse_node_state([("wsrep_ready", "ON"), ("wsrep_ready", "OFF")])


@pytest.mark.parametrize("row", [(), ("wsrep_ready",), ("wsrep_ready", "ON", "x")])
def test_a_row_that_is_no_pair_is_a_failed_poll(row: tuple[str, ...]) -> None:
    assert isinstance(parse_node_state([row]), PollFailure)


@given(st.text(max_size=400))
def test_a_detail_is_one_short_line_of_printable_ascii(text: str) -> None:
    line = one_line(text)
    assert (line.isascii(), len(line) <= 300) == (True, True)
    assert not line or line.isprintable()


def test_a_detail_that_is_cut_says_so() -> None:
    assert one_line("a" * 300) == "a" * 300
    assert one_line("a" * 301) == "a" * 297 + "..."
    assert one_line("caf\u00e9\r\n\x1b[2J") == "caf\\xe9???[2J"


cells = st.one_of(
    st.none(),
    st.binary(max_size=80),
    st.text(max_size=80),
    st.integers(),
    st.floats(),
    st.sampled_from(["ON", "OFF", "Primary", "4", "2", "NONE", b"4", b"ON", "18446744073709551615"]),
)
names = st.one_of(st.sampled_from([*STATUS_VARIABLES, *SYSTEM_VARIABLES]), cells)


@given(st.lists(st.one_of(st.tuples(names, cells), st.lists(cells, max_size=4).map(tuple)), max_size=40))
def test_no_rows_whatever_raise_or_are_available_against_the_rules(rows: list[tuple[object, ...]]) -> None:
    state = parse_node_state(rows)  # type: ignore[arg-type]
    verdict = decide(state, 0.0, Policy(1.0, available_when_donor=True), Switches())
    assert verdict.detail.isprintable()
    assert verdict.detail.isascii()
    if verdict.available:
        assert isinstance(state, NodeState)
        assert state.wsrep_local_state in (2, 3, 4)
        assert {state.wsrep_cluster_status.upper() if state.wsrep_cluster_status else ""} == {"PRIMARY"}
        assert (state.wsrep_ready or "").upper() == (state.wsrep_connected or "").upper() == "ON"


HEALTHY: dict[str, Cell] = {
    "wsrep_local_state": "4",
    "wsrep_cluster_status": "Primary",
    "wsrep_ready": "ON",
    "wsrep_connected": "ON",
    "wsrep_local_recv_queue": "0",
    "Threads_connected": "5",
    "wsrep_on": "ON",
    "wsrep_provider": "/usr/lib/galera/libgalera_smm.so",
    "wsrep_desync": "OFF",
    "wsrep_reject_queries": "NONE",
    "wsrep_sst_donor_rejects_queries": "OFF",
    "read_only": "OFF",
    "super_read_only": "OFF",
    "offline_mode": "OFF",
    "skip_networking": "OFF",
    "pxc_maint_mode": "DISABLED",
    "max_connections": "151",
}
faulty_cells = st.one_of(
    cells,
    st.sampled_from(["0", "1", "2", "3", "5", "151", "152", "Disconnected", "non-Primary", "ALL", "none"]),
)
policies = st.builds(
    Policy,
    max_age_seconds=st.just(1.0),
    available_when_donor=st.booleans(),
    available_when_readonly=st.booleans(),
    available_when_full=st.booleans(),
    max_recv_queue=st.none() | st.integers(0, 200),
)


@st.composite
def nearly_healthy_rows(draw: st.DrawFn) -> list[tuple[Cell, ...]]:
    """Draw the rows of a healthy node, a few of them missing, replaced or sent twice."""
    rows: list[tuple[Cell, ...]] = list(HEALTHY.items())
    for name in draw(st.lists(st.sampled_from(list(HEALTHY)), max_size=4)):
        fault = draw(st.sampled_from(["missing", "replaced", "twice"]))
        if fault != "twice":
            rows = [row for row in rows if row[0] != name]
        if fault != "missing":
            spellings: list[Cell] = [name, name.upper(), name.encode()]
            rows.append((draw(st.sampled_from(spellings)), draw(faulty_cells)))
    return draw(st.permutations(rows))


def no_rule_refuses(node: NodeState, age_seconds: float, policy: Policy) -> bool:
    """Say by the rules in another form than verdict.py has them whether a node may be available."""
    # No text that was parsed holds the character of the word for what is missing.
    seen = {name: getattr(node, name) for name in NodeState.__dataclass_fields__}
    text = {name: "<" if value is None else str(value).upper() for name, value in seen.items()}
    is_donor = node.wsrep_local_state in (2, 3)
    queue, connected, most = node.wsrep_local_recv_queue, node.threads_connected, node.max_connections
    off = ("<", "OFF", "0", "NO")
    return bool(
        age_seconds <= policy.max_age_seconds
        and (node.wsrep_local_state == 4 or (is_donor and policy.available_when_donor))
        and (text["wsrep_cluster_status"], text["wsrep_ready"], text["wsrep_connected"]) == ("PRIMARY", "ON", "ON")
        and text["wsrep_on"] in ("<", "ON")
        and re.search("[A-Z0-9]", text["wsrep_provider"])
        and text["wsrep_provider"] != "NONE"
        and text["skip_networking"] in off
        and text["wsrep_reject_queries"] in ("<", "NONE")
        and text["offline_mode"] in off
        and text["pxc_maint_mode"] in ("<", "DISABLED")
        and (not is_donor or text["wsrep_sst_donor_rejects_queries"] in off)
        and (policy.available_when_readonly or (text["read_only"] in off[1:] and text["super_read_only"] in off))
        and (policy.max_recv_queue is None or (queue is not None and 0 <= queue <= policy.max_recv_queue))
        and (policy.available_when_full or (connected is not None and most is not None and 0 <= connected < most))
    )


@settings(max_examples=200, deadline=None)
@given(nearly_healthy_rows(), policies, st.sampled_from([0.0, 1.0, 1.01, float("nan"), float("inf")]))
def test_a_nearly_healthy_node_is_available_exactly_where_no_rule_refuses(
    rows: list[tuple[Cell, ...]], policy: Policy, age_seconds: float
) -> None:
    state = parse_node_state(rows)
    verdict = decide(state, age_seconds, policy, Switches())
    assert verdict.available == (isinstance(state, NodeState) and no_rule_refuses(state, age_seconds, policy))
