"""Builds the packages: `make package`.

    python packaging/build.py [--output DIRECTORY] [--work DIRECTORY]

Freezes the program with PyInstaller, has help2man turn its --help into manual pages and shtab its
parser into bash's completions, adds the documents and the licences, and has nfpm pack that as .deb
and .rpm, beside a bill of materials (CycloneDX). The same sources give the same bytes. Runs in the
virtual environment that packaging/setup.sh makes.
"""

import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path

import from_parser
import licences

from app import __version__

ROOT = Path(__file__).resolve().parents[1]
_COMMITTED_AT = ("log", "-1", "--format=%ct")
BIN = Path(sys.executable).parent

MAINTAINER = (
    os.environ.get("MAINTAINER")
    or "The clustercheckd maintainers <maintainers@clustercheckd.invalid>"
)
"""Who answers for the packages, as NAME <ADDRESS>: both formats want an address. The default's
cannot exist (RFC 2606), so that no stranger gets the mail. Whoever builds the packages for others
names their own."""
DOCUMENTS = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "haproxy.cfg.example",
    "docs",
    "contrib",
)


def main() -> None:
    """Build what the command line asks for."""
    parser = argparse.ArgumentParser(description="Build the packages of clustercheckd.")
    parser.add_argument(
        "--output",
        type=Path,
        default=ROOT / "dist",
        help="where the packages go (dist)",
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=ROOT / "build" / "package",
        help="where they are made",
    )
    options = parser.parse_args()
    work, output = options.work.absolute(), options.output.absolute()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    output.mkdir(parents=True, exist_ok=True)
    (work / "source").symlink_to(ROOT)
    version, epoch = _version(), _epoch()
    # Time stamps inside the files: PyInstaller and nfpm read it.
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch)
    try:
        _freeze(work, version)
        from_parser.write_manual_pages(work / "bin" / "clustercheckd", work / "man")
        from_parser.write_completions(work / "completions" / "clustercheckd")
        bundled = licences.bundled(work / "bin" / "lib", work / "binaries.json")
        _write_documents(work / "doc", bundled)
        made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))
        (work / "changelog.json").write_text(_changelog(version, made))
        bill = output / f"clustercheckd-{version}.cdx.json"
        bill.write_text(licences.bill_of_materials(bundled, version, made))
        for path in (
            path
            for folder in ("bin", "completions", "doc", "man")
            for path in (work / folder).rglob("*")
        ):
            if not path.is_symlink():
                path.chmod(
                    0o755 if path.is_dir() or path.parent == work / "bin" else 0o644
                )
            os.utime(path, (epoch, epoch), follow_symlinks=False)
        packages = [pack(work, version, kind, output) for kind in ("deb", "rpm")]
    except licences.BuildError as fault:
        sys.exit(f"make package: {fault}")
    for path in (*packages, bill):
        print(f"{path.stat().st_size:>11,} bytes  {os.path.relpath(path)}")


def pack(work: Path, version: str, kind: str, output: Path) -> Path:
    """Pack what is in the work directory as a `deb` or an `rpm`; return its path."""
    name = {
        "deb": f"clustercheckd_{version}_amd64.deb",
        "rpm": f"clustercheckd-{version}.x86_64.rpm",
    }[kind]
    environ = {"VERSION": version, "MAINTAINER": MAINTAINER}
    command = [f"{BIN}/nfpm", "package", "--config=source/packaging/nfpm.yaml"]
    licences.output_of(
        *command,
        f"--packager={kind}",
        f"--target={output / name}",
        cwd=work,
        environ=environ,
    )
    return output / name


def version_of(stated: str, committed_at: int, commit: str) -> str:
    """Return the version of a build: of a release, or newer than any earlier commit's.

    dpkg and rpm take what follows a tilde for older than the version before it.
    """
    coming = stated.removesuffix(".dev0")
    if coming == stated:
        return stated
    stamp = time.strftime("%Y%m%d.%H%M%S", time.gmtime(committed_at))
    return f"{coming}~git{stamp}.{commit.replace('-', '.')}"


def _version() -> str:
    if not (ROOT / ".git").exists():
        return __version__
    # With the word dirty, if a file differs from the commit.
    describe = ("describe", "--always", "--dirty", "--abbrev=10", "--exclude=*")
    return version_of(__version__, int(_git(*_COMMITTED_AT)), _git(*describe))


def _git(*command: str) -> str:
    return licences.output_of("git", "-C", str(ROOT), *command).strip()


def _epoch() -> int:
    """Return the time that all files get: SOURCE_DATE_EPOCH, or that of the commit."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    if (ROOT / ".git").exists():
        return int(_git(*_COMMITTED_AT))
    # Sources without their history: the archive's own time.
    return int((ROOT / "app" / "__init__.py").stat().st_mtime)


def _freeze(work: Path, version: str) -> None:
    # A program that knows its version.
    shutil.copytree(
        ROOT / "app",
        work / "program" / "app",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    start = work / "program" / "app" / "__init__.py"
    start.write_text(start.read_text().replace(f'"{__version__}"', f'"{version}"'))
    environ = {
        "PYTHONHASHSEED": "0",
        "PYINSTALLER_CONFIG_DIR": str(work / "cache"),
        "CLUSTERCHECKD_SOURCE": str(ROOT),
        "CLUSTERCHECKD_WORK": str(work),
    }
    recipe = str(ROOT / "packaging" / "clustercheckd.spec")
    folders = [f"--distpath={work}", f"--workpath={work}/analysis"]
    licences.output_of(
        f"{BIN}/pyinstaller", "--noconfirm", *folders, recipe, environ=environ
    )


def _write_documents(folder: Path, bundled: list[licences.Component]) -> None:
    """Put the pages and examples where their links lead to each other, and the licences."""
    folder.mkdir()
    for name in DOCUMENTS:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.sh")
            )
        else:
            shutil.copy(ROOT / name, folder)
    (folder / "copyright").write_text(
        licences.overview(bundled, (ROOT / "LICENSE").read_text())
    )
    for component in bundled:
        (folder / "licenses" / component.name).mkdir(parents=True, exist_ok=True)
        for text in component.texts:
            shutil.copy(text, folder / "licenses" / component.name)


def _changelog(version: str, made: str) -> str:
    """Return the changelog that both formats want, as nfpm reads it."""
    entry = {
        "semver": f"{version}-1",
        "date": made,
        "packager": MAINTAINER,
        "deb": {"urgency": "medium", "distributions": ["stable"]},
        "changes": [{"note": "See /usr/share/doc/clustercheckd/CHANGELOG.md."}],
    }
    return json.dumps([entry])


if __name__ == "__main__":
    main()
