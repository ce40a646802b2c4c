"""Durations as they are typed: seconds, or a number with a unit."""

import re
from decimal import Decimal

_DURATION = re.compile(r"(?P<number>[0-9]+(\.[0-9]*)?|\.[0-9]+) ?(?P<unit>ms|s|m|h)?")
# In decimals 800ms is 0.8.
_UNITS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}


def seconds_in(text: str) -> float:
    """Return a duration in seconds. Raises `ValueError`, whose message has examples."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is not a duration; examples: 0.25, 250ms, 1s, 5m, 2h")
    return float(Decimal(found["number"]) * _UNITS[found["unit"] or "s"])
