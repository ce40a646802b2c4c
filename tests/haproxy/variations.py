"""The variations of haproxy.cfg.example, read from docs/haproxy.md: there is no second copy."""

import re
from pathlib import Path

from harness.haproxy import EXAMPLE

PAGE = (Path(__file__).parents[2] / "docs" / "haproxy.md").read_text()


def section(heading: str) -> str:
    """Give the text of the page under a heading, up to the next one of any level."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, heading
    return found[1]


def blocks(heading: str, language: str) -> list[str]:
    """Give the code blocks of a language under a heading."""
    return re.findall(rf"^```{language}\n(.*?)^```$", section(heading), re.MULTILINE | re.DOTALL)


def varied(heading: str, text: str | None = None) -> str:
    """Apply the one diff under a heading to the example, or to a text."""
    (diff,) = blocks(heading, "diff")
    text = EXAMPLE.read_text() if text is None else text
    for hunk in diff.split("@@\n"):
        lines = hunk.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if not line.startswith("+"))
        new = "".join(line[1:] for line in lines if not line.startswith("-"))
        assert text.count(old) == 1, f"{heading}: not once in the file:\n{old}"
        text = text.replace(old, new)
    return text
