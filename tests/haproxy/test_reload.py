"""Reloads and restarts of a service that has a quarter of a core, or no rest, seen by HAProxy and by clients."""

from collections.abc import Callable

import pytest

from bench.rig import Rig
from bench.rows.reload import beside_busy_loops, many, restarts, with_little_cpu
from bench.table import Row
from tests.conftest import needs_root

pytestmark = [pytest.mark.long, pytest.mark.alone]


@pytest.mark.parametrize(
    "row",
    [
        # They make a control group.
        pytest.param(with_little_cpu, marks=needs_root),
        pytest.param(restarts, marks=needs_root),
        beside_busy_loops,
        many,
    ],
)
def test_reloads_and_restarts_cost_no_answer_no_server_line_and_no_descriptor(
    row: Callable[[Rig], Row],
) -> None:
    # An answer that is wrong or does not come, and a descriptor that stays, raise.
    with Rig(print) as rig:
        assert row(rig).met
