"""Variables as written: the lines of an env file, names that look like settings but are not, and
durations.
"""

import io
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from app.settings.error import read_file

_OUR_PREFIXES = (
    *("CLUSTERCHECK_", "AVAILABLE_WHEN_", "MAX_RECV_", "MAX_SYNC_"),
    # Close to a name of ours, and used by other programs.
    *("MYSQL_USER", "MYSQL_PASS", "MYSQL_SSL"),
)
# Kubernetes sets such variables for every Service.
_OF_KUBERNETES = re.compile(r"_(SERVICE|PORT)_")
# Messages repeat only such names: the parser may take a pasted key or password for a name.
_NAME = re.compile(r"[A-Za-z0-9]+(_[A-Za-z0-9]+)+")

_DURATION = re.compile(r"(?P<number>[0-9]+(\.[0-9]*)?|\.[0-9]+) ?(?P<unit>ms|s|m|h)?")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True, slots=True)
class Variable:
    """A value as it was given.

    where: its source for messages, as in "/etc/default/clustercheck, line 3". flag: what was typed
    instead of the name.
    """

    name: str
    value: str
    where: str = ""
    flag: str = ""

    @property
    def called(self) -> str:
        """Name it in a message."""
        place = f"{self.where}: " if self.where else ""
        flag = f" ({self.flag})" if self.flag else ""
        return f"{place}{self.name}{flag}"


def read_env_file(path: str) -> tuple[list[Variable], list[str]]:
    """Return the variables of an env file, and one line for each mistake in it.

    No line contains a value.
    """
    # Imported here, because the drop-in does without, and starts for each health check.
    from dotenv.parser import parse_stream  # noqa: PLC0415

    try:
        text = read_file(path)
    except (OSError, UnicodeError) as fault:
        return [], [f"{path}: {getattr(fault, 'strerror', None) or 'not UTF-8'}"]
    given: dict[str, Variable] = {}
    complaints = []
    for number, line in enumerate(text.split("\n"), 1):
        where = f"{path}, line {number}"
        for binding in parse_stream(io.StringIO(line)):
            if binding.error or (binding.key is not None and binding.value is None):
                complaints.append(f"{where} is not NAME=value")
            elif binding.key is not None:
                given[binding.key] = Variable(binding.key, binding.value or "", where)
    return list(given.values()), complaints


def unknown_names(variables: Iterable[Variable], known: Collection[str]) -> Iterator[str]:
    """Yield one line for each variable that looks like a setting but is not.

    In an env file, every name does. In the environment, which contains variables of other programs,
    only those that begin as ours do.
    """
    for variable in variables:
        name = variable.name.upper()
        looks_like_ours = name.startswith(_OUR_PREFIXES) and not _OF_KUBERNETES.search(name)
        if name not in known and (variable.where or looks_like_ours):
            harmless = name if _NAME.fullmatch(name) else "a name"
            yield f"{Variable(harmless, '', variable.where).called} is not a setting and is ignored"


def seconds_in(text: str) -> float:
    """Return a duration in seconds. Raises `ValueError`, whose message has examples."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError("not a duration; examples: 0.25, 250ms, 1s, 5m, 2h")
    return round(float(found["number"]) * _UNITS[found["unit"] or "s"], 6)
