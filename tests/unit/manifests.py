"""Manifests as the tests read them: strictly."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from app.settings import Settings

ROOT = Path(__file__).parents[2]

Document = dict[str, Any]


class StrictLoader(yaml.SafeLoader):
    """Refuses a key that comes twice, of which YAML would take the last one without a word."""


def _mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> Document:
    document: Document = {}
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        assert key not in document, f"{key_node.start_mark}: {key} comes twice"
        document[key] = loader.construct_object(value_node, deep=True)
    return document


StrictLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def documents_in(path: Path) -> Iterator[Document]:
    """Read the documents of a file."""
    yield from yaml.load_all(path.read_text(), Loader=StrictLoader)


def settings_from(environ: Mapping[str, str]) -> Settings:
    """Read a container's variables as clustercheckd does; an unknown one fails."""
    known = {name.upper() for name in Settings.model_fields}
    assert set(environ) <= known, set(environ) - known
    return Settings(**{name.lower(): value for name, value in environ.items()})  # type: ignore[arg-type]
