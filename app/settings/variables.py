"""Variables as written: the lines of an env file, names that look like settings but are not, and
durations.
"""

import difflib
import io
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from app.settings.error import read_file

_OUR_PREFIXES = ("CLUSTERCHECK_", "AVAILABLE_WHEN_")
_LIKE_OURS = ("CLUSTERCHECK", "AVAILABLE", "MYSQL", "MAX_RECV", "DEFAULT")
# Kubernetes sets variables with the first two for every Service. Database images use the third.
_OF_OTHERS = ("_SERVICE_", "_PORT_", "_ROOT_")
# MYSQL_USER, which many programs use, is this close to MYSQL_USERNAME.
_HOW_CLOSE = 0.82
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
        return f"{f'{self.where}: ' if self.where else ''}{self.name}{f' ({self.flag})' if self.flag else ''}"


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


def misspelt_names(given: Sequence[Variable], known: Collection[str]) -> Iterator[str]:
    """Yield one line for each variable that looks like a setting but is not.

    The environment contains variables of other programs. There, only names with a prefix of ours,
    or close to the name of a setting that is not set, count. In an env file, every name counts.
    """
    names = {variable.name.upper() for variable in given}
    for variable in given:
        name = variable.name.upper()
        # Comparing is slow, and an environment may contain hundreds of unrelated names.
        if name in known or not (variable.where or name.startswith(_LIKE_OURS)):
            continue
        close = difflib.get_close_matches(name, known, cutoff=_HOW_CLOSE)
        # MYSQL_PASS means MYSQL_PASSWORD, although MYSQL_SSL has more of its letters.
        close = [setting for setting in close if setting.startswith(name)] or close
        ours = name.startswith(_OUR_PREFIXES) or (close and close[0] not in names)
        if variable.where or (ours and not any(part in name for part in _OF_OTHERS)):
            shown = Variable(name if _NAME.fullmatch(name) else "a name", "", variable.where).called
            yield f"{shown} is not a setting and is ignored{f': did you mean {close[0]}?' if close else ''}"


def seconds_in(text: str) -> float:
    """Return a duration in seconds. Raises `ValueError`, whose message has examples."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is not a duration; examples: 0.25, 250ms, 1s, 5m, 2h")
    return round(float(found["number"]) * _UNITS[found["unit"] or "s"], 6)
