"""What the bundle consists of, and the licence of each part."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions, packages_distributions
from pathlib import Path
from urllib.parse import quote

_TEXT = re.compile(r"(LICEN[CS]E|COPYING|NOTICE|AUTHORS)", re.IGNORECASE)


class BuildError(Exception):
    """What cannot be built here; the message says why."""


def output_of(
    *command: str, environ: Mapping[str, str] | None = None, cwd: Path | None = None
) -> str:
    """Run a command with these variables added; return what it prints. Raises `BuildError`."""
    variables = {**os.environ, **(environ or {})}
    done = subprocess.run(
        command, cwd=cwd, env=variables, capture_output=True, text=True, check=False
    )
    if done.returncode:
        message = f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}"
        raise BuildError(message)
    return done.stdout


@dataclass(frozen=True, order=True)
class Component:
    """One part of the bundle. texts: the files that its licence asks to be passed on."""

    name: str
    version: str
    licence: str
    texts: tuple[Path, ...]
    purl: str


def bundled(contents: Path, binaries: Path) -> list[Component]:
    """Name all that is in the bundle at contents. Raises `BuildError` for a part without a licence.

    binaries: a JSON file of pairs, each a library in the bundle and where it was copied from.
    """
    components = sorted({*_python_components(contents), *_system_components(binaries)})
    for component in components:
        if not component.texts:
            message = f"{component.name} is bundled and has no licence text"
            raise BuildError(message)
    return components


def overview(components: Sequence[Component], own: str) -> str:
    """Write Debian's file `copyright`: the own licence, and what there is besides."""
    head = (
        "clustercheckd, and what its package brings along in /usr/lib/clustercheckd/bin. The\n"
        "licences of those parts are in /usr/share/doc/clustercheckd/licenses."
    )
    return "\n".join(
        [
            head,
            "",
            own,
            *(f"{part.name} {part.version}: {part.licence}" for part in components),
            "",
        ]
    )


def bill_of_materials(
    components: Sequence[Component], version: str, timestamp: str
) -> str:
    """Write the parts as scanners for vulnerabilities read them: CycloneDX 1.5, as JSON."""
    own = {
        "type": "application",
        "name": "clustercheckd",
        "version": version,
        "licenses": [{"license": {"id": "MIT"}}],
    }
    parts = [
        {
            "type": "library",
            "name": part.name,
            "version": part.version,
            "licenses": [{"license": {"name": part.licence}}],
            "purl": part.purl,
        }
        for part in components
    ]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"timestamp": timestamp, "component": own},
        "components": parts,
    }
    return json.dumps(document, indent=1) + "\n"


def _python_components(contents: Path) -> Iterator[Component]:
    """Find what is from the package index. The executables themselves are PyInstaller's."""
    by_import = packages_distributions()
    imports = {entry.name.partition(".")[0] for entry in contents.iterdir()}
    names = {name for module in imports for name in by_import.get(module, [])} | {
        "pyinstaller"
    }
    for distribution in distributions():
        name = distribution.metadata["Name"]
        if name in names:
            files = [
                file
                for file in distribution.files or []
                if ".dist-info" in str(file) and _TEXT.match(file.name)
            ]
            texts = tuple(Path(str(file.locate())) for file in files)
            purl = f"pkg:pypi/{name.lower().replace('_', '-')}@{distribution.version}"
            yield Component(
                name, distribution.version, _licence(distribution), texts, purl
            )


def _licence(distribution: Distribution) -> str:
    metadata = distribution.metadata
    for field in ("License-Expression", "License"):
        # Some have the whole text there.
        if field in metadata and "\n" not in metadata[field]:
            return str(metadata[field])
    classifiers = [
        line
        for line in metadata.get_all("Classifier") or []
        if line.startswith("License ::")
    ]
    return classifiers[0].rpartition(":: ")[2] if classifiers else "see its text"


def _system_components(binaries: Path) -> Iterator[Component]:
    """Find what is from the distribution."""
    for library, source in json.loads(binaries.read_text()):
        path = Path(source).resolve()
        if path.is_relative_to(Path(sys.prefix).resolve()):
            continue
        owner = _owner(path)
        if owner is None:
            of_none = f"{library} comes from {path}, which is of no Debian package"
            raise BuildError(f"{of_none}: build with Debian's own Python")
        version = output_of("dpkg-query", "--showformat", "${Version}", "--show", owner)
        name = owner.partition(":")[0]
        text = Path("/usr/share/doc", name, "copyright")
        yield Component(
            name,
            version,
            "Debian's, see its text",
            (text,),
            f"pkg:deb/debian/{name}@{quote(version)}",
        )


def _owner(path: Path) -> str | None:
    # A file of a merged /usr is known by the name that it was packed under.
    for name in (str(path), str(path).removeprefix("/usr")):
        try:
            return output_of("dpkg-query", "--search", name).partition(": ")[0]
        except BuildError:
            continue
    return None
