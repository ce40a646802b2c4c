"""Variables as written: an env file's lines, names that look like settings, and durations."""

import io
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from app.settings.files import read_file

_LIKE_OURS = (
    *("CLUSTERCHECK_", "AVAILABLE_WHEN_", "MAX_RECV_", "MAX_SYNC_"),
    # Close to a name of ours, and used by other programs.
    *("MYSQL_USER", "MYSQL_PASS", "MYSQL_SSL"),
)

_DURATION = re.compile(r"(?P<number>[0-9]+(\.[0-9]*)?|\.[0-9]+) ?(?P<unit>ms|s|m|h)?")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True)
class Variable:
    """A value as it was written.

    where: its source for messages, as in "/etc/default/clustercheck, line 3"; empty for the
    environment.
    """

    name: str
    value: str
    where: str = ""

    @property
    def called(self) -> str:
        """Its name in a message."""
        return f"{self.where}: {self.name}" if self.where else self.name


def read_env_file(path: str) -> tuple[list[Variable], list[str]]:
    """Return the variables of an env file, and one line for each mistake in it.

    No line contains a value.
    """
    # Imported here, because the drop-in does without, and starts for each health check.
    from dotenv.parser import parse_stream  # noqa: PLC0415

    try:
        text = read_file(path)
    except (OSError, UnicodeError) as fault:
        return [], [f"env file {path}: {getattr(fault, 'strerror', None) or 'not UTF-8'}"]
    variables = []
    mistakes = []
    for number, line in enumerate(text.split("\n"), 1):
        where = f"{path}, line {number}"
        for binding in parse_stream(io.StringIO(line)):
            # No path may contain a zero byte.
            if binding.error or "\0" in line or (binding.key and binding.value is None):
                mistakes.append(f"env file {where} is not NAME=value")
            elif binding.key is not None:
                variables.append(Variable(binding.key, binding.value or "", where))
    return variables, mistakes


def unknown_names(variables: Iterable[Variable], known: Collection[str]) -> Iterator[str]:
    """Yield one line for each variable that looks like a setting but is not.

    In an env file, every name does. In the environment, which contains variables of other programs,
    only those that begin as ours do.
    """
    for variable in variables:
        name = variable.name.upper()
        looks_like_ours = name.startswith(_LIKE_OURS)
        if name not in known and (variable.where or looks_like_ours):
            # Any other name may be a pasted key or password.
            shown = Variable(name if looks_like_ours else "a name", "", variable.where)
            yield f"{shown.called} is not a setting and is ignored"


def seconds_in(text: str) -> float:
    """Return a duration in seconds. Raises `ValueError`, whose message has examples."""
    duration = _DURATION.fullmatch(text.strip().lower())
    if duration is None:
        raise ValueError("not a duration; examples: 0.25, 250ms, 1s, 5m, 2h")
    return round(float(duration["number"]) * _UNITS[duration["unit"] or "s"], 6)
