"""Values as they were written, and durations."""

import re
from dataclasses import dataclass, field

_DURATION = re.compile(r"(?P<number>[0-9]+(\.[0-9]*)?|\.[0-9]+) ?(?P<unit>ms|s|m|h)?")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True)
class Variable:
    """A value as it was written. where: a file and line, or a flag; empty for the environment."""

    name: str
    value: str = field(repr=False)
    where: str = ""

    @property
    def called(self) -> str:
        """Its name in a message."""
        return f"{self.where}: {self.name}" if self.where else self.name


def seconds_in(text: str) -> float:
    """Return a duration in seconds. Raises `ValueError`, whose message follows "must be"."""
    duration = _DURATION.fullmatch(text.strip().lower())
    if duration is None:
        raise ValueError("a duration, such as 0.25, 250ms, 1s, 5m, 2h")
    return round(float(duration["number"]) * _UNITS[duration["unit"] or "s"], 6)
