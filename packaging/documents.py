"""The pages and examples that the packages install, in the places where README.md and docs/ link them.

    python packaging/documents.py

Prints their paths in the repository; below /usr/share/doc/clustercheckd they have the same ones. The licence is not
among them: a link of its name leads to Debian's file `copyright`, which holds it.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LICENCE = "LICENSE"
_FILES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "haproxy.cfg.example")
_FOLDERS = ("docs", "contrib/grafana", "contrib/kubernetes", "contrib/prometheus")


def documents() -> Iterator[Path]:
    """Yield the paths of what is installed, relative to the repository."""
    yield from map(Path, _FILES)
    for folder in _FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file():
                yield path.relative_to(ROOT)


if __name__ == "__main__":
    sys.stdout.writelines(f"{path}\n" for path in documents())
