"""Rows from a server into a NodeState."""

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.database.rows import parse_node_state
from app.text import one_line
from app.verdict.node_state import (
    NOT_A_NUMBER,
    STATUS_VARIABLES,
    SYSTEM_VARIABLES,
    NodeState,
    PollFailure,
)
from app.verdict.reason import Reason
from tests import real_rows


def parsed(*rows: tuple[object, ...]) -> NodeState:
    """Parse rows that must give a state."""
    state = parse_node_state(rows)  # type: ignore[arg-type]
    assert isinstance(state, NodeState)
    return state


def test_the_real_rows_hold_every_variable_asked_for() -> None:
    sent = {name.lower() for name in real_rows.SYNCED}
    assert {*STATUS_VARIABLES, *SYSTEM_VARIABLES} == sent | real_rows.NOT_EVERYWHERE


def test_the_real_rows_are_read_without_loss() -> None:
    expected = {
        name.lower(): int(value) if value.isdecimal() else value
        for name, value in real_rows.SYNCED.items()
    } | {"max_user_connections": "0"}
    node = asdict(parsed(*real_rows.SYNCED.items()))
    assert node == {**asdict(NodeState()), **expected}


def test_bytes_and_text_and_numbers_are_read_alike_under_names_in_either_case() -> None:
    expected = NodeState(wsrep_local_state=4)
    assert (
        expected
        == parsed((b"wsrep_local_state", b"4"))
        == parsed(("WSREP_LOCAL_STATE", 4))
    )


def test_rows_nobody_asked_for_are_passed_over() -> None:
    assert NodeState() == parsed(("Questions", "3"), ("", ""), (None, None))


@pytest.mark.parametrize(
    "value", ["", "4.0", "-1", "18446744073709551615", "9" * 30, None, b"\xff", "٤"]
)
def test_what_is_no_number_is_kept_as_such(value: object) -> None:
    assert parsed(("wsrep_local_state", value)).wsrep_local_state == NOT_A_NUMBER


def test_text_is_made_harmless() -> None:
    node = parsed(("wsrep_node_name", b" Donor\r\nX: \xff\x00\x1b[31m" + b"y" * 100))
    assert node.wsrep_node_name == "Donor??X: ???[31m" + "y" * 43


def test_the_list_of_addresses_is_kept_in_full_also_of_ipv6() -> None:
    addresses = ",".join(f"[fd00::{number}]:3306" for number in range(1, 21))
    expected = NodeState(wsrep_incoming_addresses=addresses)
    assert expected == parsed(("wsrep_incoming_addresses", addresses))
    cut = parsed(("wsrep_incoming_addresses", "x" * 9999)).wsrep_incoming_addresses
    assert len(cut or "") == 2048


def test_a_server_that_contradicts_itself_is_a_failed_poll() -> None:
    expected = PollFailure(
        Reason.ERROR, "the server sent two different values for wsrep_ready"
    )
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
