"""Text that is made fit for a body, a log line and a terminal."""

import re

_UNPRINTABLE = re.compile(r"[^ -~]")
# Enough for two values and two paths, with what a log line or a body adds.
_LINE_LIMIT = 300


def host_and_port(host: str, port: int) -> str:
    """Return HOST:PORT, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def one_line(text: str) -> str:
    """Return text as one line of printable ASCII, cut to 300 characters."""
    line = _UNPRINTABLE.sub("?", text.encode("ascii", "backslashreplace").decode())
    return line if len(line) <= _LINE_LIMIT else f"{line[: _LINE_LIMIT - 3]}..."
