"""Env files: lines of NAME=value."""

import io
from typing import NamedTuple

from dotenv.parser import parse_stream

from app.settings.files import read_file, words_of

ENV_FILE = "/etc/clustercheckd/clustercheckd.env"
"""Where to look without another path. It need not exist."""


class Variable(NamedTuple):
    """A value as it was written. where: a file and line, or a flag; empty for the environment."""

    name: str
    value: str
    where: str = ""

    @property
    def field(self) -> str:
        """The field of `Settings` that it sets, if there is one."""
        return self.name.lower()

    @property
    def called(self) -> str:
        """Its name in a message."""
        return f"{self.where}: {self.name}" if self.where else self.name


def read_env_file(path: str) -> tuple[list[Variable], list[str]]:
    """Return the variables of an env file, and one line for each mistake, without a value."""
    try:
        text = read_file(path)
    except OSError as fault:
        if path == ENV_FILE and isinstance(fault, FileNotFoundError):
            return [], []
        return [], [f"env file {path}: {words_of(fault)}"]
    variables = []
    mistakes = []
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{path}, line {number}"
        for binding in parse_stream(io.StringIO(line)):
            # No path may contain a zero byte.
            if binding.error or "\0" in line or (binding.key and binding.value is None):
                mistakes.append(f"env file {where} is not NAME=value")
            elif binding.key is not None:
                variables.append(Variable(binding.key, binding.value or "", where))
    return variables, mistakes
