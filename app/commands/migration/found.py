"""The findings: values, each with the line it comes from."""

from dataclasses import dataclass, field
from pathlib import PurePath

_SCRIPTS = ("clustercheck", "mysqlchk")


@dataclass(frozen=True, slots=True)
class Given:
    """A value, and where it is written, as in "/etc/xinetd.d/mysqlchk, line 9 (port)"."""

    value: str
    where: str


@dataclass(slots=True)
class Runner:
    """One thing that runs the script for each health check: an xinetd service, a systemd socket, a socat.

    name: for messages. program, arguments: the script. environ: the variables that it sets for the script. allow_from:
    addresses, networks and names; None for everybody. uncovered: what it does and clustercheckd cannot. off: why it
    does not run today; empty if it does.
    """

    name: str
    program: str = ""
    arguments: tuple[str, ...] = ()
    arguments_where: str = ""
    environ: dict[str, Given] = field(default_factory=dict)
    host: Given | None = None
    port: Given | None = None
    allow_from: list[Given] | None = None
    uncovered: list[Given] = field(default_factory=list)
    off: str = ""

    def take_command(self, words: list[str], where: str) -> bool:
        """Find the script and its arguments in a command line; return whether they are there."""
        for position, word in enumerate(words):
            if is_script(word):
                self.program, self.arguments = word, tuple(words[position + 1 :])
                self.arguments_where = where
                return True
        return False


def is_script(path: str) -> bool:
    """Return whether this is a path of the script, under one of its usual names."""
    return PurePath(path).name.startswith(_SCRIPTS)
