"""Cells of the table of `clustercheckd status`."""

from datetime import UTC, datetime, timedelta

import pytest

from app.commands.status import age_since


@pytest.mark.parametrize(
    ("seconds", "age"),
    [
        (-60, "0s"),
        (119.5, "119s"),
        (121, "2m"),
        (47.5 * 3600, "47h"),
        (3e5, "3d"),
    ],
)
def test_since_is_an_age(seconds: float, age: str) -> None:
    assert age_since(datetime.now(UTC) - timedelta(seconds=seconds)) == age


def test_no_time_is_a_dash() -> None:
    assert age_since(None) == "-"
