"""Reloads of a service that has a quarter of a core, or no rest, seen by HAProxy and by clients."""

import os

import pytest

from bench.rig import Rig
from bench.rows.reload import many, with_little_cpu

pytestmark = pytest.mark.long


@pytest.mark.skipif(os.geteuid() != 0, reason="a control group takes root")
def test_no_reload_takes_a_server_line_down_at_a_quarter_of_a_core() -> None:
    with Rig(print) as rig:
        assert with_little_cpu(rig).met


def test_hundreds_of_reloads_cost_no_answer_and_no_descriptor() -> None:
    # An answer that is wrong or does not come, and a descriptor that stays, raise.
    with Rig(print) as rig:
        assert many(rig).met
