"""Reloads and restarts of a service that has a quarter of a core, or no rest, seen by HAProxy and by clients."""

import os
from collections.abc import Callable

import pytest

from bench.rig import Rig
from bench.rows.reload import many, restarts, with_little_cpu
from bench.table import Row

pytestmark = pytest.mark.long


@pytest.mark.skipif(os.geteuid() != 0, reason="a control group takes root")
@pytest.mark.parametrize("row", [with_little_cpu, restarts])
def test_nothing_takes_a_server_line_down_at_a_quarter_of_a_core(
    row: Callable[[Rig], Row],
) -> None:
    with Rig(print) as rig:
        assert row(rig).met


def test_hundreds_of_reloads_cost_no_answer_and_no_descriptor() -> None:
    # An answer that is wrong or does not come, and a descriptor that stays, raise.
    with Rig(print) as rig:
        assert many(rig).met
