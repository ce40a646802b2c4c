"""The variations of haproxy.cfg.example, read from docs/haproxy.md: there is no second copy."""

from harness.haproxy import EXAMPLE
from tests.unit.pages import blocks_under

PAGE = "docs/haproxy.md"


def varied(heading: str) -> str:
    """Apply the one diff under a heading to the example."""
    (diff,) = blocks_under(PAGE, heading, "diff")
    text = EXAMPLE.read_text()
    for hunk in diff.text.split("@@\n"):
        lines = hunk.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if not line.startswith("+"))
        new = "".join(line[1:] for line in lines if not line.startswith("-"))
        assert text.count(old) == 1, f"{heading}: not once in the file:\n{old}"
        text = text.replace(old, new)
    return text
