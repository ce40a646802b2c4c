"""Reloads of a service that has a quarter of a core, or no rest, seen by HAProxy and by clients."""

from collections.abc import Callable

import pytest

from bench.load import WrongAnswerError
from bench.rig import Rig
from bench.rows.reload import beside_busy_loops, many, with_little_cpu
from bench.table import Row
from harness.waiting import NotInTimeError
from tests.conftest import needs_root
from tests.measured import DisturbedError

pytestmark = [pytest.mark.long, pytest.mark.alone]


@pytest.mark.parametrize(
    "row",
    [
        # It makes a control group.
        pytest.param(with_little_cpu, marks=needs_root),
        beside_busy_loops,
    ],
)
def test_reloads_cost_no_server_line(row: Callable[[Rig], Row]) -> None:
    with Rig(print) as rig:
        try:
            seen = row(rig)
        except (WrongAnswerError, NotInTimeError) as refused:
            # A successor has 60 s to be ready.
            raise DisturbedError(refused) from None
    if seen.met is None:
        pytest.skip(f"this machine cannot tell: {seen}")
    if not seen.met:
        raise DisturbedError(seen)


def test_hundreds_of_reloads_cost_no_answer_and_no_descriptor() -> None:
    # An answer that is wrong or does not come, and a descriptor that stays, raise.
    with Rig(print) as rig:
        assert many(rig).met
