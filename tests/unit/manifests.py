"""Manifests as the tests read them: strictly."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from app.settings.env_file import Variable
from app.settings.settings import TABLE, Settings
from app.settings.source import values_of

ROOT = Path(__file__).parents[2]

Document = dict[str, Any]


class StrictLoader(yaml.SafeLoader):
    """Refuses a key that comes twice, of which YAML would take the last one without a word."""

    def construct_mapping(
        self,
        node: yaml.MappingNode,
        deep: bool = False,  # noqa: FBT001, FBT002 (as it is there)
    ) -> dict[Any, Any]:
        """Return the mapping."""
        document = super().construct_mapping(node, deep)
        assert len(document) == len(node.value), f"{node.start_mark}: a key comes twice"
        return document


def documents_in(path: Path) -> Iterator[Document]:
    """Read the documents of a file."""
    yield from yaml.load_all(path.read_text(), Loader=StrictLoader)


def settings_from(environ: Mapping[str, str]) -> Settings:
    """Read a container's variables as clustercheckd does; an unknown one fails."""
    known = {name.upper() for name in TABLE}
    assert set(environ) <= known, set(environ) - known
    variables = {name.lower(): Variable(name, value) for name, value in environ.items()}
    return Settings(**values_of(variables))
