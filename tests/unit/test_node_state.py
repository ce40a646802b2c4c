"""Rows from a server into a NodeState."""

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.verdict.node_state import (
    NOT_A_NUMBER,
    STATUS_VARIABLES,
    SYSTEM_VARIABLES,
    NodeState,
    PollFailure,
    parse_node_state,
)
from app.verdict.reason import Reason
from app.verdict.text import one_line
from tests import real_rows


def parsed(*rows: tuple[object, ...]) -> NodeState:
    """Parse rows that must give a state."""
    state = parse_node_state(rows)  # type: ignore[arg-type]
    assert isinstance(state, NodeState)
    return state


def test_every_variable_asked_for_has_a_field() -> None:
    asked = {name.lower() for name in STATUS_VARIABLES + SYSTEM_VARIABLES}
    findings = {"rejects_logins", "returning", "sync_wait_seconds", "sync_refused"}
    assert asked | findings == set(NodeState.__dataclass_fields__)


def test_the_real_rows_hold_every_variable_asked_for() -> None:
    assert (
        set(STATUS_VARIABLES + SYSTEM_VARIABLES) == set(real_rows.SYNCED) | real_rows.NOT_EVERYWHERE
    )


@pytest.mark.parametrize("version", real_rows.VERSIONS)
def test_the_real_rows_are_read_without_loss(version: str) -> None:
    rows = real_rows.SYNCED | {"version": version}
    expected = {
        name.lower(): int(value) if value.isdecimal() else value for name, value in rows.items()
    }
    seen = asdict(parsed(*rows.items()))
    assert expected == {
        name: value for name, value in seen.items() if value is not None and value is not False
    }


def test_bytes_and_text_and_numbers_are_read_alike() -> None:
    expected = NodeState(wsrep_local_state=4)
    assert expected == parsed((b"wsrep_local_state", b"4")) == parsed(("wsrep_local_state", "4"))
    assert expected == parsed(("wsrep_local_state", 4))


def test_names_come_in_either_case() -> None:
    assert NodeState(wsrep_ready="ON", threads_connected=3) == parsed(
        ("WSREP_READY", "ON"), ("Threads_connected", "3")
    )


@pytest.mark.parametrize(
    "name", ["wsrep_on", "wsrep_desync", "read_only", "offline_mode", "skip_networking"]
)
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
